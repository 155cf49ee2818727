/* SPDX-License-Identifier: MIT */
/* Between the trainer and its checkpoints: which tensors there are, and where the run stands. Checkpoints read and
 * write host memory: the device's own where that is host memory, else a copy that is made for the occasion. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "train/trainer.h"

struct tensor_list {
    struct arena arena;
    struct checkpoint_tensor *items;
    int n;
    void **on_device; /* [n], of each tensor, where items hold copies; NULL where they hold the device's memory */
    char *copies;     /* owned */
};

static void add(struct tensor_list *l, const struct parameter *p, const char *suffix, enum checkpoint_kind kind,
                enum dtype type, void *data)
{
    struct checkpoint_tensor *c = &l->items[l->n];

    *c = (struct checkpoint_tensor){.name = suffix[0] ? arena_printf(&l->arena, "%s.%s", p->name, suffix) : p->name,
                                    .kind = kind,
                                    .type = type,
                                    .n_dims = p->n_dims,
                                    .first_row = p->shard_first,
                                    .n_rows = p->shard_rows,
                                    .data = data};
    memcpy(c->dim, p->dim, sizeof c->dim);
    if (c->name) l->n++; /* out of memory shows as a short list */
}

static size_t tensor_bytes(const struct checkpoint_tensor *t)
{
    return (size_t)(t->n_rows * checkpoint_tensor_row_bytes(t));
}

/* Room on the host for every tensor, in the place of the device's memory. */
static err_t make_room(struct tensor_list *l, struct error *e)
{
    size_t total = 0, at = 0;

    for (int i = 0; i < l->n; i++) total += tensor_bytes(&l->items[i]);
    l->on_device = arena_array(&l->arena, (size_t)l->n, sizeof *l->on_device);
    l->copies = mem_alloc(total);
    if (!l->on_device || !l->copies)
        return FAIL(e, ERR_MEMORY, "out of memory for a copy of %.1f MiB of tensors on the host",
                    (double)total / 0x1p20);
    for (int i = 0; i < l->n; i++) {
        l->on_device[i] = l->items[i].data;
        l->items[i].data = l->copies + at;
        at += tensor_bytes(&l->items[i]);
    }
    return ERR_NONE;
}

/* Copies between the device and the host's copies, if there are any. Tensors of parts that are not wanted stay. */
static err_t copy_tensors(struct trainer *t, const struct tensor_list *l, bool to_device, bool parameters_only,
                          struct error *e)
{
    err_t rc = ERR_NONE;

    for (int i = 0; l->on_device && i < l->n && !rc; i++) {
        const struct checkpoint_tensor *c = &l->items[i];

        if (parameters_only && c->kind != CHECKPOINT_PARAMETERS) continue;
        rc = to_device ? device_write(t->device, l->on_device[i], c->data, tensor_bytes(c), e)
                       : device_read(t->device, c->data, l->on_device[i], tensor_bytes(c), e);
    }
    return rc;
}

static void release_list(struct tensor_list *l)
{
    mem_free(l->copies);
    arena_release(&l->arena);
    *l = (struct tensor_list){0};
}

/* Parameters, and the optimizer's moments in the order of its tensors (one per parameter). */
static err_t list_tensors(struct trainer *t, struct tensor_list *l, struct error *e)
{
    const struct parameter_list *parameters = &t->model->parameters;
    err_t rc;

    *l = (struct tensor_list){0};
    l->items = arena_array(&l->arena, 3 * (size_t)parameters->n, sizeof *l->items);
    for (int i = 0; l->items && i < parameters->n; i++) {
        const struct parameter *p = parameters->items[i];
        const struct optim_tensor *o = &t->optimizer.tensors[i];

        add(l, p, "", CHECKPOINT_PARAMETERS, dtype_wide(t->type), p->shard);
        add(l, p, "exp_avg", CHECKPOINT_OPTIMIZER, dtype_wide(t->type), o->first);
        add(l, p, "exp_avg_sq", CHECKPOINT_OPTIMIZER, dtype_wide(t->type), o->second);
    }
    if (l->n == 3 * parameters->n)
        rc = t->device->properties.is_immediate ? ERR_NONE : make_room(l, e);
    else
        rc = FAIL(e, ERR_MEMORY, "out of memory while listing the tensors of a checkpoint");
    if (rc) release_list(l);
    return rc;
}

err_t trainer_tell_once(const struct trainer *t, struct error *e)
{
    if (t->mesh.world->rank) e->code = ERR_PEER;
    return e->code;
}

void trainer_be_patient(struct trainer *t, bool is_patient)
{
    t->patience_s = (double)(is_patient ? t->cfg->comm.init_timeout_seconds : t->cfg->comm.train_timeout_seconds);
    comm_set_timeout(t->mesh.world, t->patience_s);
}

static void log_loaded(const struct trainer *t)
{
    struct str left_out = {0};

#define X(id, bit, text)                                                                                               \
    if (!(t->start.load_parts & id)) str_addf(&left_out, "%s" text, left_out.length ? ", " : "; not loaded: ");
    CHECKPOINT_PARTS(X)
#undef X
    log_info(t->spec.log, "loaded %s: step %lld, %lld tokens seen%s", t->start.load_path, (long long)t->step,
             (long long)t->start.tokens_seen, str_text(&left_out));
    str_release(&left_out);
}

err_t trainer_load(struct trainer *t, struct error *e)
{
    struct checkpoint_state state = {0};
    struct tensor_list list;
    struct data_cursor cursor = {0};
    unsigned parts = t->start.load_parts;
    err_t rc;

    if (!t->start.load_path[0]) return ERR_NONE;
    rc = list_tensors(t, &list, e);
    if (rc) return rc;
    rc = checkpoint_load(t->start.load_path, list.items, list.n, parts, &state, t->mesh.world, e);
    rc = rc ? trainer_tell_once(t, e) : copy_tensors(t, &list, true, !(parts & CHECKPOINT_PART_OPTIMIZER), e);
    release_list(&list);
    if (rc) return rc;
    cursor = (struct data_cursor){.epoch = state.epoch, .sample = state.sample};
    t->optimizer.step = state.optimizer_step;
    t->schedule_step = state.schedule_step;
    t->start.tokens_seen = state.tokens_seen;
    t->start.cursor = cursor;
    log_loaded(t);
    return ERR_NONE;
}

static struct checkpoint_state state_of(const struct trainer *t)
{
    const struct token_cache_header *header = token_cache_header(t->tokens);
    struct data_cursor cursor = loader_cursor(t->loader);

    return (struct checkpoint_state){.step = t->step,
                                     .tokens_seen = metrics_tokens_seen(t->metrics),
                                     .epoch = cursor.epoch,
                                     .sample = cursor.sample,
                                     .data_hash = header ? header->content_hash : 0,
                                     .tokenizer_hash = header ? header->tokenizer_hash : 0,
                                     .shuffle_seed = (uint64_t)t->cfg->debug.seed,
                                     .seed = (uint64_t)t->cfg->debug.seed,
                                     .optimizer_step = t->optimizer.step,
                                     .schedule_step = t->schedule_step,
                                     .unhealthy = !t->is_finite};
}

err_t trainer_save(struct trainer *t, bool parameters_only, struct error *e)
{
    struct checkpoint_axis axes[AXIS_COUNT];
    struct tensor_list list = {0};
    struct str config_json = {0};
    char model[128];
    struct arena a = {0};
    int64_t began = clock_ns();
    err_t rc;

    metrics_exclude_begin(t->metrics, TRACE_CHECKPOINT);
    trainer_be_patient(t, true); /* one rank's files may take much longer than another's */
    trainer_flush_rows(t);       /* a run killed after this checkpoint goes on from it: no earlier row may be lost */
    for (int i = 0; i < AXIS_COUNT; i++)
        axes[i] = (struct checkpoint_axis){axis_name((enum axis)i), t->mesh.shape.degree[i]};
    snprintf(model, sizeof model, "%s/%s", t->cfg->model.name, t->cfg->model.flavor);
    config_write_json(t->cfg, &config_json);
    rc = str_ok(&config_json, e);
    if (!rc) rc = list_tensors(t, &list, e);
    if (!rc) rc = copy_tensors(t, &list, false, parameters_only, e);
    if (!rc) {
        struct checkpoint_spec spec = {.folder = io_join(&a, t->cfg->job.dump_folder, t->cfg->checkpoint.folder),
                                       .run_id = t->start.run_id,
                                       .model = model,
                                       .binary = CTITAN_VERSION,
                                       .config_json = str_text(&config_json),
                                       .axes = axes,
                                       .n_axes = AXIS_COUNT,
                                       .state = state_of(t),
                                       .tensors = list.items,
                                       .n_tensors = list.n,
                                       .is_writer = t->mesh.coordinate[AXIS_DP_REPLICATE] == 0,
                                       .parameters_only = parameters_only,
                                       .keep_latest_k = (int)t->cfg->checkpoint.keep_latest_k,
                                       .log = t->spec.log};

        rc = spec.folder ? checkpoint_save(&spec, t->mesh.world, e) : FAIL(e, ERR_MEMORY, "out of memory while saving");
    }
    release_list(&list);
    str_release(&config_json);
    arena_release(&a);
    if (!rc) rc = comm_barrier(t->mesh.world, "checkpoint saved", e); /* rank 0 may still have removed older ones */
    if (t->step > t->start.step) trainer_be_patient(t, false);
    metrics_exclude_end(t->metrics);
    if (!rc)
        log_info(t->spec.log, "saved checkpoint step-%lld in %.1f s", (long long)t->step,
                 (double)(clock_ns() - began) * 1e-9);
    return rc;
}
