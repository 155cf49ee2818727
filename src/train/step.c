/* SPDX-License-Identifier: MIT */
/* One optimizer step, as every mesh and device does it. */
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

err_t train_step(struct trainer *t, struct error *e)
{
    struct step_facts facts = {.step = t->step + 1, .lr = lr_schedule_at(&t->schedule, t->schedule_step + 1)};
    int64_t valid = 0;
    err_t rc = load(t, &valid, &facts.n_tokens, &facts, e);

    if (!rc) rc = executor_train(&t->executor, t->microbatches, valid ? 1.0 / (double)valid : 0.0, &facts.loss_sum, e);
    release(t);
    trace_begin(&t->trace, TRACE_OPTIMIZER);
    if (!rc)
        rc = optimizer_gradient_norm(&t->optimizer, t->mesh.axis[AXIS_DP_SHARD], t->cfg->training.max_norm,
                                     &facts.grad_norm, e);
    if (!rc) rc = optimizer_step(&t->optimizer, facts.lr, e);
    trace_end(&t->trace);
    if (rc) return rc;
    t->step++;
    t->schedule_step++;
    trainer_note_health(t, &facts);
    facts.effective_lr = facts.lr;
    metrics_step(t->metrics, &facts);
    return metrics_is_due(t->metrics, t->step) ? trainer_publish(t, e) : ERR_NONE;
}
