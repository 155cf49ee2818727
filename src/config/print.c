/* SPDX-License-Identifier: MIT */
/* The configuration and its options as people and programs read them: YAML, JSON, --help, docs/config.md. */
#include <string.h>

#include "base/json.h"
#include "config/table.h"

static const char SECRET_SHOWN[] = "***";

static const void *member(const struct config *c, const struct config_row *row)
{
    return (const char *)c + row->offset;
}

static bool is_hidden(const struct config *c, const struct config_row *row)
{
    return row->is_secret && **(const char *const *)member(c, row);
}

/* ---- YAML ---- */
void config_print(const struct config *c, bool with_origins, struct str *out)
{
    enum { ORIGIN_COLUMN = 60 };
    int index = 0;

    for (int s = 0; s < CONFIG_N_SECTIONS; s++) {
        int n;
        const struct config_row *rows = config_section_rows(s, &n);

        str_addf(out, "%s:\n", config_sections[s].path);
        for (int i = 0; i < n; i++, index++) {
            size_t start = out->length;

            str_addf(out, "  %s: ", rows[i].key);
            if (is_hidden(c, &rows[i]))
                str_addf(out, "\"%s\"", SECRET_SHOWN);
            else
                config_value_yaml(c, &rows[i], out);
            if (with_origins) {
                do str_add_char(out, ' ');
                while (!out->failed && out->length - start < ORIGIN_COLUMN);
                str_add(out, "# ");
                config_origin_text(&c->sources->origin[index], out);
            }
            str_add_char(out, '\n');
        }
    }
}

/* ---- JSON ---- */
static void value_json(const struct config *c, const struct config_row *row, struct str *out)
{
    const void *at = member(c, row);
    const struct config_list *list = at;
    struct str text = {0};

    switch (row->kind) {
    case CONFIG_REAL: json_number(out, *(const double *)at); return;
    case CONFIG_TEXT: json_text(out, is_hidden(c, row) ? SECRET_SHOWN : *(const char *const *)at); return;
    case CONFIG_LIST:
        json_open(out, '[');
        for (int i = 0; i < list->n; i++) json_text(out, list->item[i]);
        json_close(out, ']');
        return;
    case CONFIG_ENUM:
        config_value_yaml(c, row, &text);
        json_text(out, str_text(&text));
        break;
    default: /* numbers, true, false and null are written alike in both */
        config_value_yaml(c, row, &text);
        json_raw(out, str_text(&text));
        break;
    }
    if (text.failed) out->failed = true;
    str_release(&text);
}

/* The number of leading dotted parts that two paths share, and where the next part begins. */
static size_t shared_parts(const char *a, const char *b)
{
    size_t shared = 0;

    for (size_t i = 0;; i++) {
        bool ends_a = a[i] == '.' || !a[i], ends_b = b[i] == '.' || !b[i];

        if (ends_a && ends_b) shared = i + (a[i] == '.' && b[i] == '.');
        if (a[i] != b[i] || !a[i]) return shared;
    }
}

static int count_parts(const char *path)
{
    int n = *path != '\0';

    for (; *path; path++) n += *path == '.';
    return n;
}

void config_write_json(const struct config *c, struct str *out)
{
    const char *open = ""; /* the section that is open */

    json_open(out, '{');
    for (int s = 0; s < CONFIG_N_SECTIONS; s++) {
        const char *path = config_sections[s].path;
        size_t shared = shared_parts(open, path);
        int n;
        const struct config_row *rows = config_section_rows(s, &n);

        for (int i = count_parts(open + shared); i > 0; i--) json_close(out, '}');
        for (const char *part = path + shared; *part;) {
            size_t length = strcspn(part, ".");
            char name[CONFIG_PATH_BYTES] = {0};

            memcpy(name, part, length);
            json_key(out, name);
            json_open(out, '{');
            part += length + (part[length] == '.');
        }
        for (int i = 0; i < n; i++) {
            json_key(out, rows[i].key);
            value_json(c, &rows[i], out);
        }
        open = path;
    }
    for (int i = count_parts(open); i > 0; i--) json_close(out, '}');
    json_close(out, '}');
}

/* ---- what an option takes ---- */
static void add_kind(const struct config_row *row, struct str *out)
{
    static const char *const names[] = {[CONFIG_INT] = "integer",
                                        [CONFIG_REAL] = "number",
                                        [CONFIG_BOOL] = "true|false",
                                        [CONFIG_TEXT] = "text",
                                        [CONFIG_LIST] = "list",
                                        [CONFIG_MAYBE_INT] = "integer or null",
                                        [CONFIG_MAYBE_REAL] = "number or null",
                                        [CONFIG_MAYBE_BOOL] = "true|false|null"};

    if (row->kind != CONFIG_ENUM) {
        str_add(out, names[row->kind]);
        return;
    }
    for (const struct config_choice *choice = row->choices; choice->name; choice++)
        str_addf(out, "%s%s", choice == row->choices ? "" : "|", choice->name);
}

static void add_range(const struct config_row *row, struct str *out)
{
    char low[32], high[32];

    if (row->kind == CONFIG_INT || row->kind == CONFIG_MAYBE_INT) {
        if (row->min_int > INT64_MIN) str_addf(out, ", from %lld", (long long)row->min_int);
        if (row->max_int < INT64_MAX) str_addf(out, ", to %lld", (long long)row->max_int);
    } else if (row->kind == CONFIG_REAL || row->kind == CONFIG_MAYBE_REAL) {
        json_shortest(row->min_real, low);
        json_shortest(row->max_real, high);
        str_addf(out, ", from %s to %s", low, high);
    }
}

/* Which features of an option this build lacks: "not built: tensor parallelism", "full: not built", or
 * nothing. */
static void add_missing(const struct config_row *row, const char *before, struct str *out)
{
    int n = 0;

    if (row->missing) {
        str_addf(out, "%snot built yet: %s", before, row->missing);
    } else if (row->kind == CONFIG_ENUM) {
        for (const struct config_choice *choice = row->choices; choice->name; choice++)
            if (choice->missing) str_addf(out, "%s%s", n++ ? ", " : before, choice->name);
        if (n) str_add(out, n == 1 ? " is not built yet" : " are not built yet");
    }
}

void config_help(struct str *out)
{
    struct config *defaults;
    struct error e = {0};

    if (config_create(&defaults, &e)) {
        out->failed = true;
        return;
    }
    str_add(out, "--config NAME|PATH   read configs/NAME.yaml, or the file; CONFIG in the environment does the same\n"
                 "--module NAME        model.name; MODULE in the environment does the same\n"
                 "section.key=value    any option below; also --section.key=value and --section.key value\n"
                 "--section.flag       a true|false option; --section.no-flag turns it off\n"
                 "The last one given wins. Lists are separated by commas, or written as [a, \"b, c\"].\n");
    for (int s = 0; s < CONFIG_N_SECTIONS; s++) {
        int n;
        const struct config_row *rows = config_section_rows(s, &n);

        str_addf(out, "\n%s: %s\n", config_sections[s].path, config_sections[s].help);
        for (int i = 0; i < n; i++) {
            str_addf(out, "  %s.%s (", rows[i].section, rows[i].key);
            add_kind(&rows[i], out);
            str_add(out, ") = ");
            config_value_yaml(defaults, &rows[i], out);
            str_addf(out, "\n      %s", rows[i].help);
            add_missing(&rows[i], ". ", out);
            str_add_char(out, '\n');
        }
    }
    config_destroy(defaults);
}

static const char DOCS_HEAD[] =
    "# Options\n"
    "\n"
    "`ctitan config print --config NAME` shows what a configuration comes to and where each value came "
    "from;\n"
    "`ctitan config check` reports every problem at once, without a run.\n"
    "\n"
    "Options are written in YAML (1.2, core schema), in a file named by `--config`, and on the command line "
    "as\n"
    "`section.key=value`, `--section.key=value` or `--section.key value`; a switch also as `--section.flag` "
    "and\n"
    "`--section.no-flag`. `-` and `_` are the same in names. The last one given wins: the file, then "
    "`MODULE` of\n"
    "the environment (it sets `model.name`), then the arguments in their order. `include: base.yaml` at the "
    "top\n"
    "of a file reads other files first, by names relative to it; its own keys override theirs.\n"
    "\n"
    "Lists are YAML lists in a file and separated by commas on the command line; an entry that holds a comma "
    "is\n"
    "written in brackets and quotes there: `'training.dataset=[\"a,b.txt\"]'`. A text is taken as it "
    "stands:\n"
    "`no`, `010` and `1:30` are those texts. Sizes that a model's flavor decides may be overridden; `null` "
    "leaves\n"
    "them to the flavor.\n"
    "\n"
    "*On resume*: `fixed` options must be the same when a run goes on from a checkpoint; `data` options "
    "too,\n"
    "unless `checkpoint.exclude_from_loading` has `dataloader`; a change of a `told` one is allowed and "
    "logged with\n"
    "both values. An option or value that is not built yet is listed by `config check`, and `train` refuses it\n"
    "by name.\n";

/* A table cell: | would end it. */
static void add_cell(struct str *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|') str_add_char(out, '\\');
        str_add_char(out, *text);
    }
}

void config_docs(struct str *out)
{
    static const char *const resumes[] = {[MAY_CHANGE] = "", [TOLD] = "told", [FIXED] = "fixed", [FIXED_DATA] = "data"};
    struct config *defaults;
    struct error e = {0};

    if (config_create(&defaults, &e)) {
        out->failed = true;
        return;
    }
    str_add(out, DOCS_HEAD);
    for (int s = 0; s < CONFIG_N_SECTIONS; s++) {
        int n;
        const struct config_row *rows = config_section_rows(s, &n);

        str_addf(out, "\n## %s\n%s.\n\n| option | takes | default | on resume | meaning |\n|---|---|---|---|---|\n",
                 config_sections[s].path, config_sections[s].help);
        for (int i = 0; i < n; i++) {
            struct str kind = {0}, value = {0}, help = {0};

            add_kind(&rows[i], &kind);
            add_range(&rows[i], &kind);
            config_value_yaml(defaults, &rows[i], &value);
            str_add(&help, rows[i].help);
            add_missing(&rows[i], ". *", &help);
            if (strstr(str_text(&help), ". *")) str_add_char(&help, '*');
            str_addf(out, "| `%s` | ", rows[i].key);
            add_cell(out, str_text(&kind));
            str_add(out, " | `");
            add_cell(out, str_text(&value));
            str_addf(out, "` | %s | ", resumes[rows[i].resume]);
            add_cell(out, str_text(&help));
            str_add(out, " |\n");
            str_release(&kind);
            str_release(&value);
            str_release(&help);
        }
    }
    config_destroy(defaults);
}

/* ---- what this build lacks ---- */
int config_missing_features(const struct config *c, struct str *out)
{
    struct config *defaults;
    struct error e = {0};
    int n = 0;

    if (config_create(&defaults, &e)) {
        out->failed = true;
        return 0;
    }
    for (int i = 0; i < CONFIG_N_ROWS; i++) {
        const struct config_row *row = config_row(i);
        const char *missing = config_value_missing(c, row, defaults);

        if (!missing) continue;
        str_addf(out, "%s.%s=", row->section, row->key);
        if (is_hidden(c, row))
            str_add(out, SECRET_SHOWN);
        else
            config_value_yaml(c, row, out);
        str_add(out, " (");
        config_origin_text(&c->sources->origin[i], out);
        str_addf(out, "): not built yet: %s\n", missing);
        n++;
    }
    config_destroy(defaults);
    return n;
}
