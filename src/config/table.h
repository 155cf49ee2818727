/* SPDX-License-Identifier: MIT */
/*
 * fields.def as data: one struct config_row per option. Everything that treats options alike (reading,
 * printing, comparing) walks these rows; only rules and users name members. Private to src/config.
 */
#ifndef CONFIG_TABLE_H
#define CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/str.h"
#include "config/config.h"

enum config_kind {
    CONFIG_INT,
    CONFIG_REAL,
    CONFIG_BOOL,
    CONFIG_TEXT,
    CONFIG_LIST,
    CONFIG_ENUM, /* dtypes too */
    CONFIG_MAYBE_INT,
    CONFIG_MAYBE_REAL,
    CONFIG_MAYBE_BOOL
};

enum config_resume { MAY_CHANGE, TOLD, FIXED, FIXED_DATA };

struct config_choice {
    const char *name; /* NULL ends an array of them */
    int value;
    const char *missing; /* feature that this build lacks, or NULL */
};

struct config_row {
    const char *section, *key; /* the user's name is section.key */
    enum config_kind kind;
    size_t offset;                     /* in struct config */
    int64_t def_int, min_int, max_int; /* INT, MAYBE_INT; def_int: BOOL and ENUM too */
    double def_real, min_real, max_real;
    const char *def_text;
    const struct config_choice *choices; /* ENUM */
    enum config_resume resume;
    const char *missing;
    bool is_secret;
    const char *help;
};

struct config_section {
    const char *path, *help;
};

/* The number of options, and of sections. */
enum {
    CONFIG_N_ROWS = 0
#define COUNT(...) +1
#define INT COUNT
#define REAL COUNT
#define BOOL COUNT
#define TEXT COUNT
#define SECRET COUNT
#define LIST COUNT
#define ENUM COUNT
#define DTYPE COUNT
#define MAYBE_INT COUNT
#define MAYBE_REAL COUNT
#define MAYBE_BOOL COUNT
#include "config/fields.def"
    ,
    CONFIG_N_SECTIONS = 0
#define SECTION COUNT
#include "config/fields.def"
#undef COUNT
};

extern const struct config_section config_sections[CONFIG_N_SECTIONS];

/* The rows of one section; the order of sections and rows is that of fields.def. */
const struct config_row *config_section_rows(int section, int *n);
const struct config_row *config_row(int i); /* 0 <= i < CONFIG_N_ROWS */

/* Names are compared with - and _ alike. -1: there is none. */
int config_row_find(const char *path, size_t n);
int config_section_find(const char *path, size_t n);
bool config_is_section_prefix(const char *path, size_t n); /* "quantize" of "quantize.linear.float8" */
bool config_name_equal(const char *name, const char *written, size_t n);
enum { CONFIG_PATH_BYTES = 128 };
void config_row_path(const struct config_row *row, char out[CONFIG_PATH_BYTES]);

/* Appends "; did you mean training.steps?" where some option's name is near, and returns that option; NULL: none is. */
const struct config_row *config_suggest(const char *path, size_t n, struct str *out);
/* What to use instead of a torchtitan option that ctitan does not have (replaced.def), or NULL. */
const char *config_replacement(const char *path, size_t n);

/* ---- where values came from (config.c) ---- */
enum config_origin_kind { FROM_DEFAULT, FROM_FILE, FROM_ARGUMENT, FROM_ENVIRONMENT, FROM_RULE };
struct config_origin {
    enum config_origin_kind kind;
    const char *name; /* file; variable of the environment; the option that decided it */
    int line, column; /* of a file, from 1 */
    int argument;     /* its number, from 1 */
};
struct config_sources {
    struct arena arena;
    const char *file;
    struct config_origin origin[CONFIG_N_ROWS];
};
/* "default", "configs/a.yaml:3:4", "argument 2", "MODULE in the environment", "from training.dtype" */
void config_origin_text(const struct config_origin *o, struct str *out);

/* All options at their defaults. */
err_t config_create(struct config **out, struct error *e) MUST_CHECK;

/* ---- values (value.c) ---- */
enum config_style { STYLE_PLAIN, STYLE_QUOTED, STYLE_ARGUMENT }; /* how a text was written */

/* Stores the value that `text` stands for. On failure nothing changes and `why` says what is wrong with it.
 */
bool config_set(struct config *c, const struct config_row *row, const char *text, size_t n, enum config_style style,
                struct str *why);
/* The same for a whole list; the items are copied. */
bool config_set_items(struct config *c, const struct config_row *row, const char *const *items, int n, struct str *why);
bool config_set_default(struct config *c, const struct config_row *row, struct str *why);

void config_value_yaml(const struct config *c, const struct config_row *row, struct str *out); /* secrets too */
bool config_value_equal(const struct config *a, const struct config *b, const struct config_row *row);
/* The feature that the present value needs and this build lacks, or NULL. */
const char *config_value_missing(const struct config *c, const struct config_row *row, const struct config *defaults);
void config_text_yaml(const char *text, struct str *out); /* quoted where YAML needs it */

/* ---- scalars by the core schema (scalar.c) ---- */
bool config_is_null(const char *text);
bool config_is_one_of(const char *text, const char *const *names); /* names end with NULL */
bool config_list_has(const struct config_list *list, const char *text);
bool config_parse_int(const char *text, int64_t *out, bool *is_out_of_range);
bool config_parse_real(const char *text, double *out);

/* ---- readers ---- */
struct config_reader {
    struct config *c;
    struct config_problems *p;
};
void config_read_file(struct config_reader *r, const char *path);
void config_read_text(struct config_reader *r, const char *yaml, size_t n, const char *name);
/* A list written as YAML flow, [a, "b, c"]. */
bool config_read_flow(struct config *c, const struct config_row *row, const char *text, struct str *why);
void config_read_arguments(struct config_reader *r, int argc, char **argv);
const char *config_argument_file(int argc, char **argv);        /* what the last --config names, or NULL */
void config_check(struct config *c, struct config_problems *p); /* rules across options */

#endif
