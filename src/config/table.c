/* SPDX-License-Identifier: MIT */
/* The rows made from fields.def, and finding one by the name that a user wrote. */
#include "config/table.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define BUILT NULL

/* const struct config_choice <type>[]: the names of each enumeration's values */
#define CHOICES(type, ...) static const struct config_choice type[] = {__VA_ARGS__{NULL, 0, NULL}};
#define DTYPES_ALLOWED(list, ...) static const struct config_choice list[] = {__VA_ARGS__{NULL, 0, NULL}};
#define CHOICE(id, name, status) {name, (int)id, status},
#include "config/fields.def"

const struct config_section config_sections[CONFIG_N_SECTIONS] = {
#define SECTION(name, path, help) {path, help},
#include "config/fields.def"
};

enum section_index {
#define SECTION(name, path, help) SECTION_##name,
#include "config/fields.def"
};

/* Each section is a block with its own S (struct), PATH and BASE, so that a row needs to say only its name.
 */
#define SECTION(name, path, help)                                                                                      \
    case SECTION_##name: {                                                                                             \
        typedef struct config_##name S;                                                                                \
        enum { BASE = offsetof(struct config, name) };                                                                 \
        static const char PATH[] = path;                                                                               \
        static const struct config_row rows[] = {
#define END(name)                                                                                                      \
    }                                                                                                                  \
    ;                                                                                                                  \
    *n = (int)(sizeof rows / sizeof *rows);                                                                            \
    return rows;                                                                                                       \
    }
#define ROW(kind_, name, resume_, status, help_)                                                                       \
    .section = PATH, .key = #name, .kind = kind_, .offset = BASE + offsetof(S, name), .resume = resume_,               \
    .missing = status, .help = help_
#define INT(name, def, min, max, resume, status, help)                                                                 \
    {ROW(CONFIG_INT, name, resume, status, help), .def_int = def, .min_int = min, .max_int = max},
#define REAL(name, def, min, max, resume, status, help)                                                                \
    {ROW(CONFIG_REAL, name, resume, status, help), .def_real = def, .min_real = min, .max_real = max},
#define BOOL(name, def, resume, status, help) {ROW(CONFIG_BOOL, name, resume, status, help), .def_int = def},
#define TEXT(name, def, resume, status, help) {ROW(CONFIG_TEXT, name, resume, status, help), .def_text = def},
#define SECRET(name, resume, status, help)                                                                             \
    {ROW(CONFIG_TEXT, name, resume, status, help), .def_text = "", .is_secret = true},
#define LIST(name, def, resume, status, help) {ROW(CONFIG_LIST, name, resume, status, help), .def_text = def},
#define ENUM(name, type, def, resume, status, help)                                                                    \
    {ROW(CONFIG_ENUM, name, resume, status, help), .def_int = (int)def, .choices = type},
#define DTYPE(name, list, def, resume, status, help)                                                                   \
    {ROW(CONFIG_ENUM, name, resume, status, help), .def_int = (int)def, .choices = list},
#define MAYBE_INT(name, min, max, resume, status, help)                                                                \
    {ROW(CONFIG_MAYBE_INT, name, resume, status, help), .min_int = min, .max_int = max},
#define MAYBE_REAL(name, min, max, resume, status, help)                                                               \
    {ROW(CONFIG_MAYBE_REAL, name, resume, status, help), .min_real = min, .max_real = max},
#define MAYBE_BOOL(name, resume, status, help) {ROW(CONFIG_MAYBE_BOOL, name, resume, status, help)},

const struct config_row *config_section_rows(int section, int *n)
{
    switch ((enum section_index)section) {
#include "config/fields.def"
    }
    BUG("no section %d", section);
}

const struct config_row *config_row(int i)
{
    for (int s = 0; s < CONFIG_N_SECTIONS; s++) {
        int n;
        const struct config_row *rows = config_section_rows(s, &n);

        if (i < n) return &rows[i];
        i -= n;
    }
    BUG("no option %d", i);
}

/* - and _ are alike in what is written */
static bool begins_with(const char *name, const char *written, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = written[i] == '-' ? '_' : written[i];

        if (!name[i] || name[i] != c) return false;
    }
    return true;
}

bool config_name_equal(const char *name, const char *written, size_t n)
{
    return begins_with(name, written, n) && name[n] == '\0';
}

/* "section.key" against the text as written, without building it */
static bool row_has_path(const struct config_row *row, const char *path, size_t n)
{
    size_t length = strlen(row->section);

    return n > length + 1 && path[length] == '.' && config_name_equal(row->section, path, length) &&
           config_name_equal(row->key, path + length + 1, n - length - 1);
}

int config_row_find(const char *path, size_t n)
{
    int index = 0;

    for (int s = 0; s < CONFIG_N_SECTIONS; s++) {
        int n_rows;
        const struct config_row *rows = config_section_rows(s, &n_rows);

        for (int i = 0; i < n_rows; i++, index++)
            if (row_has_path(&rows[i], path, n)) return index;
    }
    return -1;
}

int config_section_find(const char *path, size_t n)
{
    for (int s = 0; s < CONFIG_N_SECTIONS; s++)
        if (config_name_equal(config_sections[s].path, path, n)) return s;
    return -1;
}

bool config_is_section_prefix(const char *path, size_t n)
{
    for (int s = 0; s < CONFIG_N_SECTIONS; s++)
        if (begins_with(config_sections[s].path, path, n) && config_sections[s].path[n] == '.') return true;
    return false;
}

void config_row_path(const struct config_row *row, char out[CONFIG_PATH_BYTES])
{
    int n = snprintf(out, CONFIG_PATH_BYTES, "%s.%s", row->section, row->key);

    BUG_ON(n >= CONFIG_PATH_BYTES);
}

const struct config_row *config_suggest(const char *path, size_t n, struct str *out)
{
    char wanted[CONFIG_PATH_BYTES], whole[CONFIG_N_ROWS][CONFIG_PATH_BYTES];
    const char *candidates[CONFIG_N_ROWS], *nearest = NULL, *key;
    int meant = 0;
    int best = INT_MAX;

    if (n >= sizeof wanted) return NULL;
    for (size_t i = 0; i < n; i++) wanted[i] = path[i] == '-' ? '_' : path[i];
    wanted[n] = '\0';
    key = strrchr(wanted, '.');
    key = key ? key + 1 : wanted;
    for (int i = 0; i < CONFIG_N_ROWS; i++) {
        config_row_path(config_row(i), whole[i]);
        candidates[i] = whole[i];
        /* the right key in the wrong section, which no distance between whole names would find */
        if (strcmp(config_row(i)->key, key) == 0 && str_distance(wanted, whole[i]) < best) {
            nearest = whole[i];
            best = str_distance(wanted, whole[i]);
        }
    }
    if (!nearest) nearest = str_nearest(wanted, candidates, CONFIG_N_ROWS);
    if (!nearest) return NULL;
    str_addf(out, "; did you mean %s?", nearest);
    while (candidates[meant] != nearest) meant++;
    return config_row(meant);
}

static const struct {
    const char *path; /* a trailing * stands for anything */
    const char *instead;
} replaced[] = {
#define REPLACED(path, instead) {path, instead},
#include "config/replaced.def"
#undef REPLACED
};

const char *config_replacement(const char *path, size_t n)
{
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        const char *name = replaced[i].path;
        size_t length = strlen(name);

        if (name[length - 1] == '*') {
            if (n >= length - 1 && strncmp(name, path, length - 1) == 0) return replaced[i].instead;
        } else if (config_name_equal(name, path, n)) {
            return replaced[i].instead;
        }
    }
    return NULL;
}
