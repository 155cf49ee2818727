/* SPDX-License-Identifier: MIT */
/* The equivalence of meshes; see equivalence.h. */
#include "tests/support/equivalence.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/label.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/support/close.h"
#include "tests/support/rig.h"
#include "tests/support/world.h"

enum { VOCABULARY = 19, MAX_MICROBATCHES = 4, MAX_TOKENS = EQUIVALENCE_SEQUENCES * EQUIVALENCE_LENGTH };

/* One rank's microbatch. */
struct rows {
    int32_t tokens[MAX_TOKENS], labels[MAX_TOKENS], positions[MAX_TOKENS], document_start[MAX_TOKENS];
    struct microbatch view;
};

static const char *level_of(const struct equivalence_case *c) { return c->kernels ? c->kernels : "reference"; }

void equivalence_describe(const struct equivalence_case *c, char *out, size_t size)
{
    static const char *const policies[] = {"default", "always", "never"};

    snprintf(out, size, "dp_replicate %d x dp_shard %d, %d microbatches, reshard %s, %s, %s%s%s", c->n_replicas,
             c->n_shards, c->n_microbatches, policies[c->reshard], dtype_name(c->type), level_of(c),
             c->with_documents ? ", documents" : "", c->is_tied ? ", tied" : "");
}

/* Sequence `sample` of the step: uneven numbers of labels, in some none at all. */
static void fill_row(struct rows *r, int row, int64_t sample)
{
    struct rng_key key = rng_key_of(5, "equivalence");

    for (int t = 0; t < EQUIVALENCE_LENGTH; t++) {
        uint64_t element = (uint64_t)(sample * EQUIVALENCE_LENGTH + t);
        int at = row * EQUIVALENCE_LENGTH + t, start = t >= 1 + sample % 4 ? (int)(1 + sample % 4) : 0;

        r->tokens[at] = (int32_t)rng_below(key, 2 * element, VOCABULARY);
        r->labels[at] =
            (sample * 7 + t) % 5 < sample % 5 ? LABEL_IGNORED : (int32_t)rng_below(key, 2 * element + 1, VOCABULARY);
        r->document_start[at] = start;
        r->positions[at] = t - start;
    }
}

static int sequences_of(const struct equivalence_case *c)
{
    return c->sequences ? c->sequences : EQUIVALENCE_SEQUENCES;
}

/* Microbatch m of data rank `rank`: samples (m * D + rank) * B + b of the step. Returns its number of labels. */
static int64_t fill(struct rows *r, const struct equivalence_case *c, int64_t step, int rank, int size, int m)
{
    int sequences = sequences_of(c), rows = sequences / (size * c->n_microbatches);
    int64_t valid = 0;

    for (int b = 0; b < rows; b++) fill_row(r, b, step * sequences + (m * size + rank) * rows + b);
    for (int i = 0; i < rows * EQUIVALENCE_LENGTH; i++) {
        valid += r->labels[i] != LABEL_IGNORED;
        if (!c->with_documents) r->positions[i] = i % EQUIVALENCE_LENGTH;
    }
    r->view = (struct microbatch){rows,      EQUIVALENCE_LENGTH, r->tokens,
                                  r->labels, r->positions,       c->with_documents ? r->document_start : NULL};
    return valid;
}

/* What is copied from the device while it works, and read when all is done. */
struct results {
    double loss[EQUIVALENCE_STEPS], norm[EQUIVALENCE_STEPS], validation[MAX_MICROBATCHES];
    max_align_t gradients[]; /* this rank's rows of all tensors, one after the other; then those of parameters */
};

static int64_t own_elements(const struct rig *rig)
{
    int64_t n = 0;

    for (int i = 0; i < rig->model->parameters.n; i++)
        n += rig->model->parameters.items[i]->shard_rows * parameter_row_elements(rig->model->parameters.items[i]);
    return n;
}

/* Copies this rank's rows of every parameter (or gradient) to `to`. */
static err_t copy_rows(struct rig *rig, enum dtype type, bool gradients, char *to, struct error *e)
{
    const struct parameter_list *list = &rig->model->parameters;
    err_t rc = ERR_NONE;

    for (int i = 0; i < list->n && !rc; i++) {
        const struct parameter *p = list->items[i];
        size_t bytes = (size_t)(p->shard_rows * parameter_row_elements(p)) * dtype_bytes(type);

        rc = device_copy(rig->device, to, gradients ? p->shard_gradient : p->shard, bytes, NULL, e);
        to += bytes;
    }
    return rc;
}

/* The whole of every tensor on every rank, in double, out of each rank's rows. */
static err_t collect(struct rig *rig, enum dtype type, const char *rows, double *out, int64_t n, struct error *e)
{
    const struct parameter_list *list = &rig->model->parameters;
    int64_t at = 0;

    memset(out, 0, (size_t)n * sizeof *out);
    for (int i = 0; i < list->n; i++) {
        const struct parameter *p = list->items[i];
        int64_t width = parameter_row_elements(p), own = p->shard_rows * width;

        for (int64_t j = 0; j < own; j++)
            out[at + p->shard_first * width + j] = type == DTYPE_FLOAT64
                                                       ? ((const double *)(const void *)rows)[j]
                                                       : (double)((const float *)(const void *)rows)[j];
        rows += (size_t)own * dtype_bytes(type);
        at += parameter_elements(p);
    }
    return comm_all_reduce(rig->mesh.axis[AXIS_DP_SHARD], "collect", out, (size_t)n, DTYPE_FLOAT64, COMM_SUM, NULL, e);
}

/* Issues one step. *valid: its labels over all ranks. */
static err_t step(struct rig *rig, const struct equivalence_case *c, int index, struct rows *rows,
                  struct results *results, int64_t *valid, struct error *e)
{
    struct microbatch views[MAX_MICROBATCHES];
    struct comm *batch = rig->mesh.batch;
    struct device *d = rig->device;
    err_t rc;

    *valid = 0;
    for (int m = 0; m < c->n_microbatches; m++) {
        *valid += fill(&rows[m], c, index, batch->rank, batch->size, m);
        views[m] = rows[m].view;
    }
    rc = comm_all_reduce(batch, "labels", valid, 1, DTYPE_INT64, COMM_SUM, NULL, e);
    if (!rc) rc = executor_train(&rig->executor, views, 1.0 / (double)*valid, e);
    if (!rc) rc = device_copy(d, &results->loss[index], rig->executor.loss_sum, sizeof(double), NULL, e);
    if (!rc) rc = optimizer_gradient_norm(&rig->optimizer, rig->mesh.device_axis[AXIS_DP_SHARD], 0.5, e);
    if (!rc) rc = device_copy(d, &results->norm[index], rig->optimizer.norm, sizeof(double), NULL, e);
    if (!rc && index == 0) rc = copy_rows(rig, dtype_wide(c->type), true, (char *)results->gradients, e);
    return rc ? rc : optimizer_step(&rig->optimizer, 1e-2, e);
}

/* Issues the validation. *valid: this rank's labels. */
static err_t validate(struct rig *rig, const struct equivalence_case *c, struct rows *rows, struct results *results,
                      int64_t *valid, struct error *e)
{
    err_t rc = ERR_NONE;

    *valid = 0;
    for (int m = 0; m < c->n_microbatches && !rc; m++) {
        *valid += fill(&rows[0], c, 1000, rig->mesh.batch->rank, rig->mesh.batch->size, m);
        rc = executor_validate(&rig->executor, &rows[0].view, e);
        if (!rc)
            rc = device_copy(rig->device, &results->validation[m], rig->executor.loss_sum, sizeof(double), NULL, e);
    }
    return rc;
}

/* Waits for all that was issued, and brings the ranks' results together. */
static err_t gather(struct rig *rig, const struct equivalence_case *c, struct results *results, const int64_t *valid,
                    int64_t validation_valid, struct equivalence_result *out, struct error *e)
{
    const char *gradients = (const char *)results->gradients;
    struct comm *batch = rig->mesh.batch;
    double sum = 0;
    err_t rc = rig->device->ops->stream_synchronize(rig->device, NULL, e);

    if (!rc) rc = collect(rig, dtype_wide(c->type), gradients, out->gradients, out->n, e);
    gradients += (size_t)own_elements(rig) * dtype_bytes(dtype_wide(c->type));
    if (!rc) rc = collect(rig, dtype_wide(c->type), gradients, out->parameters, out->n, e);
    for (int i = 0; i < EQUIVALENCE_STEPS && !rc; i++) {
        rc = comm_all_reduce(batch, "loss", &results->loss[i], 1, DTYPE_FLOAT64, COMM_SUM, NULL, e);
        out->loss[i] = results->loss[i] / (double)valid[i];
        out->norm[i] = results->norm[i];
    }
    for (int m = 0; m < c->n_microbatches; m++) sum += results->validation[m];
    if (!rc) rc = comm_all_reduce(batch, "validation", &sum, 1, DTYPE_FLOAT64, COMM_SUM, NULL, e);
    if (!rc) rc = comm_all_reduce(batch, "validation labels", &validation_valid, 1, DTYPE_INT64, COMM_SUM, NULL, e);
    out->validation_loss = sum / (double)validation_valid;
    return rc;
}

/* All steps and the validation are issued before anything is waited for. */
static err_t train(struct rig *rig, const struct equivalence_case *c, struct rows *rows, struct equivalence_result *out,
                   struct error *e)
{
    size_t tensor_bytes = (size_t)own_elements(rig) * dtype_bytes(dtype_wide(c->type));
    struct results *results = NULL;
    int64_t valid[EQUIVALENCE_STEPS], validation_valid;
    err_t rc = rig->device->ops->host_alloc(rig->device, sizeof *results + 2 * tensor_bytes, (void **)&results, e);

    for (int i = 0; i < EQUIVALENCE_STEPS && !rc; i++) rc = step(rig, c, i, rows, results, &valid[i], e);
    if (!rc) rc = copy_rows(rig, dtype_wide(c->type), false, (char *)results->gradients + tensor_bytes, e);
    if (!rc) rc = validate(rig, c, rows, results, &validation_valid, e);
    if (!rc) rc = gather(rig, c, results, valid, validation_valid, out, e);
    if (results) rig->device->ops->host_free(rig->device, results);
    return rc;
}

err_t equivalence_run(const struct equivalence_case *c, struct comm *world, struct equivalence_result *out,
                      struct error *e)
{
    struct rig_spec spec = {.model = rig_tiny_model(),
                            .type = c->type,
                            .kernels = level_of(c),
                            .reshard = c->reshard,
                            .mesh = {{[AXIS_PP] = 1,
                                      [AXIS_DP_REPLICATE] = c->n_replicas,
                                      [AXIS_DP_SHARD] = c->n_shards,
                                      [AXIS_CP] = 1,
                                      [AXIS_TP] = 1}},
                            .n_microbatches = c->n_microbatches,
                            .length = EQUIVALENCE_LENGTH,
                            .seed = 11,
                            .weight_decay = 0.1,
                            .device = c->device,
                            .lazy_seed = c->lazy_seed};
    struct rows *rows = mem_zalloc(MAX_MICROBATCHES, sizeof *rows);
    struct rig rig = {0};
    err_t rc;

    *out = (struct equivalence_result){.is_tied = c->is_tied};
    spec.model.is_tied = c->is_tied;
    spec.sequences = sequences_of(c) / (c->n_replicas * c->n_shards * c->n_microbatches);
    rc = rows ? rig_open(&rig, &spec, world, e) : FAIL(e, ERR_MEMORY, "out of memory");
    if (!rc) {
        out->n = model_parameters(rig.model);
        out->gradients = mem_zalloc((size_t)out->n, sizeof *out->gradients);
        out->parameters = mem_zalloc((size_t)out->n, sizeof *out->parameters);
        if (!out->gradients || !out->parameters) rc = FAIL(e, ERR_MEMORY, "out of memory");
    }
    if (!rc) rc = train(&rig, c, rows, out, e);
    rig_close(&rig);
    mem_free(rows);
    return rc;
}

void equivalence_release(struct equivalence_result *r)
{
    mem_free(r->gradients);
    mem_free(r->parameters);
    *r = (struct equivalence_result){0};
}

struct threads {
    const struct equivalence_case *c;
    struct equivalence_result *out;
};

static err_t thread_task(struct comm *world, void *arg, struct error *e)
{
    struct threads *t = arg;
    struct equivalence_result own;
    err_t rc = equivalence_run(t->c, world, &own, e);

    if (world->rank == 0)
        *t->out = own;
    else
        equivalence_release(&own);
    return rc;
}

void equivalence_run_threads(const struct equivalence_case *c, struct equivalence_result *out)
{
    struct threads t = {c, out};

    world_run(c->n_replicas * c->n_shards, thread_task, &t);
}

static void near(const char *what, const char *which, int index, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%s: %s of step %d is %.17g, one rank's %.17g", what, which, index + 1, got, want);
}

/* Each tensor by itself: the error of a small one must not hide behind a large one. */
static void tensors_near(const char *what, const char *which, const double *got, const double *want, int64_t n,
                         bool is_tied, double tolerance)
{
    struct device_options options = {.kind = "cpu", .local_size = 1, .threads = 1};
    struct model_spec spec = rig_tiny_model();
    struct device *device;
    struct model *model;
    struct error e = {0};
    char name[256];
    int64_t at = 0;

    spec.is_tied = is_tied;
    if (device_open(&device, &options, &e) ||
        model_create(&model, &spec, device, DTYPE_FLOAT64, EQUIVALENCE_LENGTH, &e))
        fail_msg("%s", e.message);
    for (int i = 0; i < model->parameters.n; i++) {
        int64_t elements = parameter_elements(model->parameters.items[i]);

        snprintf(name, sizeof name, "%s: %s %s", what, which, model->parameters.items[i]->name);
        assert_l2_close(name, DTYPE_FLOAT64, got + at, want + at, (size_t)elements, tolerance);
        at += elements;
    }
    assert_int_equal(at, n);
    model_destroy(model);
    device_close(device);
}

void equivalence_assert_within(const char *what, const struct equivalence_bounds *bounds,
                               const struct equivalence_result *got, const struct equivalence_result *want)
{
    assert_int_equal(got->n, want->n);
    tensors_near(what, "gradient", got->gradients, want->gradients, got->n, got->is_tied, bounds->gradient);
    for (int i = 0; i < EQUIVALENCE_STEPS; i++) {
        near(what, "loss", i, got->loss[i], want->loss[i], i ? bounds->later : bounds->first_loss);
        near(what, "gradient norm", i, got->norm[i], want->norm[i], i ? bounds->later : bounds->first_norm);
    }
    tensors_near(what, "parameter", got->parameters, want->parameters, got->n, got->is_tied, bounds->parameter);
    near(what, "validation loss after", EQUIVALENCE_STEPS - 1, got->validation_loss, want->validation_loss,
         bounds->later);
}

void equivalence_assert_close(const char *what, enum dtype type, const struct equivalence_result *got,
                              const struct equivalence_result *want)
{
    static const struct equivalence_bounds bounds64 = {1e-9, 1e-9, 1e-9, 1e-8, 1e-9},
                                           bounds32 = {1e-5, 1e-5, 1e-5, 1e-4, 1e-4},
                                           bounds16 = {1e-5, 1e-5, 1e-5, 1e-3, 1e-2};

    equivalence_assert_within(what,
                              type == DTYPE_FLOAT64   ? &bounds64
                              : type == DTYPE_FLOAT32 ? &bounds32
                                                      : &bounds16,
                              got, want);
}

void equivalence_assert_bits(const char *what, const struct equivalence_result *got,
                             const struct equivalence_result *want)
{
    char name[256];

    assert_int_equal(got->n, want->n);
    snprintf(name, sizeof name, "%s: gradients", what);
    assert_bits_equal(name, DTYPE_FLOAT64, got->gradients, want->gradients, (size_t)got->n);
    snprintf(name, sizeof name, "%s: parameters", what);
    assert_bits_equal(name, DTYPE_FLOAT64, got->parameters, want->parameters, (size_t)got->n);
    snprintf(name, sizeof name, "%s: losses", what);
    assert_bits_equal(name, DTYPE_FLOAT64, got->loss, want->loss, EQUIVALENCE_STEPS);
    assert_bits_equal(name, DTYPE_FLOAT64, got->norm, want->norm, EQUIVALENCE_STEPS);
    assert_bits_equal(name, DTYPE_FLOAT64, &got->validation_loss, &want->validation_loss, 1);
}
