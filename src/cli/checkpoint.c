/* SPDX-License-Identifier: MIT */
/* ctitan checkpoint inspect|verify PATH: what a checkpoint, or a folder of checkpoints, holds, and whether it
 * is whole. */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/str.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/manifest.h"
#include "cli/cli.h"

static const char USAGE[] =
    "usage: ctitan checkpoint inspect PATH   show what is stored: step, run, mesh, tensors\n"
    "       ctitan checkpoint verify PATH    read every byte and compare the checksums\n"
    "PATH is a checkpoint (.../step-N), a folder of checkpoints, or the dump folder of a run (job.dump_folder).\n";

static void add_bytes(struct str *out, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int k = 0;

    for (; bytes >= 1024 && k < 4; k++) bytes /= 1024;
    str_addf(out, k ? "%.2f %s" : "%.0f %s", bytes, units[k]);
}

static int64_t elements(const struct manifest_tensor *t)
{
    int64_t n = 1;

    for (int d = 0; d < t->n_dims; d++) n *= t->dim[d];
    return n;
}

static void describe_tensor(const struct manifest_tensor *t, struct str *out)
{
    struct str shape = {0};

    for (int d = 0; d < t->n_dims; d++) str_addf(&shape, "%s%lld", d ? ", " : "", (long long)t->dim[d]);
    str_addf(out, "  %-10s  %-9s  [%s]  %s", checkpoint_kind_name(t->kind), dtype_name(t->type), str_text(&shape),
             t->name);
    if (t->n_pieces > 1) str_addf(out, "  (%d pieces)", t->n_pieces);
    str_add_char(out, '\n');
    out->failed |= shape.failed;
    str_release(&shape);
}

static void describe(const struct manifest *m, const char *path, struct str *out)
{
    const struct checkpoint_state *s = &m->state;
    int64_t n_elements[CHECKPOINT_KIND_COUNT] = {0};
    double bytes = 0;

    for (int i = 0; i < m->n_tensors; i++) n_elements[m->tensors[i].kind] += elements(&m->tensors[i]);
    for (int i = 0; i < m->n_files; i++) bytes += (double)m->files[i].bytes;
    str_addf(out, "%s\n  step %lld of run %s, model %s, saved %s by ctitan %s%s\n", path, (long long)s->step, m->run_id,
             m->model, m->saved_at, m->binary, s->unhealthy ? "; UNHEALTHY: not finite" : "");
    str_addf(out, "  tokens seen %lld; next sample %lld of epoch %lld; seed %llu; %lld updates; schedule at %lld\n",
             (long long)s->tokens_seen, (long long)s->sample, (long long)s->epoch, (unsigned long long)s->seed,
             (long long)s->optimizer_step, (long long)s->schedule_step);
    str_add(out, "  mesh ");
    manifest_mesh_text(m->axes, m->n_axes, m->world, out);
    str_addf(out, "; %d files, ", m->n_files);
    add_bytes(out, bytes);
    str_addf(out, "; %lld elements of parameters, %lld of the optimizer%s\n",
             (long long)n_elements[CHECKPOINT_PARAMETERS], (long long)n_elements[CHECKPOINT_OPTIMIZER],
             n_elements[CHECKPOINT_OPTIMIZER] ? "" : " (model only)");
    for (int i = 0; i < m->n_tensors; i++) describe_tensor(&m->tensors[i], out);
}

static err_t inspect(const char *path, struct str *out, struct error *e)
{
    struct manifest m = {0};
    err_t rc = manifest_read(&m, path, e);

    if (rc) return rc;
    describe(&m, path, out);
    manifest_release(&m);
    return str_ok(out, e);
}

static err_t verify(const char *path, struct str *out, struct error *e)
{
    int64_t bytes;
    err_t rc = checkpoint_verify(path, &bytes, e);

    if (rc) return rc;
    str_addf(out, "%s: whole, ", path);
    add_bytes(out, (double)bytes);
    str_add(out, " read and compared\n");
    return str_ok(out, e);
}

/* Every step-N of a folder, also those that are not complete: what is wrong with them is what one wants to
 * know. A dump folder has them one level below, under the default of checkpoint.folder. */
static err_t each(const char *folder, err_t (*act)(const char *path, struct str *out, struct error *e), struct error *e)
{
    struct arena a = {0};
    struct str out = {0};
    char **names, *run = io_join(&a, folder, "run.json"), *below = io_join(&a, folder, "checkpoint");
    int n, n_steps = 0, n_bad = 0;
    err_t rc = run && below ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory");

    if (!rc && io_exists(run) && io_is_folder(below)) folder = below;
    if (!rc) rc = io_list(folder, &a, &names, &n, e);
    for (int i = 0; !rc && i < n; i++) {
        struct error why = {0};
        char *path = io_join(&a, folder, names[i]);

        if (!path) rc = FAIL(e, ERR_MEMORY, "out of memory while listing %s", folder);
        if (rc || checkpoint_step_of(names[i]) < 0) continue;
        n_steps++;
        if (act(path, &out, &why)) {
            n_bad++;
            fprintf(stderr, "%s: %s\n", names[i], why.message);
        }
        rc = cli_print(&out, e);
    }
    if (!rc && !n_steps)
        rc = FAIL(e, ERR_MISSING, "%s is neither a checkpoint nor a folder that holds one (step-N)", folder);
    if (!rc && n_bad) rc = FAIL(e, ERR_FORMAT, "%d of %d checkpoints in %s cannot be used", n_bad, n_steps, folder);
    str_release(&out);
    arena_release(&a);
    return rc;
}

int cli_checkpoint(int argc, char **argv, struct error *e)
{
    err_t (*act)(const char *path, struct str *out, struct error *e) = NULL;
    struct arena a = {0};
    struct str out = {0};
    char *manifest;
    err_t rc;

    if (config_wants_help(argc - 1, argv + 1)) {
        fputs(USAGE, stdout);
        return CLI_OK;
    }
    if (argc >= 2 && strcmp(argv[1], "convert") == 0)
        return cli_exit_code(FAIL(e, ERR_UNSUPPORTED, "convert (to and from Hugging Face's folders) is not built yet"));
    if (argc == 3 && strcmp(argv[1], "inspect") == 0) act = inspect;
    if (argc == 3 && strcmp(argv[1], "verify") == 0) act = verify;
    if (!act) {
        FAIL(e, ERR_USAGE, "one of inspect, verify and one path are needed\n%s", USAGE);
        return CLI_USAGE;
    }
    manifest = io_join(&a, argv[2], "manifest.json");
    if (!manifest) {
        rc = FAIL(e, ERR_MEMORY, "out of memory");
    } else if (!io_is_folder(argv[2])) {
        rc = FAIL(e, ERR_MISSING, "%s is not a folder: name a checkpoint (.../step-N) or a folder of checkpoints",
                  argv[2]);
    } else if (io_exists(manifest)) {
        rc = act(argv[2], &out, e);
        if (!rc) rc = cli_print(&out, e);
    } else {
        rc = each(argv[2], act, e);
    }
    str_release(&out);
    arena_release(&a);
    return cli_exit_code(rc);
}
