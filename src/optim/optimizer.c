/* SPDX-License-Identifier: MIT */
/* AdamW over named tensors; see optimizer.h. */
#include "optim/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/pattern.h"

enum { MOMENT_ALIGN_BYTES = 64 };

static size_t moment_bytes(const struct optimizer *o, int i)
{
    size_t bytes = (size_t)o->tensors[i].n * dtype_bytes(dtype_wide(o->spec.type));

    return (bytes + MOMENT_ALIGN_BYTES - 1) & ~(size_t)(MOMENT_ALIGN_BYTES - 1);
}

/* Gives the group's settings to every tensor that no earlier group has taken. */
static err_t apply_group(struct optimizer *o, const struct optim_group *g, bool *is_taken, struct error *e)
{
    regex_t regex;
    int n_matches = 0;
    err_t rc = pattern_compile(&regex, g->pattern, g->pattern_length, e);

    if (rc) return error_prefix(e, rc, "optimizer.param_groups");
    for (int i = 0; i < o->n; i++) {
        struct optim_tensor *t = &o->tensors[i];

        if (regexec(&regex, t->name, 0, NULL, 0) != 0) continue;
        n_matches++;
        if (is_taken[i]) continue;
        is_taken[i] = true;
        if (!isnan(g->weight_decay)) t->weight_decay = g->weight_decay;
        if (!isnan(g->lr_factor)) t->lr_factor = g->lr_factor;
    }
    regfree(&regex);
    if (n_matches) return ERR_NONE;
    return FAIL(e, ERR_CONFIG, "optimizer.param_groups: \"%.*s\" matches no parameter; names look like %s",
                g->pattern_length, g->pattern, o->n ? o->tensors[o->n / 2].name : "layers.0.attention.wq.weight");
}

static err_t assign_groups(struct optimizer *o, struct error *e)
{
    bool *is_taken = mem_zalloc((size_t)o->n + 1, sizeof *is_taken);
    err_t rc = ERR_NONE;

    if (!is_taken) return FAIL(e, ERR_MEMORY, "out of memory for optimizer.param_groups");
    for (int i = 0; i < o->n; i++) {
        o->tensors[i].weight_decay = o->spec.weight_decay;
        o->tensors[i].lr_factor = 1.0;
    }
    for (int i = 0; i < o->spec.n_groups && !rc; i++) rc = apply_group(o, &o->spec.groups[i], is_taken, e);
    mem_free(is_taken);
    return rc;
}

err_t optimizer_open(struct optimizer *o, const struct optim_spec *spec, struct optim_tensor *tensors, int n,
                     struct error *e)
{
    size_t total = 0;
    char *at;
    err_t rc;

    *o = (struct optimizer){.spec = *spec, .tensors = tensors, .n = n};
    rc = assign_groups(o, e);
    o->spec.groups = NULL; /* borrowed for this call only */
    for (int i = 0; i < n; i++) total += 2 * moment_bytes(o, i);
    if (!rc) rc = device_alloc_zeros(spec->device, total, MEMORY_OPTIMIZER, "moments", NULL, &o->storage, e);
    if (!rc) rc = kernel_context_open(&o->kernel, spec->device, spec->kernels, NULL, false, e);
    if (!rc) rc = device_alloc(spec->device, 3 * sizeof *o->sum, MEMORY_BUFFERS, "norm", NULL, (void **)&o->sum, e);
    if (rc) {
        optimizer_close(o);
        return rc;
    }
    o->norm = o->sum + 1;
    o->factor = o->sum + 2;
    at = o->storage;
    for (int i = 0; i < n; i++) {
        tensors[i].first = at;
        at += moment_bytes(o, i);
        tensors[i].second = at;
        at += moment_bytes(o, i);
    }
    return ERR_NONE;
}

void optimizer_close(struct optimizer *o)
{
    if (!o->spec.device) return;
    kernel_context_close(&o->kernel);
    device_free(o->spec.device, o->storage);
    device_free(o->spec.device, o->sum);
    mem_free(o->tensors);
    *o = (struct optimizer){0};
}

err_t optimizer_gradient_norm(struct optimizer *o, struct comm *shards, double max_norm, struct error *e)
{
    err_t rc = device_zero(o->spec.device, o->sum, sizeof *o->sum, NULL, e);

    for (int i = 0; i < o->n && !rc; i++)
        if (o->tensors[i].n) o->spec.kernels->sum_squares(&o->kernel, o->tensors[i].n, o->tensors[i].gradient, o->sum);
    if (!rc) rc = kernel_context_check(&o->kernel, e);
    if (!rc) rc = comm_all_reduce(shards, "gradient norm", o->sum, 1, DTYPE_FLOAT64, COMM_SUM, NULL, e);
    if (!rc) o->spec.kernels->clip(&o->kernel, o->sum, max_norm, o->norm, o->factor);
    return rc ? rc : kernel_context_check(&o->kernel, e);
}

err_t optimizer_step(struct optimizer *o, double lr, struct error *e)
{
    struct adamw_step step = {.beta1 = o->spec.beta1, .beta2 = o->spec.beta2, .eps = o->spec.eps};

    o->step++;
    step.bias_correction1 = 1.0 - pow(o->spec.beta1, (double)o->step);
    step.bias_correction2 = 1.0 - pow(o->spec.beta2, (double)o->step);
    for (int i = 0; i < o->n; i++) {
        struct optim_tensor *t = &o->tensors[i];

        step.lr = lr * t->lr_factor;
        step.weight_decay = t->weight_decay;
        if (t->n)
            o->spec.kernels->adamw(&o->kernel, &step, o->factor, t->n, t->gradient, t->value, t->first, t->second);
    }
    return kernel_context_check(&o->kernel, e);
}
