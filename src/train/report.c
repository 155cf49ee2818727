/* SPDX-License-Identifier: MIT */
/* What a run says: the sinks of the ranks that speak, the lines at start, the row of each logged step. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/mem.h"
#include "train/trainer.h"

enum { N_HPARAMS = 8 };

/* What the sinks borrow. It stays until the last writer has ended: one that hangs is not waited for, and may come back
 * when the trainer is gone. */
struct trainer_sinks {
    struct arena arena;
    atomic_int n_holders; /* the trainer, and sinks that have not ended */
    char run_id[RUN_ID_LENGTH + 1];
    struct console_options console;
    struct jsonl_options jsonl;
    struct tfevents_options tfevents;
    struct str config_text;
    struct tfevents_hparam hparams[N_HPARAMS];
    bool is_speaker;   /* this rank's rows are the run's */
    bool has_own;      /* this rank writes rows of its own (metrics.save_for_all_ranks), into event files */
    struct sinks *own; /* for them; NULL = none */
};

static int speaking_rank(const struct trainer *t)
{
    return metrics_rank(t->mesh.world->size, t->mesh.shape.degree[AXIS_PP], NULL, 0);
}

/* Gives up one hold on them; was it the last one, they go. */
static bool drop_sinks(struct trainer_sinks *o)
{
    if (atomic_fetch_sub(&o->n_holders, 1) != 1) return false;
    str_release(&o->config_text);
    arena_release(&o->arena);
    mem_free(o);
    return true;
}

static void sinks_have_ended(void *arg) { drop_sinks(arg); }

static err_t create_sinks(struct trainer *t, struct trainer_sinks *o, struct sinks **out, struct error *e)
{
    err_t rc = sinks_create(out, t->spec.log, (int)t->cfg->metrics.queue_rows, e);

    if (rc) return rc;
    atomic_fetch_add(&o->n_holders, 1);
    sinks_when_ended(*out, sinks_have_ended, o);
    return ERR_NONE;
}

static void fill_hparams(const struct config *c, const char *flavor, struct tfevents_hparam out[N_HPARAMS])
{
#define NUMBER(option)                                                                                                 \
    {                                                                                                                  \
        .name = #option, .kind = TFEVENTS_NUMBER, .number = (double)c->option                                          \
    }
    const struct tfevents_hparam hparams[N_HPARAMS] = {
        {.name = "model.flavor", .kind = TFEVENTS_TEXT, .text = flavor},
        NUMBER(optimizer.lr),
        NUMBER(optimizer.weight_decay),
        NUMBER(training.global_batch_size),
        NUMBER(training.seq_len),
        NUMBER(training.steps),
        NUMBER(debug.seed),
        {.name = "training.document_mask", .kind = TFEVENTS_BOOL, .number = c->training.document_mask},
    };
#undef NUMBER

    memcpy(out, hparams, sizeof hparams);
}

static err_t add_tensorboard(struct trainer *t, struct trainer_sinks *o, struct error *e)
{
    const char *folder, *flavor = arena_strdup(&o->arena, t->cfg->model.flavor);

    if (!t->start.tb_folder[0] || !(o->is_speaker || o->has_own)) return ERR_NONE;
    folder = arena_printf(&o->arena, "%s/%s", t->cfg->job.dump_folder, t->start.tb_folder);
    if (folder && o->has_own) folder = arena_printf(&o->arena, "%s/rank_%d", folder, t->mesh.world->rank);
    config_print(t->cfg, false, &o->config_text);
    fill_hparams(t->cfg, flavor, o->hparams);
    o->tfevents = (struct tfevents_options){.folder = folder,
                                            .run = o->run_id,
                                            .first_step = t->step + 1,
                                            .config_text = str_text(&o->config_text),
                                            .hparams = o->hparams,
                                            .n_hparams = N_HPARAMS};
    if (!folder || !flavor) return FAIL(e, ERR_MEMORY, "out of memory for the TensorBoard sink");
    if (o->has_own) {
        err_t rc = create_sinks(t, o, &o->own, e);

        return rc ? rc : sinks_add(o->own, &sink_ops_tfevents, &o->tfevents, e);
    }
    return sinks_add(t->sinks, &sink_ops_tfevents, &o->tfevents, e);
}

static bool copy_tags(const struct config *c, struct trainer_sinks *o)
{
    const char **tags = arena_array(&o->arena, (size_t)c->metrics.tags.n + 1, sizeof *tags);

    for (int i = 0; tags && i < c->metrics.tags.n; i++)
        if (!(tags[i] = arena_strdup(&o->arena, c->metrics.tags.item[i]))) return false;
    o->jsonl.tags = tags;
    o->jsonl.n_tags = c->metrics.tags.n;
    return tags != NULL;
}

err_t trainer_open_sinks(struct trainer *t, struct error *e)
{
    struct trainer_sinks *o = mem_zalloc(1, sizeof *o);
    err_t rc;

    t->sink_options = o;
    if (!o) return FAIL(e, ERR_MEMORY, "out of memory for the sinks");
    atomic_store(&o->n_holders, 1);
    memcpy(o->run_id, t->start.run_id, sizeof o->run_id);
    o->is_speaker = t->mesh.world->rank == speaking_rank(t);
    o->has_own = t->cfg->metrics.save_for_all_ranks;
    rc = create_sinks(t, o, &t->sinks, e);
    o->console = (struct console_options){.log = t->spec.log,
                                          .use_colour = t->spec.is_terminal && !t->cfg->metrics.disable_color_printing,
                                          .total_steps = t->cfg->training.steps};
    if (!rc && o->is_speaker) rc = sinks_add(t->sinks, &sink_ops_console, &o->console, e);
    if (rc || t->spec.is_dry) return rc;
    if (!copy_tags(t->cfg, o)) return FAIL(e, ERR_MEMORY, "out of memory for the sinks");
    o->jsonl.path = io_join(&o->arena, t->cfg->job.dump_folder, "run.jsonl");
    if (!o->jsonl.path) return FAIL(e, ERR_MEMORY, "out of memory for the sinks");
    if (o->is_speaker) rc = sinks_add(t->sinks, &sink_ops_jsonl, &o->jsonl, e);
    return rc ? rc : add_tensorboard(t, o, e);
}

bool trainer_close_sinks(struct trainer *t)
{
    struct trainer_sinks *o = t->sink_options;

    if (!o) return true;
    sinks_close(t->sinks, (int64_t)(t->cfg->metrics.close_timeout * 1e9));
    sinks_close(o->own, (int64_t)(t->cfg->metrics.close_timeout * 1e9));
    log_status(t->spec.log, "");
    t->sinks = NULL;
    t->sink_options = NULL;
    return drop_sinks(o);
}

void trainer_write_rows(struct trainer *t, struct metric_row *row, struct metric_row *own)
{
    const struct trainer_sinks *o = t->sink_options;

    row->run = own->run = o->run_id;
    trace_begin(&t->trace, TRACE_SINKS);
    if (row->kind == METRIC_ROW_TRAINING) {
        sinks_measure(t->sinks, row);
        sinks_measure(o->own, own);
    }
    if (o->is_speaker) sinks_write(t->sinks, row);
    sinks_write(o->own, own);
    trace_end(&t->trace);
}

void trainer_flush_rows(struct trainer *t)
{
    const struct trainer_sinks *o = t->sink_options;
    const int64_t timeout_ns = 2000000000;

    if (!o) return;
    sinks_flush(t->sinks, timeout_ns);
    sinks_flush(o->own, timeout_ns);
}

void trainer_note_health(struct trainer *t, const struct step_facts *facts)
{
    bool is_finite = isfinite(facts->loss_sum) && isfinite(facts->grad_norm);

    if (t->is_finite && !is_finite)
        log_warning(t->spec.log,
                    "step %lld: the loss or the gradient norm (%g) is not finite. Training goes on, checkpoints are "
                    "marked unhealthy; a lower "
                    "optimizer.lr or training.max_norm, from the last healthy checkpoint, may help",
                    (long long)facts->step, facts->grad_norm);
    if (!t->is_finite && is_finite)
        log_info(t->spec.log, "step %lld: the loss and the gradient norm are finite again", (long long)facts->step);
    t->is_finite = is_finite;
}

err_t trainer_publish(struct trainer *t, struct error *e)
{
    struct metric_row row, own;
    err_t rc = metrics_collect(t->metrics, &row, &own, e);

    if (!rc) trainer_write_rows(t, &row, &own);
    return rc;
}

/* Is the rank with the step lines not shown, and is this one the first that is? (Rank 0 where none is: its file has the
 * warning.) */
static bool must_warn_of_hidden_lines(const struct trainer *t, int speaker)
{
    int first = 0;

    if (metrics_rank_is_shown(t->spec.log_rank, speaker)) return false;
    while (first < t->mesh.world->size && !metrics_rank_is_shown(t->spec.log_rank, first)) first++;
    return t->mesh.world->rank == (first < t->mesh.world->size ? first : 0);
}

void trainer_announce(struct trainer *t)
{
    struct log *log = t->spec.log;
    const struct model *m = t->model;
    const struct device_properties *device = &t->device->properties;
    struct str mesh = {0}, types = {0}, warning = {0};
    int speaker = speaking_rank(t);

    mesh_describe(&t->mesh.shape, &mesh);
    log_info(log, "run %s, segment %d: model %s %s, %lld parameters", t->start.run_id, t->start.segment, m->spec.family,
             m->spec.flavor, (long long)model_parameters(m));
    str_addf(&types, dtype_wide(t->type) == t->type ? "%s" : "%s with parameters in %s", dtype_name(t->type),
             dtype_name(dtype_wide(t->type)));
    log_info(log, "mesh: %s; device %s, %d threads a rank, kernels %s, %s", str_text(&mesh), device->name,
             device->threads, t->kernels->level, str_text(&types));
    if (device->multiprocessors)
        log_info(log, "GPU: %.1f GiB for this rank, %d multiprocessors, %s", (double)device->memory_bytes / 0x1p30,
                 device->multiprocessors, device->versions);
    log_info(log, "data: %s, %lld tokens, %lld sequences of %lld an epoch%s", token_cache_name(t->tokens),
             (long long)token_cache_tokens(t->tokens), (long long)loader_samples(t->loader),
             (long long)t->cfg->training.seq_len, t->data.used_fallback ? " (training.dataset_fallback)" : "");
    if (t->step < t->cfg->training.steps)
        log_info(log, "training steps %lld to %lld, %lld sequences a step in %d microbatches a rank",
                 (long long)t->step + 1, (long long)t->cfg->training.steps,
                 (long long)t->cfg->training.global_batch_size, t->n_microbatches);
    if (must_warn_of_hidden_lines(t, speaker)) {
        metrics_rank_warning(&warning, t->spec.log_rank, speaker, t->spec.n_arguments, t->spec.arguments);
        log_warning(log, "%s", str_text(&warning));
    }
    str_release(&mesh);
    str_release(&types);
    str_release(&warning);
}

struct microbatch microbatch_of(const struct batch *b)
{
    return (struct microbatch){.sequences = b->rows,
                               .length = b->seq_len,
                               .tokens = b->tokens,
                               .labels = b->labels,
                               .positions = b->positions,
                               .document_start = b->document_start};
}
