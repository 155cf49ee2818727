/* SPDX-License-Identifier: MIT */
/* Making one rank ready to train, in the order of struct trainer's members, and taking it apart again. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/place.h"
#include "metrics/flops.h"
#include "train/trainer.h"

err_t trainer_open_mesh(struct trainer *t, struct error *e)
{
    const struct config_parallelism *p = &t->cfg->parallelism;
    struct mesh_shape shape = {.degree = {[AXIS_PP] = (int)p->pipeline_parallel_degree,
                                          [AXIS_DP_REPLICATE] = (int)p->data_parallel_replicate_degree,
                                          [AXIS_DP_SHARD] = (int)p->data_parallel_shard_degree,
                                          [AXIS_CP] = (int)p->context_parallel_degree,
                                          [AXIS_TP] = (int)p->tensor_parallel_degree}};

    t->spec.world->trace = &t->trace;
    return mesh_open(&t->mesh, &shape, t->spec.world, e);
}

/* This rank's cores and how many threads it starts. Threads started from now on stay on these cores; a system that
 * forbids binding costs speed only. */
static err_t take_cores(struct trainer *t, int *threads, struct error *e)
{
    struct affinity place;
    struct error own = {0};
    err_t rc;

    if (t->spec.is_dry) return ERR_NONE; /* the other ranks do not exist */
    rc = comm_place(t->spec.world, *threads, &place, e);
    if (rc) return rc;
    *threads = place.threads;
    if (place.warning[0]) log_warning(t->spec.log, "%s", place.warning);
    if (affinity_apply(&place, &own)) log_warning(t->spec.log, "%s", own.message);
    return ERR_NONE;
}

/* Ranks compute on devices of one kind: collectives are of that kind. */
static err_t agree_on_device(struct trainer *t, struct error *e)
{
    int64_t kinds[2] = {t->device->plugin != NULL, t->device->plugin == NULL}; /* is there one with a GPU, without? */
    err_t rc = comm_all_reduce(t->spec.world, "agree on the device", kinds, 2, DTYPE_INT64, COMM_MAX, NULL, e);

    if (rc || !kinds[0] || !kinds[1]) return rc;
    if (t->device->plugin) return FAIL(e, ERR_PEER, "other ranks have no GPU, which this one has: see their messages");
    return FAIL(e, ERR_CONFIG,
                "rank %d has no GPU (%s), but others have: start one rank a GPU on every host, or set device.kind=cpu",
                t->spec.world->rank, t->device->note[0] ? t->device->note : "the plugin is not there");
}

static err_t open_device(struct trainer *t, struct error *e)
{
    static const char *const kinds[] = {
        [CONFIG_DEVICE_AUTO] = "auto", [CONFIG_DEVICE_CPU] = "cpu", [CONFIG_DEVICE_CUDA] = "cuda"};
    static const char *const levels[] = {[CONFIG_KERNELS_AUTO] = "auto",
                                         [CONFIG_KERNELS_REFERENCE] = "reference",
                                         [CONFIG_KERNELS_AVX2] = "avx2",
                                         [CONFIG_KERNELS_AVX512] = "avx512"};
    enum config_kernels level = t->cfg->device.kernels;
    struct device_options options = {.kind = kinds[t->cfg->device.kind],
                                     .local_rank = t->spec.world->local_rank,
                                     .local_size = t->spec.world->local_size,
                                     .threads = (int)t->cfg->device.threads,
                                     .memory_limit_bytes = (int64_t)(t->cfg->device.memory_limit_gib * 0x1p30)};
    err_t rc = take_cores(t, &options.threads, e);

    if (!rc) rc = device_open(&t->device, &options, e);
    if (!rc) rc = agree_on_device(t, e);
    if (!rc) rc = mesh_attach(&t->mesh, t->device, e);
    if (!rc && t->device->note[0]) log_info(t->spec.log, "the CPU is used: %s", t->device->note);
    t->type = t->cfg->training.mixed_precision_param;
    if (!rc && !t->device->plugin && t->cfg->debug.deterministic && level == CONFIG_KERNELS_AUTO)
        level = CONFIG_KERNELS_REFERENCE;
    return rc ? rc : kernels_for(&t->kernels, t->device, t->type, levels[level], e);
}

enum { REPORT_EVERY_NS = 100000000 };

struct progress {
    const struct trainer *t;
    int64_t told_ns;
};

/* A data_report: a request to stop ends the work, of this rank or of all. */
static bool report_progress(void *arg, const char *what, int64_t done, int64_t total)
{
    struct progress *p = arg;
    int64_t now = clock_ns();
    bool is_done = total && done >= total;
    char line[160] = "";

    if (signals_pending(p->t->spec.signals)) {
        log_status(p->t->spec.log, "");
        return false;
    }
    if (!is_done && now - p->told_ns < REPORT_EVERY_NS) return true;
    p->told_ns = now;
    if (!total)
        snprintf(line, sizeof line, "%s", what);
    else if (!is_done)
        snprintf(line, sizeof line, "%s: %d%%", what, (int)(100 * done / total));
    log_status(p->t->spec.log, line);
    return true;
}

static err_t open_one_data(struct trainer *t, const struct data_spec *spec, struct data_prepared *prepared,
                           struct token_cache **cache, struct error *e)
{
    struct progress progress = {.t = t};
    err_t rc = data_prepare(spec, t->device->pool, report_progress, &progress, prepared, e);

    log_status(t->spec.log, "");
    return rc ? rc : data_open(cache, prepared, e);
}

static err_t open_data(struct trainer *t, const struct model_spec *model, struct error *e)
{
    struct data_spec training = data_spec_training(t->cfg), validation = data_spec_validation(t->cfg);
    err_t rc = open_one_data(t, &training, &t->data, &t->tokens, e);

    if (!rc && t->data.vocab_size > model->vocab_size)
        rc = FAIL(
            e, ERR_CONFIG,
            "the tokenizer (training.tokenizer=%s) has %d entries, but the model only %lld: set model.vocab_size=%d",
            t->cfg->training.tokenizer, t->data.vocab_size, (long long)model->vocab_size, t->data.vocab_size);
    if (!rc && t->cfg->validation.enable) {
        if (strcmp(t->cfg->training.tokenizer, DATA_TOKENIZER_AUTO) == 0) validation.tokenizer = t->data.tokenizer_path;
        rc = open_one_data(t, &validation, &t->validation_data, &t->validation_tokens, e);
    }
    return rc;
}

static int microbatches_of(const struct config *cfg, const struct mesh *mesh)
{
    return (int)(cfg->training.global_batch_size / (cfg->training.local_batch_size * mesh->batch->size));
}

err_t trainer_open_model(struct trainer *t, const struct model_spec *model, struct error *e)
{
    static const enum reshard_policy policies[] = {[CONFIG_RESHARD_DEFAULT] = RESHARD_DEFAULT,
                                                   [CONFIG_RESHARD_ALWAYS] = RESHARD_ALWAYS,
                                                   [CONFIG_RESHARD_NEVER] = RESHARD_NEVER};
    const struct config *c = t->cfg;
    int64_t longest = c->validation.enable && c->validation.seq_len > c->training.seq_len ? c->validation.seq_len
                                                                                          : c->training.seq_len;
    struct executor_spec spec = {.device = t->device,
                                 .kernels = t->kernels,
                                 .mesh = &t->mesh,
                                 .trace = &t->trace,
                                 .type = t->type,
                                 .reshard = policies[c->parallelism.fsdp_reshard_after_forward],
                                 .n_microbatches = t->n_microbatches,
                                 .sequences = c->training.local_batch_size,
                                 .length = c->training.seq_len,
                                 .validation_sequences = c->validation.enable ? c->validation.local_batch_size : 0,
                                 .validation_length = c->validation.enable ? c->validation.seq_len : 0,
                                 .has_documents = c->training.document_mask};
    err_t rc = model_create(&t->model, model, t->device, t->type, longest, e);

    spec.model = t->model;
    return rc ? rc : executor_open(&t->executor, &spec, e);
}

static err_t parse_groups(const struct config *c, struct optim_group *groups, struct error *e)
{
    err_t rc = ERR_NONE;

    for (int i = 0; i < c->optimizer.param_groups.n && !rc; i++) {
        struct config_param_group g;

        rc = config_param_group(&g, c->optimizer.param_groups.item[i], e);
        if (!rc)
            groups[i] = (struct optim_group){.pattern = g.pattern,
                                             .pattern_length = g.pattern_length,
                                             .weight_decay = g.weight_decay.is_set ? g.weight_decay.value : NAN,
                                             .lr_factor = g.lr_factor.is_set ? g.lr_factor.value : NAN};
    }
    return rc;
}

err_t trainer_open_optimizer(struct trainer *t, struct error *e)
{
    const struct config_optimizer *c = &t->cfg->optimizer;
    const struct parameter_list *parameters = &t->model->parameters;
    struct optim_tensor *tensors = mem_zalloc((size_t)parameters->n, sizeof *tensors);
    struct optim_group *groups = mem_zalloc((size_t)c->param_groups.n + 1, sizeof *groups);
    struct optim_spec spec = {.device = t->device,
                              .kernels = t->kernels,
                              .type = t->type,
                              .beta1 = c->beta1,
                              .beta2 = c->beta2,
                              .eps = c->eps,
                              .weight_decay = c->weight_decay,
                              .groups = groups,
                              .n_groups = c->param_groups.n};
    err_t rc =
        tensors && groups ? parse_groups(t->cfg, groups, e) : FAIL(e, ERR_MEMORY, "out of memory for the optimizer");

    if (rc) {
        mem_free(tensors);
    } else {
        for (int i = 0; i < parameters->n; i++) {
            const struct parameter *p = parameters->items[i];

            tensors[i] = (struct optim_tensor){.name = p->name,
                                               .n = p->shard_rows * parameter_row_elements(p),
                                               .value = p->shard,
                                               .gradient = p->shard_gradient};
        }
        rc = optimizer_open(&t->optimizer, &spec, tensors, parameters->n, e);
    }
    mem_free(groups);
    return rc;
}

static void open_schedule(struct trainer *t)
{
    static const enum decay decays[] = {
        [CONFIG_DECAY_LINEAR] = DECAY_LINEAR, [CONFIG_DECAY_SQRT] = DECAY_SQRT, [CONFIG_DECAY_COSINE] = DECAY_COSINE};
    const struct config_lr_scheduler *c = &t->cfg->lr_scheduler;
    struct str warning = {0};

    lr_schedule_init(&t->schedule, t->cfg->optimizer.lr,
                     c->total_steps.is_set ? c->total_steps.value : t->cfg->training.steps, c->warmup_steps,
                     c->decay_ratio.is_set ? c->decay_ratio.value : -1.0, decays[c->decay_type], c->min_lr_factor,
                     &warning);
    if (warning.length) log_warning(t->spec.log, "%s", warning.text);
    str_release(&warning);
}

static err_t open_loader(struct trainer *t, struct error *e)
{
    const struct config_training *c = &t->cfg->training;
    struct loader_spec spec = {.cache = t->tokens,
                               .seq_len = (int)c->seq_len,
                               .local_batch = (int)c->local_batch_size,
                               .n_microbatches = t->n_microbatches,
                               .dp_rank = t->mesh.batch->rank,
                               .dp_size = t->mesh.batch->size,
                               .seed = (uint64_t)t->cfg->debug.seed,
                               .shuffle = c->shuffle,
                               .document_mask = c->document_mask,
                               .repeat = true,
                               .start = t->start.cursor,
                               .prefetch = t->n_microbatches < 2 ? 2 : t->n_microbatches};

    return loader_open(&t->loader, &spec, e);
}

static struct flops_facts flops_facts_of(const struct trainer *t)
{
    const struct model_spec *s = &t->model->spec;

    return (struct flops_facts){.n_parameters = model_parameters(t->model),
                                .n_embedding_parameters = model_embedding_parameters(t->model),
                                .is_tied = s->is_tied,
                                .n_layers = (int)s->n_layers,
                                .n_heads = (int)s->n_heads,
                                .d_qk = (int)s->head_dim,
                                .d_v = (int)s->head_dim,
                                .seq_len = t->cfg->training.seq_len};
}

static err_t open_metrics(struct trainer *t, struct error *e)
{
    const struct config_metrics *c = &t->cfg->metrics;
    struct flops_facts facts = flops_facts_of(t);
    struct str line = {0};
    struct metrics_spec spec = {.run = t->start.run_id,
                                .segment = t->start.segment,
                                .log_freq = c->log_freq,
                                .dense_steps = c->dense_steps,
                                .n_tokens_seen = t->start.tokens_seen,
                                .flops_per_token = flops_per_token(&facts),
                                .memory_bytes = t->device->properties.memory_bytes,
                                .started_ns = t->spec.started_ns,
                                .world = t->mesh.world,
                                .device = t->device,
                                .trace = &t->trace};

    flops_describe(&line, &facts);
    log_info(t->spec.log, "%s", str_text(&line));
    str_clear(&line);
    spec.peak_flops = flops_choose_peak(&line, c->peak_tflops.is_set ? c->peak_tflops.value : 0.0,
                                        t->device->properties.peak_flops, t->device->properties.name, t->type);
    log_info(t->spec.log, "%s", str_text(&line));
    str_release(&line);
    return metrics_open(&t->metrics, &spec, e);
}

/* A run that has done its steps does not look at its weights. */
static bool needs_weights(const struct trainer *t)
{
    return t->step < t->cfg->training.steps || t->cfg->checkpoint.create_seed_checkpoint;
}

err_t trainer_open(struct trainer *t, const struct trainer_spec *spec, struct error *e)
{
    struct config_problems problems = {0};
    struct model_spec model = {0};
    err_t rc;

    *t = (struct trainer){.spec = *spec, .cfg = spec->cfg, .is_finite = true};
    t->patience_s = (double)t->cfg->comm.init_timeout_seconds;
    trace_init(&t->trace);
    trace_begin(&t->trace, TRACE_SETUP);
    model_spec_resolve(&model, t->cfg, &problems);
    rc = config_problems_check(&problems, e);
    config_problems_release(&problems);
    if (!rc) rc = trainer_open_mesh(t, e);
    if (!rc) rc = open_device(t, e);
    if (!rc) rc = open_data(t, &model, e);
    if (!rc) rc = train_start_decide(&t->start, &t->run, t->cfg, &t->mesh, t->tokens, spec->log, spec->is_dry, e);
    if (rc) return rc;
    t->step = t->start.step;
    t->n_microbatches = microbatches_of(t->cfg, &t->mesh);
    t->microbatches = mem_zalloc((size_t)t->n_microbatches, sizeof *t->microbatches);
    t->batches = mem_zalloc((size_t)t->n_microbatches, sizeof *t->batches);
    if (!t->microbatches || !t->batches)
        return FAIL(e, ERR_MEMORY, "out of memory for %d microbatches", t->n_microbatches);
    rc = trainer_forecast_memory(t, &model, e);
    if (!rc) rc = trainer_open_model(t, &model, e);
    if (!rc && !t->start.load_path[0] && needs_weights(t))
        rc = executor_initialise(&t->executor, (uint64_t)t->cfg->debug.seed, e);
    if (!rc) rc = trainer_open_optimizer(t, e);
    if (!rc) rc = trainer_open_results(t, e);
    if (!rc) rc = trainer_load(t, e);
    if (rc) return rc;
    open_schedule(t);
    rc = open_loader(t, e);
    if (!rc) rc = open_metrics(t, e);
    if (!rc) rc = trainer_open_sinks(t, e);
    if (!rc) trainer_announce(t);
    trace_end(&t->trace);
    return rc;
}

void trainer_close(struct trainer *t)
{
    trainer_close_sinks(t);
    metrics_close(t->metrics);
    loader_close(t->loader);
    mesh_detach(&t->mesh); /* first: after a failure collectives may be under way that never end by themselves */
    trainer_close_results(t);
    optimizer_close(&t->optimizer);
    executor_close(&t->executor);
    model_destroy(t->model);
    mem_free(t->batches);
    mem_free(t->microbatches);
    run_close(&t->run);
    token_cache_close(t->validation_tokens);
    token_cache_close(t->tokens);
    data_prepared_release(&t->validation_data);
    data_prepared_release(&t->data);
    device_close(t->device);
    mesh_close(&t->mesh);
    if (t->spec.world) t->spec.world->trace = NULL;
    *t = (struct trainer){0};
}
