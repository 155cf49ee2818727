/* SPDX-License-Identifier: MIT */
/*
 * One optimizer step, as every mesh and device does it.
 *
 * A step is issued and not waited for: its loss and norm are copied to the host behind its work, and the step before is
 * settled while the device works on this one. So at most one step is in flight between two calls. Where work is done
 * when a call returns, a step is settled at once.
 */
#include "comm/wait.h"
#include "train/trainer.h"

/* The step's microbatches, and in *valid and *tokens the labels and tokens of the whole step over all data ranks. */
static err_t load(struct trainer *t, int64_t *valid, int64_t *tokens, struct step_facts *facts, struct error *e)
{
    int64_t count[2] = {0, 0};
    err_t rc = ERR_NONE;

    trace_begin(&t->trace, TRACE_DATA);
    for (int i = 0; i < t->n_microbatches && !rc; i++) {
        rc = loader_next(t->loader, &t->batches[i], e);
        if (rc) break;
        t->microbatches[i] = microbatch_of(t->batches[i]);
        count[0] += t->batches[i]->n_valid;
        count[1] += t->batches[i]->n_tokens;
    }
    trace_end(&t->trace);
    facts->n_valid = count[0];
    if (!rc) rc = comm_all_reduce(t->mesh.batch, "count labels", count, 2, DTYPE_INT64, COMM_SUM, NULL, e);
    *valid = count[0];
    *tokens = count[1];
    return rc;
}

static void release(struct trainer *t)
{
    for (int i = 0; i < t->n_microbatches; i++) {
        loader_release(t->loader, t->batches[i]);
        t->batches[i] = NULL;
    }
}

/* Copies the step's results to the host, behind its work. */
static err_t note(struct trainer *t, const struct step_facts *facts, struct error *e)
{
    struct step_result *r = &t->results[facts->step % 2];
    struct device *d = t->device;
    err_t rc = device_copy(d, &r->scalars->loss_sum, t->executor.loss_sum, sizeof(double), NULL, e);

    if (!rc) rc = device_copy(d, &r->scalars->grad_norm, t->optimizer.norm, sizeof(double), NULL, e);
    if (!rc) rc = d->ops->event_record(d, r->done, NULL, e);
    r->facts = *facts;
    r->is_pending = !rc;
    return rc;
}

/* Waits for a step's results and tells them; nothing happens for one that is settled. */
static err_t settle(struct trainer *t, struct step_result *r, struct error *e)
{
    struct comm *const comms[] = {t->mesh.device_axis[AXIS_DP_SHARD], t->mesh.device_axis[AXIS_DP_REPLICATE]};
    err_t rc;

    if (!r->is_pending) return ERR_NONE;
    r->is_pending = false;
    rc = comm_wait_event(t->device, r->done, comms, 2, t->patience_s, e);
    if (!rc) {
        r->facts.loss_sum = r->scalars->loss_sum;
        r->facts.grad_norm = r->scalars->grad_norm;
        trainer_note_health(t, &r->facts);
        metrics_step(t->metrics, &r->facts);
        if (metrics_is_due(t->metrics, r->facts.step)) rc = trainer_publish(t, e);
    }
    return rc ? error_prefix(e, rc, "step %lld", (long long)r->facts.step) : ERR_NONE;
}

err_t trainer_settle(struct trainer *t, struct error *e)
{
    err_t rc = settle(t, &t->results[(t->step + 1) % 2], e);

    return rc ? rc : settle(t, &t->results[t->step % 2], e);
}

err_t train_step(struct trainer *t, struct error *e)
{
    struct step_facts facts = {.step = t->step + 1, .lr = lr_schedule_at(&t->schedule, t->schedule_step + 1)};
    int64_t valid = 0;
    err_t rc = load(t, &valid, &facts.n_tokens, &facts, e);

    if (!rc) rc = executor_train(&t->executor, t->microbatches, valid ? 1.0 / (double)valid : 0.0, e);
    release(t);
    trace_begin(&t->trace, TRACE_OPTIMIZER);
    if (!rc)
        rc = optimizer_gradient_norm(&t->optimizer, t->mesh.device_axis[AXIS_DP_SHARD], t->cfg->training.max_norm, e);
    if (!rc) rc = optimizer_step(&t->optimizer, facts.lr, e);
    trace_end(&t->trace);
    facts.effective_lr = facts.lr;
    if (!rc) rc = note(t, &facts, e);
    if (rc) return error_prefix(e, rc, "step %lld", (long long)facts.step);
    t->step++;
    t->schedule_step++;
    return t->device->properties.is_immediate ? trainer_settle(t, e) : settle(t, &t->results[(t->step + 1) % 2], e);
}

err_t trainer_open_results(struct trainer *t, struct error *e)
{
    struct device *d = t->device;
    err_t rc = d->ops->host_alloc(d, 2 * sizeof *t->scalars, (void **)&t->scalars, e);

    for (int i = 0; i < 2 && !rc; i++) {
        t->results[i].scalars = &t->scalars[i];
        rc = d->ops->event_create(d, &t->results[i].done, e);
    }
    return rc;
}

void trainer_close_results(struct trainer *t)
{
    if (t->device) t->device->ops->synchronize(t->device, NULL); /* a step that failed may still be copying */
    for (int i = 0; i < 2; i++)
        if (t->results[i].done) t->device->ops->event_destroy(t->device, t->results[i].done);
    if (t->scalars) t->device->ops->host_free(t->device, t->scalars);
    t->scalars = NULL;
}
