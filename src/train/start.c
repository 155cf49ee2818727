/* SPDX-License-Identifier: MIT */
/* Deciding how a life of the run begins; see start.h. */
#include "train/start.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/manifest.h"
#include "sinks/kinds.h"

/* What travels from rank 0. */
struct decision {
    err_t rc;
    char message[ERROR_MESSAGE_BYTES];
    struct train_start start;
};

static unsigned parts_wanted(const struct config *cfg, struct error *e, err_t *rc)
{
    unsigned parts = CHECKPOINT_PARTS_ALL;

    for (int i = 0; i < cfg->checkpoint.exclude_from_loading.n; i++) {
        const char *name = cfg->checkpoint.exclude_from_loading.item[i];
        enum checkpoint_part part;

        if (checkpoint_part_parse(name, &part))
            parts &= ~(unsigned)part;
        else
            *rc = FAIL(e, ERR_CONFIG, "checkpoint.exclude_from_loading=%s: it takes optimizer, lr_scheduler, dataloader, train_state", name);
    }
    return parts;
}

/* Why the checkpoint at `path` cannot be resumed with this configuration; "" if it can. */
static err_t refusal_of(const struct config *cfg, const char *path, struct str *refusal, struct error *e)
{
    struct config_problems problems = {0};
    struct manifest m = {0};
    err_t rc = manifest_read(&m, path, e);

    if (!rc) config_compare(cfg, m.config_json, strlen(m.config_json), path, &problems);
    if (!rc && problems.n)
        str_addf(refusal,
                 "the checkpoint %s was made with another configuration:\n%sUse its values, another job.dump_folder, or checkpoint.enable=false",
                 path, str_text(&problems.text));
    manifest_release(&m);
    config_problems_release(&problems);
    return rc ? rc : str_ok(refusal, e);
}

static void log_notes(struct log *log, const struct str *notes)
{
    const char *line = str_text(notes);

    while (*line) {
        int n = (int)strcspn(line, "\n");

        if (n) log_info(log, "%.*s", n, line);
        line += n + (line[n] == '\n');
    }
}

/* Looks for a checkpoint: the run's own first, then checkpoint.initial_load_path. */
static err_t find_checkpoint(struct train_start *s, const struct run *run, const struct config *cfg, const char *folder, struct str *refusal,
                             struct log *log, struct error *e)
{
    struct checkpoint_found found = {.step = -1};
    struct str notes = {0};
    err_t rc = ERR_NONE;

    s->load_parts = parts_wanted(cfg, e, &rc);
    if (!rc && cfg->checkpoint.enable && run->former.id[0] && io_is_folder(folder))
        rc = checkpoint_find(folder, cfg->checkpoint.load_step, run->former.id, &found, &notes, e);
    if (!rc && found.step >= 0) {
        s->is_resumed = true;
        s->step = found.step;
        rc = refusal_of(cfg, found.path, refusal, e);
    } else if (!rc && cfg->checkpoint.enable && cfg->checkpoint.initial_load_path[0]) {
        rc = checkpoint_find_initial(cfg->checkpoint.initial_load_path, &found, &notes, e);
        if (cfg->checkpoint.initial_load_model_only) s->load_parts = 0;
    }
    if (found.step >= 0) snprintf(s->load_path, sizeof s->load_path, "%s", found.path);
    log_notes(log, &notes);
    str_release(&notes);
    return rc;
}

static err_t tensorboard_folder(struct train_start *s, const struct run *run, const struct config *cfg, struct error *e)
{
    struct str name = {0};
    err_t rc = ERR_NONE;
    const char *former = "";

    if (!cfg->metrics.enable_tensorboard) return ERR_NONE;
    for (int i = 0; s->is_resumed && i < run->former.n_segments; i++)
        if (!former[0]) former = run->former.segments[i].tb_folder;
    if (former[0])
        str_add(&name, former);
    else
        rc = tfevents_make_folder(cfg->job.dump_folder, cfg->metrics.save_tb_folder, time(NULL), &name, e);
    snprintf(s->tb_folder, sizeof s->tb_folder, "%s", str_text(&name));
    str_release(&name);
    return rc;
}

enum { HOST_NAME_BYTES = 256 };

/* The hosts of the job, each once, in the order of their first ranks. */
struct job_hosts {
    struct arena arena;
    const char **names;
    int n, world_size;
};

static err_t gather_hosts(struct job_hosts *h, struct comm *world, struct error *e)
{
    _Alignas(int64_t) char own[HOST_NAME_BYTES] = "";
    char *all = arena_alloc(&h->arena, (size_t)world->size * HOST_NAME_BYTES);
    err_t rc;

    h->world_size = world->size;
    h->names = arena_array(&h->arena, (size_t)world->size, sizeof *h->names);
    if (!all || !h->names) return FAIL(e, ERR_MEMORY, "out of memory for the names of the hosts");
    gethostname(own, sizeof own - 1);
    rc = comm_all_gather(world, "names of hosts", own, all, sizeof own / sizeof(int64_t), DTYPE_INT64, NULL, e);
    for (int r = 0; r < world->size && !rc; r++) {
        const char *name = all + (size_t)r * HOST_NAME_BYTES;
        int known = 0;

        while (known < h->n && strcmp(h->names[known], name) != 0) known++;
        if (known == h->n) h->names[h->n++] = name;
    }
    return rc;
}

/* run.json: goes on, or begins anew and moves what an earlier run left out of the way. */
static err_t begin(struct train_start *s, struct run *run, const struct config *cfg, const struct job_hosts *hosts, const char *folder,
                   const char *refusal, struct log *log, struct error *e)
{
    char model[128], hash[24];
    struct run_start begin = {.model = model, .description = cfg->job.description, .config_hash = hash, .binary = CTITAN_VERSION,
                              .tb_folder = s->tb_folder, .hosts = hosts->names, .n_hosts = hosts->n, .world = hosts->world_size,
                              .resume_step = s->is_resumed ? s->step : -1, .refusal = refusal[0] ? refusal : NULL};
    struct str notes = {0};
    err_t rc;

    snprintf(model, sizeof model, "%s/%s", cfg->model.name, cfg->model.flavor);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)config_hash(cfg));
    rc = run_begin(run, &begin, e);
    if (!rc && !s->is_resumed && cfg->checkpoint.enable && io_is_folder(folder)) {
        char *runs = run_former_folder(run);

        rc = runs ? checkpoint_set_aside(folder, run->info.id, runs, &notes, e) : FAIL(e, ERR_MEMORY, "out of memory");
    }
    if (rc) goto out;
    snprintf(s->run_id, sizeof s->run_id, "%s", run->info.id);
    s->segment = run->info.n_segments - 1;
out:
    log_notes(log, &notes);
    str_release(&notes);
    return rc;
}

/* After a resume from before the last logged step, run.jsonl goes back to the checkpoint. */
static err_t rewind_log(const struct train_start *s, const struct config *cfg, struct log *log, struct error *e)
{
    struct arena a = {0};
    char *path = io_join(&a, cfg->job.dump_folder, "run.jsonl"), *superseded = io_join(&a, cfg->job.dump_folder, "superseded.jsonl");
    int64_t n_cut = 0;
    err_t rc = path && superseded ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory");

    if (!rc && s->is_resumed) rc = jsonl_rewind(path, s->step, superseded, &n_cut, e);
    if (!rc && n_cut) log_info(log, "%lld lines of run.jsonl after step %lld moved to superseded.jsonl", (long long)n_cut, (long long)s->step);
    arena_release(&a);
    return rc;
}

static err_t decide(struct train_start *s, struct run *run, const struct config *cfg, const struct job_hosts *hosts, struct log *log,
                    struct error *e)
{
    struct arena a = {0};
    struct str refusal = {0};
    char *folder = io_join(&a, cfg->job.dump_folder, cfg->checkpoint.folder);
    err_t rc = folder ? run_open(run, cfg->job.dump_folder, e) : FAIL(e, ERR_MEMORY, "out of memory");

    if (!rc) rc = find_checkpoint(s, run, cfg, folder, &refusal, log, e);
    if (!rc && refusal.length) rc = FAIL(e, ERR_CONFIG, "%s", str_text(&refusal));
    if (!rc) rc = tensorboard_folder(s, run, cfg, e);
    if (!rc) rc = begin(s, run, cfg, hosts, folder, str_text(&refusal), log, e);
    if (!rc) rc = rewind_log(s, cfg, log, e);
    str_release(&refusal);
    arena_release(&a);
    return rc;
}

err_t train_start_decide(struct train_start *s, struct run *run, const struct config *cfg, const struct mesh *mesh, struct log *log,
                         bool is_dry, struct error *e)
{
    struct decision *d = mem_zalloc(1, sizeof *d);
    struct job_hosts hosts = {0};
    err_t rc = d ? gather_hosts(&hosts, mesh->world, e) : FAIL(e, ERR_MEMORY, "out of memory at the start of the run");

    if (!rc && mesh->world->rank == 0) {
        struct error own = {0};

        d->rc = is_dry ? run_make_id(d->start.run_id, &own) : decide(&d->start, run, cfg, &hosts, log, &own);
        snprintf(d->message, sizeof d->message, "%s", own.message);
    }
    if (!rc) rc = comm_broadcast(mesh->world, "start of the run", d, sizeof *d, 0, NULL, e);
    if (!rc && d->rc) rc = FAIL(e, mesh->world->rank == 0 ? d->rc : ERR_PEER, "%s%s", mesh->world->rank ? "rank 0: " : "", d->message);
    if (!rc) *s = d->start;
    arena_release(&hosts.arena);
    mem_free(d);
    return rc;
}
