/* SPDX-License-Identifier: MIT */
/* A rank without a trainer; see rig.h. */
#include "tests/support/rig.h"

#include "base/mem.h"
#include "device/allocator.h"
#include "tests/support/gpu.h"

struct model_spec rig_tiny_model(void)
{
    return (struct model_spec){.family = "llama3",
                               .flavor = "tiny",
                               .dim = 12,
                               .n_layers = 2,
                               .n_heads = 3,
                               .n_kv_heads = 1,
                               .head_dim = 4,
                               .ffn_dim = 10,
                               .vocab_size = 19,
                               .norm_eps = 1e-5,
                               .rope_theta = 10000,
                               .max_seq_len = 64};
}

static err_t open_device(struct rig *r, const struct rig_spec *spec, struct error *e)
{
    struct device_options cpu = {.kind = "cpu", .local_size = 1, .threads = spec->threads ? spec->threads : 1};

    if (spec->device == RIG_CPU) return device_open(&r->device, &cpu, e);
    if (spec->device >= RIG_LAZY)
        return lazy_device_open(&r->device, (enum lazy_order)(spec->device - RIG_LAZY), spec->lazy_seed, e);
    r->device = gpu_open(0);
    return mesh_attach(&r->mesh, r->device, e);
}

/* Kernels and collectives that wait in the device's streams. */
static err_t make_lazy(struct rig *r, struct error *e)
{
    err_t rc = ERR_NONE;

    r->kernels = lazy_kernels(r->device, r->kernels);
    for (int a = 0; a < AXIS_COUNT && !rc; a++) {
        struct comm *own;

        rc = lazy_comm_create(&own, r->device, r->mesh.axis[a], e);
        if (!rc) r->mesh.device_axis[a] = own;
    }
    return rc;
}

err_t rig_open(struct rig *r, const struct rig_spec *spec, struct comm *world, struct error *e)
{
    struct executor_spec executor = {.mesh = &r->mesh,
                                     .type = spec->type,
                                     .reshard = spec->reshard,
                                     .n_microbatches = spec->n_microbatches,
                                     .sequences = spec->sequences,
                                     .length = spec->length,
                                     .validation_sequences = spec->sequences,
                                     .validation_length = spec->length};
    struct optim_spec optim = {
        .type = spec->type, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = spec->weight_decay};
    struct optim_tensor *tensors = NULL;
    err_t rc;

    *r = (struct rig){0};
    rc = mesh_open(&r->mesh, &spec->mesh, world, e);
    if (!rc) rc = open_device(r, spec, e);
    if (!rc) allocator_fault_arm(r->device->allocator, spec->fail_block - 1);
    if (!rc) rc = kernels_for(&r->kernels, r->device, spec->type, spec->device == RIG_GPU ? "auto" : spec->kernels, e);
    if (!rc && spec->device >= RIG_LAZY) rc = make_lazy(r, e);
    if (!rc) rc = model_create(&r->model, &spec->model, r->device, spec->type, spec->length, e);
    if (rc) return rc;
    executor.model = r->model;
    executor.device = optim.device = r->device;
    executor.kernels = optim.kernels = r->kernels;
    rc = executor_open(&r->executor, &executor, e);
    if (!rc) rc = executor_initialise(&r->executor, spec->seed, e);
    if (rc) return rc;
    tensors = mem_zalloc((size_t)r->model->parameters.n, sizeof *tensors);
    if (!tensors) return FAIL(e, ERR_MEMORY, "out of memory");
    for (int i = 0; i < r->model->parameters.n; i++) {
        const struct parameter *p = r->model->parameters.items[i];

        tensors[i] = (struct optim_tensor){.name = p->name,
                                           .n = p->shard_rows * parameter_row_elements(p),
                                           .value = p->shard,
                                           .gradient = p->shard_gradient};
    }
    return optimizer_open(&r->optimizer, &optim, tensors, r->model->parameters.n, e);
}

err_t rig_read(struct rig *r, const double *on_device, double *out, struct error *e)
{
    return device_read(r->device, out, on_device, sizeof *out, e);
}

void rig_close(struct rig *r)
{
    optimizer_close(&r->optimizer);
    executor_close(&r->executor);
    model_destroy(r->model);
    mesh_detach(&r->mesh);
    device_close(r->device);
    mesh_close(&r->mesh);
    *r = (struct rig){0};
}
