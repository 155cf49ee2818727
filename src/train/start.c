/* SPDX-License-Identifier: MIT */
/* Deciding how a life of the run begins; see start.h. */
#include "train/start.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"
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
            *rc = FAIL(e, ERR_CONFIG,
                       "checkpoint.exclude_from_loading=%s: it takes optimizer, lr_scheduler, dataloader, train_state",
                       name);
    }
    return parts;
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

/* What rank 0 has at hand when it decides. */
struct question {
    const struct config *cfg;
    const struct token_cache_header *text; /* NULL: made up, nothing to compare */
    const char *folder;                    /* of the run's own checkpoints */
    const struct job_hosts *hosts;
    struct run *run;
    struct log *log;
};

/* The text and its tokenizer, which a checkpoint's cursor and parameters belong to. */
static void compare_text(const struct question *q, const struct checkpoint_state *then, unsigned parts,
                         struct config_problems *problems, struct str *told)
{
    const struct token_cache_header *now = q->text;

    if (!now) return;
    if ((parts & CHECKPOINT_PART_DATA) && then->step > 0 && then->data_hash && then->data_hash != now->content_hash)
        config_problem(
            problems,
            "the text that training.dataset names has changed since: the place in it where the run was means nothing "
            "now. Put the files back, or begin the new text with checkpoint.exclude_from_loading=dataloader");
    else if (then->tokenizer_hash && then->tokenizer_hash != now->tokenizer_hash)
        str_addf(
            told,
            "training.tokenizer=%s is another tokenizer than the checkpoint's: the same ids stand for other texts\n",
            q->cfg->training.tokenizer);
}

/* ERR_CONFIG if the checkpoint cannot be gone on from; what changes the curve is told. */
static err_t compare(const struct question *q, const char *path, enum config_earlier earlier, unsigned parts,
                     struct error *e)
{
    struct config_problems problems = {0};
    struct str told = {0};
    struct manifest m = {0};
    err_t rc = manifest_read(&m, path, e);

    if (!rc) {
        if (earlier == CONFIG_EARLIER_RUN && m.state.step == 0) earlier = CONFIG_EARLIER_SEED;
        config_compare(q->cfg, m.config_json, strlen(m.config_json), "the checkpoint", earlier, &problems, &told);
        compare_text(q, &m.state, parts, &problems, &told);
        log_lines(q->log, LOG_WARNING, "", str_text(&told));
        rc = str_ok(&told, e);
    }
    if (!rc && problems.n)
        rc = FAIL(e, ERR_CONFIG,
                  "the checkpoint %s was made with another configuration:\n%s\nUse its values, another "
                  "job.dump_folder, or %s",
                  path, str_text(&problems.text),
                  q->run->former.id[0] ? "checkpoint.enable=false" : "checkpoint.initial_load_model_only=true");
    manifest_release(&m);
    config_problems_release(&problems);
    str_release(&told);
    return rc;
}

/* What is asked of a run that has a checkpoint, and makes no sense there. */
static err_t check_request(const struct question *q, const struct checkpoint_found *found, struct error *e)
{
    const struct config_checkpoint *c = &q->cfg->checkpoint;
    struct checkpoint_found *newest;
    err_t rc;

    if (c->create_seed_checkpoint && found->step > 0)
        return FAIL(
            e, ERR_CONFIG,
            "checkpoint.create_seed_checkpoint: %s is a checkpoint of a run that has begun; make the seed in another "
            "job.dump_folder",
            found->path);
    if (c->load_step < 0 || !c->load_only) return ERR_NONE;
    newest = mem_zalloc(1, sizeof *newest);
    rc = newest ? checkpoint_find(q->folder, -1, q->run->former.id, newest, NULL, e)
                : FAIL(e, ERR_MEMORY, "out of memory");
    if (!rc && newest->step > found->step)
        rc = FAIL(e, ERR_CONFIG,
                  "checkpoint.load_only=true, which saves nothing, cannot go back to step %lld of a run that has step "
                  "%lld: its "
                  "metrics would have a gap. Use another job.dump_folder with checkpoint.initial_load_path=%s and "
                  "checkpoint.initial_load_model_only=false",
                  (long long)found->step, (long long)newest->step, found->path);
    mem_free(newest);
    return rc;
}

static err_t resume_from(struct train_start *s, const struct question *q, const struct checkpoint_found *found,
                         struct error *e)
{
    err_t rc = check_request(q, found, e);

    if (rc || q->cfg->checkpoint.create_seed_checkpoint) return rc; /* a former seed is set aside for the new one */
    s->is_resumed = true;
    s->step = found->step;
    snprintf(s->load_path, sizeof s->load_path, "%s", found->path);
    if (s->step >= q->cfg->training.steps)
        s->load_parts &= ~(unsigned)CHECKPOINT_PART_OPTIMIZER; /* it is done: nothing is trained */
    return compare(q, s->load_path, CONFIG_EARLIER_RUN, s->load_parts, e);
}

/* A new run starts from somebody's checkpoint. */
static err_t start_from(struct train_start *s, const struct question *q, const struct checkpoint_found *found,
                        struct error *e)
{
    char parent[START_PATH_BYTES + 3], own[PATH_MAX], other[PATH_MAX];
    bool only_model = q->cfg->checkpoint.initial_load_model_only;

    if (only_model) s->load_parts = 0;
    if (s->load_parts & CHECKPOINT_PART_TRAIN) s->step = found->step;
    snprintf(s->load_path, sizeof s->load_path, "%s", found->path);
    snprintf(parent, sizeof parent, "%s/..", found->path);
    if (realpath(parent, other) && realpath(q->folder, own) && strcmp(own, other) == 0)
        return FAIL(e, ERR_CONFIG,
                    "checkpoint.initial_load_path=%s lies where this new run puts its own checkpoints, and would be "
                    "moved aside; "
                    "use another job.dump_folder or checkpoint.folder",
                    q->cfg->checkpoint.initial_load_path);
    return compare(q, s->load_path, only_model ? CONFIG_EARLIER_PARAMETERS : CONFIG_EARLIER_RUN, s->load_parts, e);
}

/* Looks for a checkpoint: the run's own first, then checkpoint.initial_load_path. */
static err_t find_checkpoint(struct train_start *s, const struct question *q, struct error *e)
{
    const struct config_checkpoint *c = &q->cfg->checkpoint;
    struct checkpoint_found *found = mem_zalloc(1, sizeof *found);
    struct str notes = {0};
    err_t rc = found ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory");

    if (!rc) s->load_parts = parts_wanted(q->cfg, e, &rc);
    if (rc || !c->enable) goto out;
    found->step = -1;
    if (q->run->former.id[0] && io_is_folder(q->folder))
        rc = checkpoint_find(q->folder, c->load_step, q->run->former.id, found, &notes, e);
    else if (c->load_step >= 0)
        rc = FAIL(e, ERR_MISSING, "checkpoint.load_step=%lld: there is no run with checkpoints in %s",
                  (long long)c->load_step, q->folder);
    if (!rc && found->step >= 0) {
        rc = resume_from(s, q, found, e);
    } else if (!rc && c->initial_load_path[0]) {
        rc = checkpoint_find_initial(c->initial_load_path, found, &notes, e);
        if (!rc) rc = start_from(s, q, found, e);
    }
out:
    log_lines(q->log, LOG_WARNING, "", str_text(&notes));
    str_release(&notes);
    mem_free(found);
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

/* A run that is to save must be able to, before its first step: its last checkpoint may be days away. */
static err_t prepare_saving(const struct question *q, struct error *e)
{
    err_t rc;

    if (!q->cfg->checkpoint.enable || q->cfg->checkpoint.load_only) return ERR_NONE;
    rc = io_make_folders(q->folder, e);
    if (!rc && access(q->folder, W_OK | X_OK)) rc = io_fail(e, "write into the folder", q->folder);
    return rc ? error_prefix(e, rc, "checkpoints could not be saved (checkpoint.folder)") : ERR_NONE;
}

/* run.json: goes on, or begins anew and moves what an earlier run left out of the way. */
static err_t begin(struct train_start *s, const struct question *q, struct error *e)
{
    const struct config *cfg = q->cfg;
    char model[128], hash[24];
    struct run_start begin = {.model = model,
                              .description = cfg->job.description,
                              .config_hash = hash,
                              .binary = CTITAN_VERSION,
                              .tb_folder = s->tb_folder,
                              .hosts = q->hosts->names,
                              .n_hosts = q->hosts->n,
                              .world = q->hosts->world_size,
                              .resume_step = s->is_resumed ? s->step : -1,
                              .first_step = s->step + 1};
    struct str notes = {0};
    char *runs;
    err_t rc;

    snprintf(model, sizeof model, "%s/%s", cfg->model.name, cfg->model.flavor);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)config_hash(cfg));
    rc = run_begin(q->run, &begin, e);
    if (rc) return rc;
    if (!s->is_resumed && cfg->checkpoint.enable && io_is_folder(q->folder)) {
        runs = run_former_folder(q->run);
        rc = runs ? checkpoint_set_aside(q->folder, q->run->info.id, runs, &notes, e)
                  : FAIL(e, ERR_MEMORY, "out of memory");
    } else if (s->is_resumed && cfg->checkpoint.load_step >= 0 && !cfg->checkpoint.load_only) {
        /* the line of training after that step is given up now: a next start must not take it for the newest */
        rc = checkpoint_supersede(NULL, q->folder, q->run->info.id, s->step, &notes, e);
    }
    snprintf(s->run_id, sizeof s->run_id, "%s", q->run->info.id);
    s->segment = q->run->info.n_segments - 1;
    log_lines(q->log, LOG_INFO, "", str_text(&notes));
    str_release(&notes);
    return rc;
}

/* After a resume from before the last logged step, run.jsonl goes back to the checkpoint. Was the run stopped before
 * the validation that is due after that step, it is made up for. */
static err_t rewind_log(struct train_start *s, const struct question *q, struct error *e)
{
    struct arena a = {0};
    char *path = io_join(&a, q->cfg->job.dump_folder, "run.jsonl"),
         *superseded = io_join(&a, q->cfg->job.dump_folder, "superseded.jsonl");
    int64_t n_cut = 0;
    bool is_validated = true;
    err_t rc = path && superseded ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory");

    if (!rc && s->is_resumed) rc = jsonl_rewind(path, s->step, superseded, &n_cut, e);
    if (!rc && s->is_resumed && s->step > 0 && q->cfg->validation.enable)
        rc = jsonl_has(path, s->step, metric_table[METRIC_VALIDATION_LOSS].tag, &is_validated, e);
    if (!rc && n_cut)
        log_info(q->log, "%lld lines of run.jsonl after step %lld moved to superseded.jsonl", (long long)n_cut,
                 (long long)s->step);
    s->lacks_validation = !is_validated;
    arena_release(&a);
    return rc;
}

static err_t decide(struct train_start *s, struct question *q, struct error *e)
{
    struct arena a = {0};
    err_t rc;

    q->folder = io_join(&a, q->cfg->job.dump_folder, q->cfg->checkpoint.folder);
    rc = q->folder ? run_open(q->run, q->cfg->job.dump_folder, e) : FAIL(e, ERR_MEMORY, "out of memory");
    if (!rc && q->run->warning) log_warning(q->log, "%s", q->run->warning);
    if (!rc) rc = find_checkpoint(s, q, e);
    if (!rc) rc = prepare_saving(q, e);
    if (!rc) rc = tensorboard_folder(s, q->run, q->cfg, e);
    if (!rc) rc = begin(s, q, e);
    if (!rc) rc = rewind_log(s, q, e);
    arena_release(&a);
    return rc;
}

err_t train_start_decide(struct train_start *s, struct run *run, const struct config *cfg, const struct mesh *mesh,
                         const struct token_cache *text, struct log *log, bool is_dry, struct error *e)
{
    struct decision *d = mem_zalloc(1, sizeof *d);
    struct job_hosts hosts = {0};
    struct question q = {.cfg = cfg, .text = token_cache_header(text), .hosts = &hosts, .run = run, .log = log};
    err_t rc = d ? gather_hosts(&hosts, mesh->world, e) : FAIL(e, ERR_MEMORY, "out of memory at the start of the run");

    if (!rc && mesh->world->rank == 0) {
        struct error own = {0};

        d->rc = is_dry ? run_make_id(d->start.run_id, &own) : decide(&d->start, &q, &own);
        snprintf(d->message, sizeof d->message, "%s", own.message);
    }
    if (!rc) rc = comm_broadcast(mesh->world, "start of the run", d, sizeof *d, 0, NULL, e);
    if (!rc && d->rc)
        rc =
            FAIL(e, mesh->world->rank == 0 ? d->rc : ERR_PEER, "%s%s", mesh->world->rank ? "rank 0: " : "", d->message);
    if (!rc) *s = d->start;
    arena_release(&hosts.arena);
    mem_free(d);
    return rc;
}
