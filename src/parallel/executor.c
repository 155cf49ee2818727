/* SPDX-License-Identifier: MIT */
/* Running action lists; see executor.h. executor_open.c finds the sizes, this file moves the data. */
#include "parallel/executor.h"

#include <string.h>

#include "base/mem.h"
#include "parallel/slot.h"

static int n_units(const struct executor *x) { return x->spec.model->n_units; }

static struct slot *slot_of(struct executor *x, int microbatch, int unit)
{
    return &x->slots[microbatch * n_units(x) + unit];
}

static err_t take(struct executor *x, size_t bytes, const char *label, void **out, struct error *e)
{
    return device_alloc(x->spec.device, bytes, MEMORY_STASH, label, NULL, out, e);
}

static void give(struct executor *x, void **p)
{
    device_free(x->spec.device, *p);
    *p = NULL;
}

static struct region region_of(void *base, size_t bytes) { return (struct region){.base = base, .bytes = bytes}; }

/* Waits for the unit's parameters, and sets the microbatch and the regions for a module call. */
static err_t prepare(struct executor *x, int unit, int microbatch, struct error *e)
{
    struct parameter_group *g = &x->groups[x->spec.model->units[unit].group];
    struct slot *s = slot_of(x, microbatch, unit);

    x->exec.batch = x->buffers[microbatch].view;
    x->exec.stash = region_of(s->stash, s->stash ? x->sizes[unit].stash_bytes : 0);
    x->exec.stash.used = s->stash_used;
    x->exec.kept = region_of(s->kept, s->kept ? x->sizes[unit].kept_bytes : 0);
    x->exec.scratch = region_of(x->scratch, x->scratch_bytes);
    return group_await(g, e);
}

static err_t forward(struct executor *x, int unit, int microbatch, struct error *e)
{
    const struct unit *u = &x->spec.model->units[unit];
    const struct unit_sizes *size = &x->sizes[unit];
    struct slot *s = slot_of(x, microbatch, unit), *previous = unit ? slot_of(x, microbatch, unit - 1) : NULL;
    err_t rc = take(x, size->stash_bytes, u->name, &s->stash, e);

    s->stash_used = 0;
    if (!rc) rc = take(x, size->out_bytes, u->name, &s->out, e);
    if (!rc && x->exec.with_gradient && u->is_gradient_in_forward) rc = group_gradient_begin(&x->groups[u->group], e);
    if (!rc) rc = prepare(x, unit, microbatch, e);
    if (rc) return rc;
    memset(s->frame, 0, size->frame_bytes);
    module_forward(u->module, &x->exec, s->frame, previous ? previous->out : NULL, s->out);
    s->stash_used = x->exec.stash.used;
    if (!x->exec.with_gradient) {
        give(x, &s->stash);
        if (previous) give(x, &previous->out);
    }
    return kernel_context_check(&x->kernel, e);
}

/* din of a unit is kept with the unit below, as the gradient of that unit's output. */
static err_t backward_input(struct executor *x, int unit, int microbatch, struct error *e)
{
    const struct unit *u = &x->spec.model->units[unit];
    struct slot *s = slot_of(x, microbatch, unit), *previous = unit ? slot_of(x, microbatch, unit - 1) : NULL;
    err_t rc = take(x, x->sizes[unit].kept_bytes, u->name, &s->kept, e);

    if (!rc && previous) rc = take(x, x->sizes[unit - 1].out_bytes, u->name, &previous->dout, e);
    if (!rc) rc = prepare(x, unit, microbatch, e);
    if (rc) return rc;
    module_backward_input(u->module, &x->exec, s->frame, s->dout, previous ? previous->dout : NULL);
    return kernel_context_check(&x->kernel, e);
}

static err_t backward_weight(struct executor *x, int unit, int microbatch, struct error *e)
{
    const struct unit *u = &x->spec.model->units[unit];
    struct slot *s = slot_of(x, microbatch, unit), *previous = unit ? slot_of(x, microbatch, unit - 1) : NULL;
    err_t rc = group_gradient_begin(&x->groups[u->group], e);

    if (!rc) rc = prepare(x, unit, microbatch, e);
    if (rc) return rc;
    module_backward_weight(u->module, &x->exec, s->frame);
    give(x, &s->stash);
    give(x, &s->kept);
    give(x, &s->dout);
    if (previous) give(x, &previous->out);
    return kernel_context_check(&x->kernel, e);
}

/* Communication goes on when the computation before it is done. */
static err_t after_compute(struct executor *x, struct error *e)
{
    return device_order(x->spec.device, x->comm, NULL, x->order, e);
}

/* And the main stream when the communication is. */
static err_t after_communication(struct executor *x, struct error *e)
{
    return device_order(x->spec.device, NULL, x->comm, x->order, e);
}

static err_t run_action(struct executor *x, const struct action *a, struct error *e)
{
    struct parameter_group *g = &x->groups[a->index];
    enum trace_phase phase = a->kind == ACTION_FORWARD ? TRACE_FORWARD : TRACE_BACKWARD;
    bool is_compute = a->kind <= ACTION_BACKWARD_WEIGHT;
    err_t rc = ERR_NONE;

    if (is_compute) trace_begin(x->spec.trace, phase);
    switch (a->kind) {
    case ACTION_FORWARD: rc = forward(x, a->index, a->microbatch, e); break;
    case ACTION_BACKWARD_INPUT: rc = backward_input(x, a->index, a->microbatch, e); break;
    case ACTION_BACKWARD_WEIGHT: rc = backward_weight(x, a->index, a->microbatch, e); break;
    case ACTION_GATHER: rc = group_gather(g, e); break;
    case ACTION_FREE: group_free(g); break;
    case ACTION_REDUCE:
        rc = after_compute(x, e);
        if (!rc) rc = group_reduce(g, e);
        break;
    case ACTION_REPLICATE:
        rc = after_compute(x, e);
        if (!rc) rc = group_replicate(g, e);
        break;
    }
    if (is_compute) trace_end(x->spec.trace);
    return rc;
}

/* Where host memory goes at once, or by way of staging memory (to: [4][bytes], as in the device's inputs). */
static err_t put(struct executor *x, struct batch_buffers *b, int input, const void *host, size_t bytes, char *staging,
                 struct error *e)
{
    int32_t *const on_device[] = {b->tokens, b->labels, b->positions, b->document_start};

    if (!staging) return device_copy(x->spec.device, on_device[input], host, bytes, NULL, e);
    if (host) memcpy(staging + (size_t)input * b->bytes, host, bytes);
    return ERR_NONE;
}

static err_t upload_one(struct executor *x, int index, const struct microbatch *m, char *staging, struct error *e)
{
    struct batch_buffers *b = &x->buffers[index];
    size_t bytes = (size_t)(m->sequences * m->length) * sizeof(int32_t);
    err_t rc;

    BUG_ON(bytes > b->bytes);
    b->view = (struct batch_view){.sequences = m->sequences,
                                  .length = m->length,
                                  .tokens = b->tokens,
                                  .labels = b->labels,
                                  .positions = b->positions,
                                  .document_start = m->document_start ? b->document_start : NULL};
    rc = put(x, b, 0, m->tokens, bytes, staging, e);
    if (!rc) rc = put(x, b, 1, m->labels, bytes, staging, e);
    if (!rc) rc = put(x, b, 2, m->positions, bytes, staging, e);
    if (!rc && m->document_start) rc = put(x, b, 3, m->document_start, bytes, staging, e);
    return rc;
}

/* Copies the microbatches to the device; they are the caller's again at once. */
static err_t upload(struct executor *x, const struct microbatch *microbatches, int n, struct error *e)
{
    struct device *d = x->spec.device;
    struct staging *s = &x->staging[x->turn];
    size_t stride = INPUTS * x->buffers[0].bytes;
    err_t rc = s->inputs ? d->ops->event_synchronize(d, s->copied, e) : ERR_NONE;

    for (int i = 0; i < n && !rc; i++)
        rc = upload_one(x, i, &microbatches[i], s->inputs ? s->inputs + (size_t)i * stride : NULL, e);
    if (rc || !s->inputs) return rc;
    x->turn = !x->turn;
    rc = device_copy(d, x->inputs, s->inputs, (size_t)n * stride, NULL, e);
    return rc ? rc : d->ops->event_record(d, s->copied, NULL, e);
}

static void clear_slots(struct executor *x)
{
    for (int i = 0; i < x->spec.n_microbatches * n_units(x); i++) {
        struct slot *s = &x->slots[i];

        give(x, &s->stash);
        give(x, &s->kept);
        give(x, &s->out);
        give(x, &s->dout);
    }
}

/* Whatever a failed run left in flight. */
static void abandon(struct executor *x)
{
    clear_slots(x);
    for (int i = 0; i < x->spec.model->n_groups; i++) group_abandon(&x->groups[i]);
}

static err_t run(struct executor *x, const struct action_list *list, const struct microbatch *microbatches, int n,
                 struct error *e)
{
    err_t rc = device_zero(x->spec.device, x->loss_sum, sizeof *x->loss_sum, NULL, e);

    if (!rc) rc = upload(x, microbatches, n, e);
    if (!rc) rc = after_compute(x, e);
    for (int i = 0; i < list->n && !rc; i++) rc = run_action(x, &list->items[i], e);
    if (!rc) rc = after_communication(x, e);
    if (rc) abandon(x);
    return rc;
}

err_t executor_train(struct executor *x, const struct microbatch *microbatches, double loss_scale, struct error *e)
{
    err_t rc = ERR_NONE;

    x->exec.with_gradient = true;
    x->exec.loss_scale = loss_scale;
    for (int i = 0; i < x->spec.model->n_groups && !rc; i++) rc = group_gradient_zero(&x->groups[i], e);
    return rc ? rc : run(x, &x->train, microbatches, x->spec.n_microbatches, e);
}

err_t executor_validate(struct executor *x, const struct microbatch *microbatch, struct error *e)
{
    x->exec.with_gradient = false;
    x->exec.loss_scale = 0.0;
    return run(x, &x->validate, microbatch, 1, e);
}

err_t executor_initialise(struct executor *x, uint64_t seed, struct error *e)
{
    err_t rc = ERR_NONE;

    for (int i = 0; i < x->spec.model->n_groups && !rc; i++) rc = group_initialise(&x->groups[i], seed, e);
    return rc;
}

void executor_close(struct executor *x)
{
    struct device *d = x->spec.device;

    if (!d) return;
    d->ops->synchronize(d, NULL); /* nothing may still use what is given back */
    if (x->slots) clear_slots(x);
    for (int i = 0; x->slots && i < x->spec.n_microbatches * n_units(x); i++) mem_free(x->slots[i].frame);
    for (int i = 0; x->groups && i < x->spec.model->n_groups; i++) group_close(&x->groups[i]);
    for (int i = 0; i < 2; i++) {
        if (x->staging[i].inputs) d->ops->host_free(d, x->staging[i].inputs);
        if (x->staging[i].copied) d->ops->event_destroy(d, x->staging[i].copied);
    }
    device_free(d, x->inputs);
    device_free(d, x->scratch);
    device_free(d, x->loss_sum);
    kernel_context_close(&x->kernel);
    kernel_context_close(&x->comm_kernel);
    if (x->order) d->ops->event_destroy(d, x->order);
    if (x->comm) d->ops->stream_destroy(d, x->comm);
    action_list_release(&x->train);
    action_list_release(&x->validate);
    mem_free(x->slots);
    mem_free(x->buffers);
    mem_free(x->groups);
    mem_free(x->sizes);
    *x = (struct executor){0};
}
