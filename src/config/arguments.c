/* SPDX-License-Identifier: MIT */
/*
 * Overrides from the command line: section.key=value, --section.key=value, --section.key value, and switches
 * as --section.flag and --section.no-flag. What follows the first = is the value, byte for byte.
 */
#include <string.h>
#include <strings.h>

#include "base/utf8.h"
#include "config/table.h"

struct argument_reader {
    struct config_reader *r;
    int argc;
    char **argv;
    int at; /* index of the argument being read */
};

/* Of a secret only the name is shown. */
static void problem(struct argument_reader *a, bool is_secret, const char *text)
{
    enum { SHOWN = 100 };
    const char *argument = a->argv[a->at];
    struct str clean = {0};
    size_t whole = strlen(argument), name = strcspn(argument, "="), n = is_secret ? name : whole;

    utf8_clean(&clean, argument, n < SHOWN ? n : SHOWN);
    if (n > SHOWN) str_add(&clean, "...");
    if (n < whole) str_add(&clean, "=***");
    config_problem(a->r->p, "argument %d, %s: %s", a->at + 1, str_text(&clean), text);
    str_release(&clean);
}

static void set(struct argument_reader *a, int index, int number, const char *value)
{
    const struct config_row *row = config_row(index);
    struct str why = {0};

    if (config_set(a->r->c, row, value, strlen(value), STYLE_ARGUMENT, &why)) {
        a->r->c->sources->origin[index] = (struct config_origin){.kind = FROM_ARGUMENT, .argument = number + 1};
    } else {
        struct str text = {0};

        str_addf(&text, "%s.%s: %s", row->section, row->key, str_text(&why));
        problem(a, row->is_secret, str_text(&text));
        str_release(&text);
    }
    str_release(&why);
}

static bool is_switch(const struct config_row *row)
{
    return row->kind == CONFIG_BOOL || row->kind == CONFIG_MAYBE_BOOL;
}

/* "metrics.no-enable-wandb" -> the row of metrics.enable_wandb, or -1 */
static int find_negated(const char *name, size_t n)
{
    struct str path = {0};
    size_t dot = n;
    int index = -1;

    while (dot && name[dot - 1] != '.') dot--;
    if (dot && n - dot > 3 && (strncmp(name + dot, "no-", 3) == 0 || strncmp(name + dot, "no_", 3) == 0)) {
        str_add_bytes(&path, name, dot);
        str_add_bytes(&path, name + dot + 3, n - dot - 3);
        index = config_row_find(str_text(&path), path.length);
        if (index >= 0 && !is_switch(config_row(index))) index = -1;
    }
    str_release(&path);
    return index;
}

static void unknown(struct argument_reader *a, const char *name, size_t n)
{
    const char *instead = config_replacement(name, n);
    const struct config_row *meant = NULL;
    struct str text = {0};

    str_add(&text, "there is no such option");
    if (instead)
        str_addf(&text, "; %s", instead);
    else
        meant = config_suggest(name, n, &text);
    problem(a, meant && meant->is_secret, str_text(&text));
    str_release(&text);
}

static bool has_value_next(const struct argument_reader *a)
{
    return a->at + 1 < a->argc && strncmp(a->argv[a->at + 1], "--", 2) != 0;
}

/* --section.key, with its value in the next argument unless it is a switch */
static void read_option_without_value(struct argument_reader *a, const char *name)
{
    size_t n = strlen(name);
    int index = config_row_find(name, n);
    const char *next = has_value_next(a) ? a->argv[a->at + 1] : NULL;

    if (index >= 0 && is_switch(config_row(index))) {
        bool takes_next = next && (strcasecmp(next, "true") == 0 || strcasecmp(next, "false") == 0);

        set(a, index, a->at, !takes_next || strcasecmp(next, "true") == 0 ? "true" : "false");
        a->at += takes_next;
    } else if (index >= 0 && next) {
        set(a, index, a->at, next);
        a->at++;
    } else if (index >= 0) {
        problem(a, false, "a value is missing after it; one that starts with -- is written with =");
    } else if (find_negated(name, n) >= 0) {
        set(a, find_negated(name, n), a->at, "false");
    } else {
        unknown(a, name, n);
        /* most likely its value: not a second problem */
        if (next && !strchr(next, '=')) a->at++;
    }
}

static void read_assignment(struct argument_reader *a, const char *name, const char *equals)
{
    size_t n = (size_t)(equals - name);
    int index = config_row_find(name, n);

    if (index >= 0)
        set(a, index, a->at, equals + 1);
    else if (find_negated(name, n) >= 0)
        problem(a, false, "a switch with no- takes no value");
    else
        unknown(a, name, n);
}

/* --config X, --config=X, --module X, --module=X: the value, or NULL; *n_arguments says how many it took */
static const char *launch_option(int argc, char **argv, int at, const char *name, int *n_arguments)
{
    size_t n = strlen(name);

    *n_arguments = 0;
    if (strncmp(argv[at], name, n) != 0) return NULL;
    if (argv[at][n] == '=') return *n_arguments = 1, argv[at] + n + 1;
    if (argv[at][n] != '\0') return NULL;
    *n_arguments = at + 1 < argc && strncmp(argv[at + 1], "--", 2) != 0 ? 2 : 1;
    return *n_arguments == 2 ? argv[at + 1] : NULL;
}

const char *config_argument_file(int argc, char **argv)
{
    const char *last = NULL, *found;
    int n;

    for (int i = 0; i < argc; i++) {
        found = launch_option(argc, argv, i, "--config", &n);
        if (found) last = found;
    }
    return last;
}

void config_read_arguments(struct config_reader *r, int argc, char **argv)
{
    struct argument_reader a = {.r = r, .argc = argc, .argv = argv};

    for (; a.at < argc; a.at++) {
        const char *argument = argv[a.at], *equals = strchr(argument, '='), *value;
        int n;

        value = launch_option(argc, argv, a.at, "--config", &n);
        if (!n) {
            value = launch_option(argc, argv, a.at, "--module", &n);
            if (value) set(&a, config_row_find("model.name", strlen("model.name")), a.at, value);
        }
        if (n) {
            if (!value || !*value) problem(&a, false, "a name is missing after it");
            a.at += n - 1;
        } else if (strncmp(argument, "--", 2) == 0 && !equals) {
            read_option_without_value(&a, argument + 2);
        } else if (equals) {
            read_assignment(&a, strncmp(argument, "--", 2) == 0 ? argument + 2 : argument, equals);
        } else if (config_replacement(argument, strlen(argument))) {
            unknown(&a, argument, strlen(argument));
        } else {
            problem(&a, false, "expected section.key=value, --section.key value or --section.flag");
        }
    }
}

bool config_wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}
