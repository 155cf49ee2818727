/* SPDX-License-Identifier: MIT */
/* Removing what is no longer wanted, and nothing else; see retention.h. */
#include "checkpoint/retention.h"

#include <string.h>

#include "base/io.h"
#include "checkpoint/folder.h"

char *checkpoint_superseded_folder(struct arena *a, const char *folder) { return io_join(a, folder, "superseded"); }

/* Whether name is step-N<infix><run_id>; *plain = "step-N" in the arena, NULL when out of memory. */
static bool has_form(const char *name, const char *infix, const char *run_id, struct arena *a, char **plain)
{
    const char *at = strstr(name, infix);

    if (!at || strcmp(at + strlen(infix), run_id) != 0) return false;
    *plain = arena_strndup(a, name, (size_t)(at - name));
    return !*plain || checkpoint_step_of(*plain) >= 0;
}

err_t checkpoint_remove_leftovers(const struct file_ops *files, const char *folder, const char *run_id, struct error *e)
{
    struct arena a = {0};
    char **names;
    err_t rc;
    int n;

    rc = io_list(folder, &a, &names, &n, e);
    for (int i = 0; !rc && i < n; i++) {
        bool is_old = false;
        char *plain = NULL, *path, *home;

        if (!has_form(names[i], ".tmp-", run_id, &a, &plain)) {
            is_old = has_form(names[i], ".old-", run_id, &a, &plain);
            if (!is_old) continue;
        }
        path = io_join(&a, folder, names[i]);
        home = plain ? io_join(&a, folder, plain) : NULL;
        if (!path || !home)
            rc = FAIL(e, ERR_MEMORY, "out of memory while tidying %s", folder);
        else if (is_old && !io_exists(home))
            rc = file_rename(files, path, home, e);
        else
            rc = io_remove_tree(path, e);
    }
    arena_release(&a);
    return rc;
}

err_t checkpoint_supersede(const struct file_ops *files, const char *folder, const char *run_id, int64_t step,
                           struct str *notes, struct error *e)
{
    struct checkpoint_listed *list;
    struct arena a = {0};
    char *target = checkpoint_superseded_folder(&a, folder);
    err_t rc;
    int n;

    rc = target ? checkpoint_list(folder, &a, &list, &n, NULL, e)
                : FAIL(e, ERR_MEMORY, "out of memory while looking at %s", folder);
    for (int i = 0; !rc && i < n; i++) {
        char *name;

        if (list[i].step <= step || strcmp(list[i].run_id, run_id) != 0) continue;
        name = arena_printf(&a, "step-%lld", (long long)list[i].step);
        rc = name ? checkpoint_move_aside(files, folder, name, target, notes, e)
                  : FAIL(e, ERR_MEMORY, "out of memory while looking at %s", folder);
    }
    arena_release(&a);
    return rc;
}

static err_t remove_step(const struct file_ops *files, const char *folder, const char *run_id, int64_t step,
                         struct arena *a, struct error *e)
{
    char *path = arena_printf(a, "%s/step-%lld", folder, (long long)step);
    char *nameless = path ? arena_printf(a, "%s.tmp-%s", path, run_id) : NULL;
    err_t rc;

    if (!nameless) return FAIL(e, ERR_MEMORY, "out of memory while removing step %lld", (long long)step);
    rc = file_rename(files, path, nameless, e);
    return rc ? rc : io_remove_tree(nameless, e);
}

void checkpoint_apply_retention(const struct file_ops *files, const char *folder, const char *run_id, int64_t saved,
                                int keep, struct log *log)
{
    struct checkpoint_listed *list;
    struct arena a = {0};
    struct error why;
    bool kept_healthy = false;
    int n, n_kept = 0;

    if (keep <= 0) return;
    if (checkpoint_list(folder, &a, &list, &n, NULL, &why)) {
        log_warning(log, "checkpoint: older ones are not removed this time: %s", why.message);
        n = 0;
    }
    for (int i = n - 1; i >= 0; i--) {
        const struct checkpoint_listed *l = &list[i];
        bool is_needed;

        if (strcmp(l->run_id, run_id) != 0) continue;
        is_needed = n_kept < keep || l->step == saved || (!kept_healthy && !l->unhealthy);
        if (is_needed) {
            n_kept++;
            kept_healthy |= !l->unhealthy;
        } else if (remove_step(files, folder, run_id, l->step, &a, &why)) {
            log_warning(log, "checkpoint: step %lld is not removed: %s", (long long)l->step, why.message);
        }
    }
    arena_release(&a);
}
