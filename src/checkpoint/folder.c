/* SPDX-License-Identifier: MIT */
/* Which checkpoints a folder holds, and which is the one to load; see folder.h. */
#include "checkpoint/folder.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "checkpoint/manifest.h"

int64_t checkpoint_step_of(const char *name)
{
    int64_t step = 0;

    if (!str_starts(name, "step-")) return -1;
    name += 5;
    if (!*name || (name[0] == '0' && name[1])) return -1;
    for (; *name; name++) {
        if (*name < '0' || *name > '9' || step > (INT64_MAX - 9) / 10) return -1;
        step = 10 * step + (*name - '0');
    }
    return step;
}

static void note(struct str *notes, const char *path, const char *text)
{
    if (notes) str_addf(notes, "%s passed over: %s\n", path, text);
}

static err_t check_files(const struct manifest *m, const char *path, struct error *e)
{
    struct arena a = {0};
    err_t rc = ERR_NONE;

    for (int i = 0; !rc && i < m->n_files; i++) {
        char *file = io_join(&a, path, m->files[i].name);
        int64_t bytes;

        if (!file) {
            rc = FAIL(e, ERR_MEMORY, "out of memory while looking at %s", path);
            continue;
        }
        bytes = io_file_bytes(file);
        if (bytes < 0)
            rc = FAIL(e, ERR_FORMAT, "%s is missing", file);
        else if ((uint64_t)bytes != m->files[i].bytes)
            rc = FAIL(e, ERR_FORMAT, "%s has %lld bytes instead of %llu", file, (long long)bytes,
                      (unsigned long long)m->files[i].bytes);
    }
    arena_release(&a);
    return rc;
}

/* Fills out if the folder at `path` is a complete checkpoint. step -1: any; else it must be that step's. */
static err_t examine(const char *path, int64_t step, struct checkpoint_found *out, struct error *e)
{
    struct manifest m = {0};
    err_t rc;

    memset(out, 0, sizeof *out);
    out->step = -1;
    if (strlen(path) >= sizeof out->path)
        return FAIL(e, ERR_RANGE, "the path %s is longer than %zu bytes", path, sizeof out->path - 1);
    rc = manifest_read(&m, path, e);
    if (rc) return rc;
    if (step >= 0 && m.state.step != step)
        rc = FAIL(e, ERR_FORMAT, "%s: its manifest says step %lld: was the folder renamed?", path,
                  (long long)m.state.step);
    if (!rc) rc = check_files(&m, path, e);
    if (rc) goto out;
    out->step = m.state.step;
    snprintf(out->path, sizeof out->path, "%s", path);
    snprintf(out->run_id, sizeof out->run_id, "%s", m.run_id);
    snprintf(out->model, sizeof out->model, "%s", m.model);
    snprintf(out->saved_at, sizeof out->saved_at, "%s", m.saved_at);
    out->unhealthy = m.state.unhealthy;
    for (int i = 0; i < m.n_tensors; i++) out->has_optimizer |= m.tensors[i].kind == CHECKPOINT_OPTIMIZER;
out:
    manifest_release(&m);
    return rc;
}

/* The names step-N in a folder by rising N; *steps and *names live in the arena. */
static err_t list_steps(const char *folder, struct arena *a, int64_t **steps, char ***paths, int *n, struct error *e)
{
    char **names;
    int n_names;
    err_t rc;

    *n = 0;
    if (!io_exists(folder)) return ERR_NONE;
    rc = io_list(folder, a, &names, &n_names, e);
    if (rc) return rc;
    *steps = arena_array(a, (size_t)n_names + 1, sizeof **steps);
    *paths = arena_array(a, (size_t)n_names + 1, sizeof **paths);
    if (!*steps || !*paths) return FAIL(e, ERR_MEMORY, "out of memory while listing %s", folder);
    for (int i = 0; i < n_names; i++) {
        int64_t step = checkpoint_step_of(names[i]);
        char *path = step < 0 ? NULL : io_join(a, folder, names[i]);
        int k = *n;

        if (step < 0) continue;
        if (!path) return FAIL(e, ERR_MEMORY, "out of memory while listing %s", folder);
        for (; k > 0 && (*steps)[k - 1] > step; k--) {
            (*steps)[k] = (*steps)[k - 1];
            (*paths)[k] = (*paths)[k - 1];
        }
        (*steps)[k] = step;
        (*paths)[k] = path;
        (*n)++;
    }
    return ERR_NONE;
}

static err_t find_step(const char *folder, int64_t load_step, const char *run_id, struct checkpoint_found *out,
                       struct error *e)
{
    struct arena a = {0};
    struct str have = {0};
    int64_t *steps;
    char **paths;
    err_t rc;
    int n;

    rc = list_steps(folder, &a, &steps, &paths, &n, e);
    if (rc) goto out;
    for (int i = 0; i < n; i++) {
        str_addf(&have, "%s%lld", i ? ", " : "", (long long)steps[i]);
        if (steps[i] != load_step) continue;
        rc = examine(paths[i], load_step, out, e);
        if (!rc && run_id && strcmp(out->run_id, run_id) != 0)
            rc = FAIL(e, ERR_MISSING,
                      "%s belongs to run %s, not to this run %s: to start from it, set "
                      "checkpoint.initial_load_path",
                      paths[i], out->run_id, run_id);
        goto out;
    }
    rc = FAIL(e, ERR_MISSING, "%s holds no step-%lld (checkpoint.load_step); it holds %s%s", folder,
              (long long)load_step, n ? "steps " : "none", str_text(&have));
out:
    if (rc) out->step = -1;
    str_release(&have);
    arena_release(&a);
    return rc;
}

/* The newest healthy one, else the newest. */
static err_t find_newest(const char *folder, const char *run_id, struct checkpoint_found *out, struct str *notes,
                         struct error *e)
{
    struct checkpoint_found *now = mem_zalloc(1, sizeof *now);
    struct error why = {0};
    struct arena a = {0};
    const char *damaged = NULL;
    int64_t *steps;
    char **paths;
    err_t rc;
    int n;

    rc = now ? list_steps(folder, &a, &steps, &paths, &n, e)
             : FAIL(e, ERR_MEMORY, "out of memory while looking for a checkpoint in %s", folder);
    if (rc) goto out;
    for (int i = n - 1; i >= 0 && (out->step < 0 || out->unhealthy); i--) {
        rc = examine(paths[i], steps[i], now, &why);
        if (rc == ERR_MEMORY) {
            if (e) *e = why;
            goto out;
        }
        if (rc) {
            note(notes, paths[i], why.message);
            damaged = paths[i];
        } else if (run_id && strcmp(now->run_id, run_id) != 0) {
            note(notes, paths[i], "it belongs to another run");
        } else if (!now->unhealthy) {
            if (out->step >= 0) note(notes, out->path, "its loss, gradient or parameters are not finite");
            *out = *now;
        } else if (out->step < 0) {
            *out = *now;
        } else {
            note(notes, paths[i], "its loss, gradient or parameters are not finite");
        }
    }
    rc = ERR_NONE;
    if (out->step < 0 && damaged)
        rc = FAIL(e, ERR_FORMAT,
                  "%s holds no checkpoint that can be loaded, but %s: damaged, or written by another program; "
                  "move it away to start anew",
                  folder, damaged);
out:
    mem_free(now);
    arena_release(&a);
    return rc;
}

err_t checkpoint_find(const char *folder, int64_t load_step, const char *run_id, struct checkpoint_found *out,
                      struct str *notes, struct error *e)
{
    memset(out, 0, sizeof *out);
    out->step = -1;
    return load_step < 0 ? find_newest(folder, run_id, out, notes, e) : find_step(folder, load_step, run_id, out, e);
}

err_t checkpoint_find_initial(const char *path, struct checkpoint_found *out, struct str *notes, struct error *e)
{
    struct arena a = {0};
    char *manifest = io_join(&a, path, "manifest.json");
    err_t rc;

    memset(out, 0, sizeof *out);
    out->step = -1;
    if (!manifest)
        rc = FAIL(e, ERR_MEMORY, "out of memory while looking at %s", path);
    else if (io_exists(manifest))
        rc = examine(path, -1, out, e);
    else
        rc = find_newest(path, NULL, out, notes, e);
    if (!rc && out->step < 0)
        rc = FAIL(e, ERR_MISSING, "%s is neither a checkpoint nor a folder that holds one (step-N)", path);
    arena_release(&a);
    return rc;
}

err_t checkpoint_list(const char *folder, struct arena *a, struct checkpoint_listed **out, int *n, struct str *notes,
                      struct error *e)
{
    struct checkpoint_found *now = mem_zalloc(1, sizeof *now);
    struct error why = {0};
    int64_t *steps;
    char **paths;
    int n_steps;
    err_t rc;

    *n = 0;
    *out = NULL;
    rc = now ? list_steps(folder, a, &steps, &paths, &n_steps, e)
             : FAIL(e, ERR_MEMORY, "out of memory while listing %s", folder);
    if (rc || !n_steps) goto out;
    *out = arena_array(a, (size_t)n_steps, sizeof **out);
    if (!*out) rc = FAIL(e, ERR_MEMORY, "out of memory while listing %s", folder);
    for (int i = 0; !rc && i < n_steps; i++) {
        struct checkpoint_listed *l = &(*out)[*n];

        rc = examine(paths[i], steps[i], now, &why);
        if (rc == ERR_MEMORY) {
            if (e) *e = why;
            break;
        }
        if (rc) {
            note(notes, paths[i], why.message);
            rc = ERR_NONE;
            continue;
        }
        *l = (struct checkpoint_listed){now->step, arena_strdup(a, now->run_id), now->unhealthy};
        if (!l->run_id) rc = FAIL(e, ERR_MEMORY, "out of memory while listing %s", folder);
        (*n)++;
    }
out:
    mem_free(now);
    return rc;
}

err_t checkpoint_move_aside(const struct file_ops *files, const char *folder, const char *name,
                            const char *target_folder, struct str *notes, struct error *e)
{
    struct arena a = {0};
    char *from = io_join(&a, folder, name), *to = io_join(&a, target_folder, name);
    err_t rc;

    for (int k = 2; to && io_exists(to); k++) to = arena_printf(&a, "%s/%s-%d", target_folder, name, k);
    if (!from || !to) {
        rc = FAIL(e, ERR_MEMORY, "out of memory while moving %s/%s", folder, name);
        goto out;
    }
    rc = io_make_folders(target_folder, e);
    if (!rc) rc = file_rename(files, from, to, e);
    if (!rc) rc = file_sync_folder(files, target_folder, e);
    if (!rc) rc = file_sync_folder(files, folder, e);
    if (!rc && notes) str_addf(notes, "%s moved to %s\n", from, to);
out:
    arena_release(&a);
    return rc;
}

err_t checkpoint_set_aside(const char *folder, const char *run_id, const char *runs_folder, struct str *notes,
                           struct error *e)
{
    struct checkpoint_found *now = mem_zalloc(1, sizeof *now);
    struct error why = {0};
    struct arena a = {0};
    int64_t *steps;
    char **paths;
    err_t rc;
    int n;

    rc = now ? list_steps(folder, &a, &steps, &paths, &n, e)
             : FAIL(e, ERR_MEMORY, "out of memory while looking at %s", folder);
    for (int i = 0; !rc && i < n; i++) {
        char *target;

        rc = examine(paths[i], steps[i], now, &why);
        if (rc == ERR_MEMORY) {
            if (e) *e = why;
            break;
        }
        if (!rc && strcmp(now->run_id, run_id) == 0) continue;
        target = arena_printf(&a, "%s/%s/checkpoint", runs_folder, rc ? "unknown" : now->run_id);
        rc = target ? checkpoint_move_aside(NULL, folder, strrchr(paths[i], '/') + 1, target, notes, e)
                    : FAIL(e, ERR_MEMORY, "out of memory while moving %s", paths[i]);
    }
    mem_free(now);
    arena_release(&a);
    return rc;
}
