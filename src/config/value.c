/* SPDX-License-Identifier: MIT */
/*
 * One value: from the text a user wrote to its member of struct config, and back.
 *
 * The option's kind decides how a text is understood, by the YAML 1.2 core schema (its section 10.3.2): `no`,
 * `010` and `1:30` given to a text option are texts as they stand; `on` given to a switch is an error, not
 * true.
 */
#include "config/table.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

static void *member(struct config *c, const struct config_row *row) { return (char *)c + row->offset; }
static const void *member_const(const struct config *c, const struct config_row *row)
{
    return (const char *)c + row->offset;
}

static int get_enum(const struct config *c, const struct config_row *row)
{
    int value;

    memcpy(&value, member_const(c, row), sizeof value);
    return value;
}

static void set_enum(struct config *c, const struct config_row *row, int value)
{
    memcpy(member(c, row), &value, sizeof value);
}

/* False for the null of a MAYBE option. */
static bool maybe_is_set(const struct config *c, const struct config_row *row)
{
    const void *at = member_const(c, row);

    switch (row->kind) {
    case CONFIG_MAYBE_INT: return ((const struct config_int *)at)->is_set;
    case CONFIG_MAYBE_REAL: return ((const struct config_real *)at)->is_set;
    case CONFIG_MAYBE_BOOL: return ((const struct config_bool *)at)->is_set;
    default: return true;
    }
}

/* ---- texts to values ---- */
/* How a wrong text is shown: quoted, and cut where it is long. */
static void quote(struct str *why, const char *text)
{
    enum { SHOWN = 60 };
    size_t n = strlen(text);

    str_add_char(why, '"');
    utf8_clean(why, text, n < SHOWN ? n : SHOWN);
    str_add(why, n < SHOWN ? "\"" : "...\"");
}

static bool set_int(const struct config_row *row, const char *text, int64_t *out, struct str *why)
{
    bool is_out_of_range;
    double real;
    int64_t value;

    if (!config_parse_int(text, &value, &is_out_of_range)) {
        quote(why, text);
        str_add(why, " is not an integer");
        if (config_parse_real(text, &real) && real == floor(real) && fabs(real) < 1e15)
            str_addf(why, "; write %lld", (long long)real);
        return false;
    }
    if (is_out_of_range || value < row->min_int || value > row->max_int) {
        str_addf(why, "%.60s is outside of %lld to %lld", text, (long long)row->min_int, (long long)row->max_int);
        return false;
    }
    *out = value;
    return true;
}

static bool set_real(const struct config_row *row, const char *text, double *out, struct str *why)
{
    double value;
    char low[32], high[32];

    if (!config_parse_real(text, &value)) {
        quote(why, text);
        str_add(why, " is not a number");
        return false;
    }
    if (!(value >= row->min_real && value <= row->max_real)) { /* so that NaN fails */
        json_shortest(row->min_real, low);
        json_shortest(row->max_real, high);
        str_addf(why, "%.60s is outside of %s to %s", text, low, high);
        return false;
    }
    *out = value;
    return true;
}

static bool set_bool(const char *text, bool *out, struct str *why)
{
    static const char *const yes[] = {"true", "True", "TRUE", NULL}, *const no[] = {"false", "False", "FALSE", NULL};

    if (config_is_one_of(text, yes)) return *out = true, true;
    if (config_is_one_of(text, no)) return *out = false, true;
    quote(why, text);
    str_add(why, " is neither true nor false");
    return false;
}

static bool set_choice(struct config *c, const struct config_row *row, const char *text, struct str *why)
{
    enum { MOST = 16 };
    const char *names[MOST], *nearest;
    int n = 0;

    for (const struct config_choice *choice = row->choices; choice->name; choice++) {
        if (strcmp(choice->name, text) == 0) return set_enum(c, row, choice->value), true;
        BUG_ON(n >= MOST);
        names[n++] = choice->name;
    }
    /* null where a choice is called none */
    if (config_is_null(text))
        for (const struct config_choice *choice = row->choices; choice->name; choice++)
            if (strcmp(choice->name, "none") == 0) return set_enum(c, row, choice->value), true;
    quote(why, text);
    str_add(why, " is not one of ");
    for (int i = 0; i < n; i++) str_addf(why, "%s%s", i ? ", " : "", names[i]);
    nearest = strlen(text) < CONFIG_PATH_BYTES ? str_nearest(text, names, n) : NULL;
    if (nearest) str_addf(why, "; did you mean %s?", nearest);
    return false;
}

static bool set_text(struct config *c, const struct config_row *row, const char *text, struct str *why)
{
    char *copy = arena_strdup(&c->sources->arena, text);

    if (!copy) return str_add(why, "out of memory"), false;
    *(const char **)member(c, row) = copy;
    return true;
}

bool config_set_items(struct config *c, const struct config_row *row, const char *const *items, int n, struct str *why)
{
    struct config_list *list = member(c, row);
    const char **copy = arena_array(&c->sources->arena, (size_t)n + 1, sizeof *copy);

    for (int i = 0; copy && i < n; i++) {
        copy[i] = arena_strdup(&c->sources->arena, items[i]);
        if (!copy[i]) copy = NULL;
    }
    if (!copy) return str_add(why, "out of memory"), false;
    list->item = copy;
    list->n = n;
    return true;
}

/* "a, b" -> a and b; an argument or a default. */
static bool set_comma_list(struct config *c, const struct config_row *row, const char *text, struct str *why)
{
    size_t n = strlen(text), count = 1;
    char *copy = arena_strdup(&c->sources->arena, text);
    const char **items;
    int n_items = 0;

    for (size_t i = 0; i < n; i++) count += text[i] == ',';
    items = arena_array(&c->sources->arena, count, sizeof *items);
    if (!copy || !items) return str_add(why, "out of memory"), false;
    for (char *s = copy; s;) {
        char *end = strchr(s, ','), *last;

        if (end) *end = '\0';
        s += strspn(s, " ");
        last = s + strlen(s);
        while (last > s && last[-1] == ' ') *--last = '\0';
        if (*s)
            items[n_items++] = s;
        else if (end || n_items)
            return str_add(why, "an entry between commas is empty"), false;
        s = end ? end + 1 : NULL;
    }
    return config_set_items(c, row, items, n_items, why);
}

static bool set_list(struct config *c, const struct config_row *row, const char *text, enum config_style style,
                     struct str *why)
{
    if (style == STYLE_ARGUMENT)
        return text[0] == '[' ? config_read_flow(c, row, text, why) : set_comma_list(c, row, text, why);
    if (style == STYLE_PLAIN && config_is_null(text)) return config_set_items(c, row, NULL, 0, why);
    return config_set_items(c, row, &text, 1, why);
}

bool config_set(struct config *c, const struct config_row *row, const char *text, size_t n, enum config_style style,
                struct str *why)
{
    struct config_int *maybe_int = member(c, row);
    struct config_real *maybe_real = member(c, row);
    struct config_bool *maybe_bool = member(c, row);
    bool is_nothing = style != STYLE_QUOTED && config_is_null(text);

    if (strlen(text) != n) return str_add(why, "a text cannot hold a zero byte"), false;
    if (style == STYLE_QUOTED && row->kind != CONFIG_TEXT && row->kind != CONFIG_LIST && row->kind != CONFIG_ENUM) {
        quote(why, text);
        str_addf(why, " is a text because of its quotes, where %s is expected",
                 row->kind == CONFIG_BOOL || row->kind == CONFIG_MAYBE_BOOL ? "true or false" : "a number");
        return false;
    }
    switch (row->kind) {
    case CONFIG_INT: return set_int(row, text, member(c, row), why);
    case CONFIG_REAL: return set_real(row, text, member(c, row), why);
    case CONFIG_BOOL: return set_bool(text, member(c, row), why);
    case CONFIG_TEXT: return set_text(c, row, style == STYLE_PLAIN && config_is_null(text) ? "" : text, why);
    case CONFIG_LIST: return set_list(c, row, text, style, why);
    case CONFIG_ENUM: return set_choice(c, row, text, why);
    case CONFIG_MAYBE_INT:
        if (is_nothing) return *maybe_int = (struct config_int){0}, true;
        return set_int(row, text, &maybe_int->value, why) && (maybe_int->is_set = true);
    case CONFIG_MAYBE_REAL:
        if (is_nothing) return *maybe_real = (struct config_real){0}, true;
        return set_real(row, text, &maybe_real->value, why) && (maybe_real->is_set = true);
    case CONFIG_MAYBE_BOOL:
        if (is_nothing) return *maybe_bool = (struct config_bool){0}, true;
        return set_bool(text, &maybe_bool->value, why) && (maybe_bool->is_set = true);
    }
    BUG("kind %d of %s", (int)row->kind, row->key);
}

bool config_set_default(struct config *c, const struct config_row *row, struct str *why)
{
    switch (row->kind) {
    case CONFIG_INT: *(int64_t *)member(c, row) = row->def_int; return true;
    case CONFIG_REAL: *(double *)member(c, row) = row->def_real; return true;
    case CONFIG_BOOL: *(bool *)member(c, row) = row->def_int; return true;
    case CONFIG_TEXT: *(const char **)member(c, row) = row->def_text; return true;
    case CONFIG_LIST: return set_comma_list(c, row, row->def_text, why);
    case CONFIG_ENUM: return set_enum(c, row, (int)row->def_int), true;
    case CONFIG_MAYBE_INT: *(struct config_int *)member(c, row) = (struct config_int){0}; return true;
    case CONFIG_MAYBE_REAL: *(struct config_real *)member(c, row) = (struct config_real){0}; return true;
    case CONFIG_MAYBE_BOOL: *(struct config_bool *)member(c, row) = (struct config_bool){0}; return true;
    }
    BUG("kind %d of %s", (int)row->kind, row->key);
}

/* ---- values to texts ---- */
static const struct config_choice *choice_of(const struct config_row *row, int value)
{
    const struct config_choice *choice = row->choices;

    while (choice->name && choice->value != value) choice++;
    BUG_ON(!choice->name);
    return choice;
}

/* What a double-quoted scalar may hold as it is: printable by YAML 1.2 section 5.1, no line break, nothing
 * invisible. */
static bool is_printable(uint32_t c)
{
    if (c < 0xa0) return c >= 0x20 && c < 0x7f;
    return c != 0x2028 && c != 0x2029 && c != 0xfeff && c != 0xfffe && c != 0xffff;
}

void config_text_yaml(const char *text, struct str *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+";
    struct str clean = {0};
    size_t length;

    if (*text && strchr(plain, *text) && strspn(text, plain) == strlen(text) && !config_is_null(text)) {
        str_add(out, text);
        return;
    }
    utf8_clean(&clean, text, strlen(text));
    str_add_char(out, '"');
    for (const char *s = str_text(&clean); *s; s += length) {
        uint32_t c = utf8_code(s, &length);

        if (c == '"' || c == '\\')
            str_addf(out, "\\%c", (char)c);
        else if (c == '\n')
            str_add(out, "\\n");
        else if (c == '\t')
            str_add(out, "\\t");
        else if (is_printable(c))
            str_add_bytes(out, s, length);
        else
            str_addf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
    str_add_char(out, '"');
    if (clean.failed) out->failed = true;
    str_release(&clean);
}

static void real_yaml(double value, struct str *out)
{
    char text[32];

    json_shortest(value, text);
    str_add(out, text);
}

void config_value_yaml(const struct config *c, const struct config_row *row, struct str *out)
{
    const void *at = member_const(c, row);
    const struct config_list *list = at;

    if (!maybe_is_set(c, row)) {
        str_add(out, "null");
        return;
    }
    switch (row->kind) {
    case CONFIG_INT: str_addf(out, "%lld", (long long)*(const int64_t *)at); return;
    case CONFIG_REAL: real_yaml(*(const double *)at, out); return;
    case CONFIG_BOOL: str_add(out, *(const bool *)at ? "true" : "false"); return;
    case CONFIG_TEXT: config_text_yaml(*(const char *const *)at, out); return;
    case CONFIG_ENUM: str_add(out, choice_of(row, get_enum(c, row))->name); return;
    case CONFIG_LIST:
        str_add_char(out, '[');
        for (int i = 0; i < list->n; i++) {
            if (i) str_add(out, ", ");
            config_text_yaml(list->item[i], out);
        }
        str_add_char(out, ']');
        return;
    case CONFIG_MAYBE_INT: str_addf(out, "%lld", (long long)((const struct config_int *)at)->value); return;
    case CONFIG_MAYBE_REAL: real_yaml(((const struct config_real *)at)->value, out); return;
    case CONFIG_MAYBE_BOOL: str_add(out, ((const struct config_bool *)at)->value ? "true" : "false"); return;
    }
}

bool config_value_equal(const struct config *a, const struct config *b, const struct config_row *row)
{
    const void *left = member_const(a, row), *right = member_const(b, row);
    const struct config_list *left_list = left, *right_list = right;

    if (maybe_is_set(a, row) != maybe_is_set(b, row)) return false;
    if (!maybe_is_set(a, row)) return true;
    switch (row->kind) {
    case CONFIG_INT: return *(const int64_t *)left == *(const int64_t *)right;
    case CONFIG_REAL: return *(const double *)left == *(const double *)right;
    case CONFIG_BOOL: return *(const bool *)left == *(const bool *)right;
    case CONFIG_TEXT: return strcmp(*(const char *const *)left, *(const char *const *)right) == 0;
    case CONFIG_ENUM: return get_enum(a, row) == get_enum(b, row);
    case CONFIG_MAYBE_INT: return ((const struct config_int *)left)->value == ((const struct config_int *)right)->value;
    case CONFIG_MAYBE_REAL:
        return ((const struct config_real *)left)->value == ((const struct config_real *)right)->value;
    case CONFIG_MAYBE_BOOL:
        return ((const struct config_bool *)left)->value == ((const struct config_bool *)right)->value;
    case CONFIG_LIST: break;
    }
    if (left_list->n != right_list->n) return false;
    for (int i = 0; i < left_list->n; i++)
        if (strcmp(left_list->item[i], right_list->item[i]) != 0) return false;
    return true;
}

const char *config_value_missing(const struct config *c, const struct config_row *row, const struct config *defaults)
{
    if (row->kind == CONFIG_ENUM && choice_of(row, get_enum(c, row))->missing)
        return choice_of(row, get_enum(c, row))->missing;
    return row->missing && !config_value_equal(c, defaults, row) ? row->missing : NULL;
}
