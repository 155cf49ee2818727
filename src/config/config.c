/* SPDX-License-Identifier: MIT */
/* The life of a configuration: defaults, then the file, then MODULE, then arguments, then the rules. */
#include "config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "config/table.h"

/* ---- problems ---- */
void config_problem(struct config_problems *p, const char *format, ...)
{
    enum { KEPT = 200 };
    va_list args;
    char small[512];
    char *line = small;
    int n;

    p->n++;
    if (p->n > KEPT) return;
    va_start(args, format);
    n = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (n >= (int)sizeof small && (line = mem_alloc((size_t)n + 1))) {
        va_start(args, format);
        vsnprintf(line, (size_t)n + 1, format, args);
        va_end(args);
    } else {
        line = small; /* cut, where memory is out */
    }
    str_addf(&p->text, "%s%s", p->text.length ? "\n" : "", line);
    if (p->n == KEPT) str_add(&p->text, "\n(what follows is left out)");
    if (line != small) mem_free(line);
}

err_t config_problems_check(const struct config_problems *p, struct error *e)
{
    if (!p->n) return ERR_NONE;
    if (p->n == 1) return FAIL(e, ERR_CONFIG, "%s", str_text(&p->text));
    return FAIL(e, ERR_CONFIG, "%d problems:\n%s", p->n, str_text(&p->text));
}

void config_problems_release(struct config_problems *p)
{
    str_release(&p->text);
    p->n = 0;
}

/* ---- memory ---- */
err_t config_create(struct config **out, struct error *e)
{
    struct config *c = mem_zalloc(1, sizeof *c);
    struct str why = {0};

    *out = NULL;
    if (c) c->sources = mem_zalloc(1, sizeof *c->sources);
    if (!c || !c->sources) {
        config_destroy(c);
        return FAIL(e, ERR_MEMORY, "no memory for a configuration");
    }
    c->sources->file = "";
    for (int i = 0; i < CONFIG_N_ROWS; i++) {
        if (config_set_default(c, config_row(i), &why)) continue;
        FAIL(e, ERR_MEMORY, "default of %s: %s", config_row(i)->key, str_text(&why));
        str_release(&why);
        config_destroy(c);
        return ERR_MEMORY;
    }
    *out = c;
    return ERR_NONE;
}

void config_destroy(struct config *c)
{
    if (!c) return;
    if (c->sources) arena_release(&c->sources->arena);
    mem_free(c->sources);
    mem_free(c);
}

const char *config_file(const struct config *c) { return c->sources->file; }

void config_origin_text(const struct config_origin *o, struct str *out)
{
    switch (o->kind) {
    case FROM_DEFAULT: str_add(out, "default"); break;
    case FROM_FILE: str_addf(out, "%s:%d:%d", o->name, o->line, o->column); break;
    case FROM_ARGUMENT: str_addf(out, "argument %d", o->argument); break;
    case FROM_ENVIRONMENT: str_addf(out, "%s in the environment", o->name); break;
    case FROM_RULE: str_addf(out, "from %s", o->name); break;
    }
}

/* ---- finding a configuration by its name ---- */
enum { N_FOLDERS = 4 };

/* Where configs/ may be: here, beside the program, above its build folder, in the installed share folder.
 * NULL entries are skipped. */
static void config_folders(struct arena *a, char *folders[N_FOLDERS])
{
    static const char *const below[N_FOLDERS] = {NULL, "configs", "../../configs", "../share/ctitan/configs"};
    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash;

    folders[0] = arena_strdup(a, "configs");
    for (int i = 1; i < N_FOLDERS; i++) folders[i] = NULL;
    if (n <= 0) return;
    program[n] = '\0';
    slash = strrchr(program, '/');
    if (!slash) return;
    *slash = '\0';
    for (int i = 1; i < N_FOLDERS; i++) folders[i] = io_join(a, program, below[i]);
}

/* The names of the configurations in the first folder that has any, and the nearest one. */
static void list_configurations(struct arena *a, char *folders[N_FOLDERS], const char *name, struct str *out)
{
    for (int f = 0; f < N_FOLDERS; f++) {
        char **names = NULL;
        const char *nearest;
        int n = 0, n_configs = 0;
        struct error ignored = {0};

        if (!folders[f] || !io_is_folder(folders[f]) || io_list(folders[f], a, &names, &n, &ignored)) continue;
        for (int i = 0; i < n; i++) {
            if (!str_ends(names[i], ".yaml")) continue;
            names[i][strlen(names[i]) - strlen(".yaml")] = '\0';
            names[n_configs++] = names[i];
        }
        if (!n_configs) continue;
        str_addf(out, "; %s has", folders[f]);
        for (int i = 0; i < n_configs; i++) str_addf(out, "%s %s", i ? "," : "", names[i]);
        nearest = strlen(name) < CONFIG_PATH_BYTES ? str_nearest(name, (const char *const *)names, n_configs) : NULL;
        if (nearest) str_addf(out, "; did you mean %s?", nearest);
        return;
    }
}

/* The file that NAME or PATH stands for, in the arena; NULL after noting a problem. */
static const char *find_file(struct config_reader *r, const char *name)
{
    struct arena *a = &r->c->sources->arena;
    bool is_file_name = str_ends(name, ".yaml") || str_ends(name, ".yml");
    char *folders[N_FOLDERS];
    struct str text = {0};

    /* a path is itself; what is wrong with it is the reader's to say */
    if (strchr(name, '/') || (is_file_name && io_exists(name))) return arena_strdup(a, name);
    config_folders(a, folders);
    for (int i = 0; i < N_FOLDERS; i++) {
        char *file = arena_printf(a, is_file_name ? "%s" : "%s.yaml", name);
        char *path = file && folders[i] ? io_join(a, folders[i], file) : NULL;

        if (path && io_exists(path)) return path;
    }
    str_addf(&text, "there is no configuration named \"%.100s\"", name);
    list_configurations(a, folders, name, &text);
    config_problem(r->p, "%s", str_text(&text));
    str_release(&text);
    return NULL;
}

/* ---- loading ---- */
/* The rules, and the verdict. Takes c. */
static err_t finish(struct config *c, struct config_problems *p, int n_before, struct config **out, struct error *e)
{
    config_check(c, p);
    if (p->n == n_before) {
        *out = c;
        return ERR_NONE;
    }
    config_destroy(c);
    return config_problems_check(p, e);
}

err_t config_load(struct config **out, int argc, char **argv, struct config_problems *p, struct error *e)
{
    struct config_reader r = {.p = p};
    const char *name = config_argument_file(argc, argv), *module = getenv("MODULE"), *file;
    int n_before = p->n;
    err_t rc;

    *out = NULL;
    rc = config_create(&r.c, e);
    if (rc) return rc;
    if (!name) name = getenv("CONFIG");
    if (name && *name) {
        file = find_file(&r, name);
        if (file) {
            r.c->sources->file = file;
            config_read_file(&r, file);
        }
    }
    if (module && *module) {
        int row = config_row_find("model.name", strlen("model.name"));
        struct str why = {0};

        if (config_set(r.c, config_row(row), module, strlen(module), STYLE_ARGUMENT, &why))
            r.c->sources->origin[row] = (struct config_origin){.kind = FROM_ENVIRONMENT, .name = "MODULE"};
        else
            config_problem(p, "MODULE in the environment: %s", str_text(&why));
        str_release(&why);
    }
    config_read_arguments(&r, argc, argv);
    return finish(r.c, p, n_before, out, e);
}

err_t config_from_text(struct config **out, const char *yaml, size_t n, const char *name, struct config_problems *p,
                       struct error *e)
{
    struct config_reader r = {.p = p};
    int n_before = p->n;
    err_t rc;

    *out = NULL;
    rc = config_create(&r.c, e);
    if (rc) return rc;
    config_read_text(&r, yaml, n, name);
    return finish(r.c, p, n_before, out, e);
}
