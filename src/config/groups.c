/* SPDX-License-Identifier: MIT */
/* An entry of optimizer.param_groups: a pattern, a colon, and what is different for the parameters it
 * matches. */
#include <string.h>

#include "base/pattern.h"
#include "config/table.h"

/* "weight_decay=0" */
static bool read_setting(struct config_param_group *out, const char *text, struct str *why)
{
    const struct {
        const char *prefix;
        struct config_real *setting;
    } settings[] = {{"weight_decay=", &out->weight_decay}, {"lr_factor=", &out->lr_factor}};

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct config_real *setting = settings[i].setting;

        if (!str_starts(text, settings[i].prefix)) continue;
        if (setting->is_set) return str_addf(why, "%s is given twice", settings[i].prefix), false;
        if (!config_parse_real(text + strlen(settings[i].prefix), &setting->value) ||
            !(setting->value >= 0 && setting->value <= 1e6))
            return str_addf(why, "%.60s: expected a number from 0 to 1e6", text), false;
        setting->is_set = true;
        return true;
    }
    str_addf(why, "\"%.60s\" is neither weight_decay=NUMBER nor lr_factor=NUMBER", text);
    return false;
}

/* The words after the colon; `words` is changed. */
static bool read_settings(struct config_param_group *out, char *words, struct str *why)
{
    bool is_good = true;
    int n = 0;

    while (is_good && *(words += strspn(words, " "))) {
        size_t length = strcspn(words, " ");
        bool is_last = words[length] == '\0';

        words[length] = '\0';
        is_good = read_setting(out, words, why);
        words += length + !is_last;
        n++;
    }
    if (is_good && !n) str_add(why, "nothing stands after the colon");
    return is_good && n;
}

static bool check_pattern(const struct config_param_group *group, struct str *why)
{
    struct error e = {0};
    regex_t regex;

    if (!pattern_compile(&regex, group->pattern, group->pattern_length, &e)) return regfree(&regex), true;
    str_add(why, e.message);
    return false;
}

err_t config_param_group(struct config_param_group *out, const char *text, struct error *e)
{
    const char *colon = NULL;
    struct str why = {0};
    char *words;
    bool is_good;

    *out = (struct config_param_group){.pattern = text};
    for (const char *s = strstr(text, ": "); s; s = strstr(s + 1, ": ")) colon = s; /* the pattern may hold colons */
    if (!colon || colon == text)
        return FAIL(e, ERR_CONFIG, "\"%.100s\" has not the form REGEX: weight_decay=0 lr_factor=0.5", text);
    out->pattern_length = (int)(colon - text);
    words = mem_strdup(colon + 2);
    if (!words) return FAIL(e, ERR_MEMORY, "no memory for a parameter group");
    is_good = check_pattern(out, &why) && read_settings(out, words, &why);
    mem_free(words);
    if (!is_good) FAIL(e, ERR_CONFIG, "\"%.100s\": %s", text, str_text(&why));
    str_release(&why);
    return is_good ? ERR_NONE : ERR_CONFIG;
}
