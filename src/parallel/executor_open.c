/* SPDX-License-Identifier: MIT */
/* Setting an executor up: sizes by a dry run of the modules, action lists, storage. See executor.h. */
#include <string.h>

#include "base/mem.h"
#include "parallel/executor.h"
#include "parallel/slot.h"

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Runs one unit dry over a microbatch of the given shape and grows its sizes to what it took. */
static err_t measure_unit(struct executor *x, int index, int64_t sequences, int64_t length, bool with_gradient,
                          struct error *e)
{
    static const int32_t some_documents;
    const struct unit *u = &x->spec.model->units[index];
    struct unit_sizes *size = &x->sizes[index];
    struct kernels nothing = kernels_dry(x->spec.kernels);
    struct exec dry;
    void *frame;

    size->frame_bytes = u->module->ops->frame_bytes;
    frame = mem_zalloc(1, size->frame_bytes);
    if (!frame) return FAIL(e, ERR_MEMORY, "out of memory while planning %s", u->name);
    exec_init_dry(&dry, &nothing, &x->kernel, x->spec.type);
    dry.batch = (struct batch_view){
        .sequences = sequences, .length = length, .document_start = x->spec.has_documents ? &some_documents : NULL};
    dry.with_gradient = with_gradient;
    module_forward(u->module, &dry, frame, NULL, NULL);
    if (with_gradient) {
        module_backward_input(u->module, &dry, frame, NULL, NULL);
        module_backward_weight(u->module, &dry, frame);
    }
    size->stash_bytes = larger(size->stash_bytes, dry.stash.peak);
    size->kept_bytes = larger(size->kept_bytes, dry.kept.peak);
    size->out_bytes = larger(size->out_bytes, (size_t)(sequences * length * u->out_width) * dtype_bytes(x->spec.type));
    x->scratch_bytes = larger(x->scratch_bytes, dry.scratch.peak);
    mem_free(frame);
    return kernel_context_check(&x->kernel, e);
}

static err_t measure(struct executor *x, struct error *e)
{
    const struct executor_spec *s = &x->spec;
    err_t rc = ERR_NONE;

    x->kernel.planned = s->kernels;
    for (int u = 0; u < s->model->n_units && !rc; u++) {
        rc = measure_unit(x, u, s->sequences, s->length, true, e);
        if (!rc && s->validation_sequences)
            rc = measure_unit(x, u, s->validation_sequences, s->validation_length, false, e);
    }
    return rc;
}

static err_t make_lists(struct executor *x, struct error *e)
{
    const struct model *m = x->spec.model;
    struct fsdp_facts facts = {.n_units = m->n_units,
                               .n_groups = m->n_groups,
                               .n_shards = x->spec.mesh->shape.degree[AXIS_DP_SHARD],
                               .n_replicas = x->spec.mesh->shape.degree[AXIS_DP_REPLICATE],
                               .casts = x->spec.type != dtype_wide(x->spec.type),
                               .reshard = x->spec.reshard};
    int *group_of_unit = mem_zalloc((size_t)m->n_units, sizeof *group_of_unit);
    struct action_list compute = {0};
    err_t rc;

    if (!group_of_unit) return FAIL(e, ERR_MEMORY, "out of memory while planning");
    for (int u = 0; u < m->n_units; u++) group_of_unit[u] = m->units[u].group;
    facts.group_of_unit = group_of_unit;
    rc = schedule_sequential(&compute, m->n_units, x->spec.n_microbatches, e);
    if (!rc) rc = fsdp_pass(&x->train, &compute, &facts, e);
    action_list_release(&compute);
    if (!rc) rc = schedule_forward(&compute, m->n_units, 1, e);
    if (!rc) rc = fsdp_pass(&x->validate, &compute, &facts, e);
    action_list_release(&compute);
    mem_free(group_of_unit);
    return rc;
}

static err_t open_group(struct executor *x, int index, struct error *e)
{
    const struct model *m = x->spec.model;
    struct group_context context = {.device = x->spec.device,
                                    .k = x->spec.kernels,
                                    .kernel = &x->comm_kernel,
                                    .type = x->spec.type,
                                    .shard_comm = x->spec.mesh->device_axis[AXIS_DP_SHARD],
                                    .replicate_comm = x->spec.mesh->device_axis[AXIS_DP_REPLICATE],
                                    .comm_stream = x->comm};
    struct parameter **members;
    const char *name = "";
    int n = 0;

    for (int i = 0; i < m->parameters.n; i++) n += m->group_of[i] == index;
    members = mem_zalloc((size_t)n, sizeof *members);
    if (!members) return FAIL(e, ERR_MEMORY, "out of memory for the parameters");
    n = 0;
    for (int i = 0; i < m->parameters.n; i++)
        if (m->group_of[i] == index) members[n++] = m->parameters.items[i];
    for (int u = m->n_units - 1; u >= 0; u--)
        if (m->units[u].group == index) name = m->units[u].name;
    return group_open(&x->groups[index], name, members, n, &context, e);
}

/* Host memory for two steps' inputs, where copies go on after their call. */
static err_t open_staging(struct executor *x, struct error *e)
{
    struct device *d = x->spec.device;
    size_t bytes = (size_t)x->spec.n_microbatches * INPUTS * x->buffers[0].bytes;
    err_t rc = ERR_NONE;

    if (d->properties.is_immediate || d->ops->is_dry) return ERR_NONE;
    for (int i = 0; i < 2 && !rc; i++) {
        rc = d->ops->host_alloc(d, bytes, (void **)&x->staging[i].inputs, e);
        if (rc) break;
        memset(x->staging[i].inputs, 0, bytes); /* what a batch does not fill is copied too */
        rc = d->ops->event_create(d, &x->staging[i].copied, e);
        if (!rc) rc = d->ops->event_record(d, x->staging[i].copied, NULL, e);
    }
    return rc;
}

/* One block for the inputs of all microbatches: the allocator searches its blocks, and there may be thousands of
 * microbatches. */
static err_t open_buffers(struct executor *x, struct error *e)
{
    enum { INPUT_ALIGN_BYTES = 64 };
    const struct executor_spec *s = &x->spec;
    size_t tokens =
        larger((size_t)(s->sequences * s->length), (size_t)(s->validation_sequences * s->validation_length));
    size_t bytes = (tokens * sizeof(int32_t) + INPUT_ALIGN_BYTES - 1) & ~(size_t)(INPUT_ALIGN_BYTES - 1);
    err_t rc = device_alloc(s->device, (size_t)s->n_microbatches * INPUTS * bytes, MEMORY_BUFFERS, "inputs", NULL,
                            (void **)&x->inputs, e);

    for (int i = 0; i < s->n_microbatches && !rc; i++) {
        uintptr_t at = (uintptr_t)x->inputs + (size_t)i * INPUTS * bytes;

        x->buffers[i] = (struct batch_buffers){.tokens = (int32_t *)at,
                                               .labels = (int32_t *)(at + bytes),
                                               .positions = (int32_t *)(at + 2 * bytes),
                                               .document_start = (int32_t *)(at + 3 * bytes),
                                               .bytes = bytes};
    }
    for (int i = 0; i < s->n_microbatches * s->model->n_units && !rc; i++) {
        struct slot *slot = &x->slots[i];

        slot->frame = mem_zalloc(1, x->sizes[i % s->model->n_units].frame_bytes);
        if (!slot->frame) rc = FAIL(e, ERR_MEMORY, "out of memory for activations' frames");
    }
    return rc;
}

err_t executor_open(struct executor *x, const struct executor_spec *spec, struct error *e)
{
    struct device *d = spec->device;
    size_t units = (size_t)spec->model->n_units, microbatches = (size_t)spec->n_microbatches, wanted_bytes;
    err_t rc;

    *x = (struct executor){.spec = *spec};
    x->groups = mem_zalloc((size_t)spec->model->n_groups, sizeof *x->groups);
    x->sizes = mem_zalloc(units, sizeof *x->sizes);
    x->slots = mem_zalloc(units * microbatches, sizeof *x->slots);
    x->buffers = mem_zalloc(microbatches, sizeof *x->buffers);
    if (!x->groups || !x->sizes || !x->slots || !x->buffers) {
        rc = FAIL(e, ERR_MEMORY, "out of memory for %zu microbatches of %zu units", microbatches, units);
        goto out;
    }
    rc = d->ops->stream_create(d, &x->comm, e);
    if (!rc) rc = d->ops->event_create(d, &x->order, e);
    if (!rc) rc = measure(x, e);
    wanted_bytes = x->kernel.wanted_bytes;
    if (!rc) rc = make_lists(x, e);
    for (int i = 0; i < spec->model->n_groups && !rc; i++) rc = open_group(x, i, e);
    if (!rc) rc = open_buffers(x, e);
    if (!rc) rc = open_staging(x, e);
    if (!rc) rc = device_alloc(d, x->scratch_bytes, MEMORY_SCRATCH, "scratch", NULL, &x->scratch, e);
    if (!rc) rc = device_alloc(d, sizeof *x->loss_sum, MEMORY_BUFFERS, "loss", NULL, (void **)&x->loss_sum, e);
    if (!rc) rc = kernel_context_open(&x->kernel, d, spec->kernels, NULL, true, e);
    if (!rc) rc = kernel_context_grow(&x->kernel, wanted_bytes, e);
    if (!rc) rc = kernel_context_open(&x->comm_kernel, d, spec->kernels, x->comm, false, e);
    x->exec = (struct exec){.k = spec->kernels, .kernel = &x->kernel, .type = spec->type, .loss_sum = x->loss_sum};
out:
    if (rc) executor_close(x);
    return rc;
}
