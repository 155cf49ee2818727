/* SPDX-License-Identifier: MIT */
/* What must stay the same when a run goes on: its identity as a hash, and the comparison with an earlier
 * configuration. */
#include <jansson.h>
#include <string.h>

#include "base/hash.h"
#include "config/table.h"

uint64_t config_hash(const struct config *c)
{
    uint64_t h = HASH_FNV_START;

    for (int i = 0; i < CONFIG_N_ROWS; i++) {
        const struct config_row *row = config_row(i);
        struct str line = {0};

        if (row->resume == MAY_CHANGE || row->resume == TOLD) continue;
        str_addf(&line, "%s.%s: ", row->section, row->key);
        config_value_yaml(c, row, &line);
        str_add_char(&line, '\n');
        h = hash_fnv(h, str_text(&line), line.length);
        str_release(&line);
    }
    return h;
}

/* The member of nested objects that "a.b" and key name; NULL if there is none. */
static const json_t *find(const json_t *root, const char *section, const char *key)
{
    while (root && *section) {
        size_t length = strcspn(section, ".");
        char name[CONFIG_PATH_BYTES] = {0};

        memcpy(name, section, length);
        root = json_object_get(root, name);
        section += length + (section[length] == '.');
    }
    return json_object_get(root, key);
}

/* Sets the option from the value that config_write_json wrote. */
static bool set_json(struct config *c, const struct config_row *row, const json_t *value, struct str *why)
{
    struct str text = {0};
    enum config_style style = json_is_string(value) ? STYLE_QUOTED : STYLE_PLAIN;
    bool is_set;

    if (json_is_array(value) && row->kind == CONFIG_LIST) {
        const char **items = arena_array(&c->sources->arena, json_array_size(value) + 1, sizeof *items);

        if (!items) return str_add(why, "out of memory"), false;
        for (size_t i = 0; i < json_array_size(value); i++) {
            items[i] = json_string_value(json_array_get(value, i));
            if (!items[i]) return str_add(why, "an entry of the list is not a text"), false;
        }
        return config_set_items(c, row, items, (int)json_array_size(value), why);
    }
    switch (json_typeof(value)) {
    case JSON_STRING: str_add_bytes(&text, json_string_value(value), json_string_length(value)); break;
    case JSON_INTEGER: str_addf(&text, "%lld", (long long)json_integer_value(value)); break;
    case JSON_REAL: str_addf(&text, "%.17g", json_real_value(value)); break;
    case JSON_TRUE: str_add(&text, "true"); break;
    case JSON_FALSE: str_add(&text, "false"); break;
    case JSON_NULL: str_add(&text, "null"); break;
    default: return str_add(why, "it is not a value"), false;
    }
    is_set = !text.failed && config_set(c, row, str_text(&text), text.length, style, why);
    if (text.failed) str_add(why, "out of memory");
    str_release(&text);
    return is_set;
}

/* What is done about an option whose value differs. */
enum consequence { NOTHING, IS_TOLD, IS_REFUSED };

static enum consequence consequence_of(const struct config *c, enum config_earlier earlier, enum config_resume resume)
{
    static const enum consequence table[][4] = {
        [CONFIG_EARLIER_RUN] = {[TOLD] = IS_TOLD, [FIXED] = IS_REFUSED, [FIXED_DATA] = IS_REFUSED},
        [CONFIG_EARLIER_SEED] = {[FIXED] = IS_REFUSED},
        [CONFIG_EARLIER_PARAMETERS] = {[FIXED] = IS_TOLD},
    };

    if (resume == FIXED_DATA && config_list_has(&c->checkpoint.exclude_from_loading, "dataloader")) return NOTHING;
    return table[earlier][resume];
}

static void compare_row(const struct config *c, int index, const struct config *earlier, const char *where,
                        enum consequence consequence, struct config_problems *p, struct str *told)
{
    const struct config_row *row = config_row(index);
    struct str now = {0}, then = {0}, origin = {0};

    config_value_yaml(c, row, &now);
    config_value_yaml(earlier, row, &then);
    config_origin_text(&c->sources->origin[index], &origin);
    /* as written: bytes that are not UTF-8 do not survive in JSON */
    if (now.failed || then.failed || origin.failed)
        config_problem(p, "%s: %s.%s: out of memory", where, row->section,
                       row->key); /* half a value must not pass for the value */
    else if (strcmp(str_text(&now), str_text(&then)) == 0)
        ;
    else if (consequence == IS_TOLD)
        str_addf(told, "%s.%s=%s (%s), but %s has %s\n", row->section, row->key, str_text(&now), str_text(&origin),
                 where, str_text(&then));
    else
        config_problem(p, "%s.%s=%s (%s), but %s has %s: a run cannot change it%s", row->section, row->key,
                       str_text(&now), str_text(&origin), where, str_text(&then),
                       row->resume == FIXED_DATA ? ", unless checkpoint.exclude_from_loading has dataloader" : "");
    str_release(&now);
    str_release(&then);
    str_release(&origin);
}

void config_compare(const struct config *c, const char *json, size_t n, const char *where, enum config_earlier earlier,
                    struct config_problems *p, struct str *told)
{
    struct config *then = NULL;
    json_error_t json_error;
    struct error e = {0};
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &json_error);

    if (!json_is_object(root)) {
        config_problem(p, "%s: the configuration in it cannot be read: %s", where,
                       root ? "not a JSON object" : json_error.text);
    } else if (config_create(&then, &e)) {
        config_problem(p, "%s: %s", where, e.message);
    } else {
        for (int i = 0; i < CONFIG_N_ROWS; i++) {
            const struct config_row *row = config_row(i);
            const json_t *value = find(root, row->section, row->key);
            enum consequence consequence = consequence_of(c, earlier, row->resume);
            struct str why = {0};

            if (consequence == NOTHING) continue;
            if (value && !set_json(then, row, value, &why))
                config_problem(p, "%s: %s.%s: %s", where, row->section, row->key, str_text(&why));
            else
                compare_row(c, i, then, where, consequence, p, told);
            str_release(&why);
        }
    }
    config_destroy(then);
    json_decref(root);
}
