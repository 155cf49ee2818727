/* SPDX-License-Identifier: MIT */
/* The loss on the validation text, forward only. Every rank runs equally many batches; the result is the same on every
 * mesh. */
#include "train/trainer.h"

enum { MOST_LOSSES = 4096 };

/* Losses of batches on their way to the host: they are added there, in the order of the batches. */
struct losses {
    double *sums; /* [MOST_LOSSES], host memory for copies */
    int n;
};

/* Waits for the batches that were issued. */
static err_t add_up(struct trainer *t, struct losses *l, struct validation_facts *facts, struct error *e)
{
    err_t rc = t->device->ops->stream_synchronize(t->device, NULL, e);

    for (int i = 0; i < l->n && !rc; i++) facts->loss_sum += l->sums[i];
    l->n = 0;
    return rc;
}

/* Issues one batch; it is waited for when there is no room for its loss. */
static err_t batch_loss(struct trainer *t, const struct batch *batch, struct losses *l, struct validation_facts *facts,
                        struct error *e)
{
    struct microbatch m = microbatch_of(batch);
    err_t rc = l->n == MOST_LOSSES ? add_up(t, l, facts, e) : ERR_NONE;

    if (!rc) rc = executor_validate(&t->executor, &m, e);
    if (!rc) rc = device_copy(t->device, &l->sums[l->n++], t->executor.loss_sum, sizeof(double), NULL, e);
    facts->n_valid += batch->n_valid;
    facts->n_tokens += batch->n_tokens;
    return rc;
}

static err_t pass(struct trainer *t, struct loader *loader, struct validation_facts *facts, struct error *e)
{
    int64_t limit = t->cfg->validation.steps;
    struct losses losses = {0};
    struct batch *batch;
    err_t rc = t->device->ops->host_alloc(t->device, MOST_LOSSES * sizeof *losses.sums, (void **)&losses.sums, e);

    for (int64_t i = 0; (limit < 0 || i < limit) && !rc; i++) {
        rc = loader_next(loader, &batch, e);
        if (rc || !batch) break;
        rc = batch_loss(t, batch, &losses, facts, e);
        loader_release(loader, batch);
    }
    if (!rc) rc = add_up(t, &losses, facts, e);
    if (losses.sums) {
        t->device->ops->synchronize(t->device, NULL); /* after a failure a copy may still be under way */
        t->device->ops->host_free(t->device, losses.sums);
    }
    if (!rc)
        rc = comm_all_reduce(t->mesh.batch, "count validation tokens", &facts->n_tokens, 1, DTYPE_INT64, COMM_SUM, NULL,
                             e);
    return rc;
}

err_t train_validate(struct trainer *t, struct error *e)
{
    struct loader_spec spec = {.cache = t->validation_tokens,
                               .seq_len = (int)t->cfg->validation.seq_len,
                               .local_batch = (int)t->cfg->validation.local_batch_size,
                               .n_microbatches = 1,
                               .dp_rank = t->mesh.batch->rank,
                               .dp_size = t->mesh.batch->size,
                               .seed = (uint64_t)t->cfg->debug.seed,
                               .document_mask = t->cfg->training.document_mask,
                               .prefetch = 1};
    struct validation_facts facts = {0};
    struct metric_row row, own;
    struct loader *loader = NULL;
    err_t rc;

    metrics_exclude_begin(t->metrics, TRACE_VALIDATION);
    rc = loader_open(&loader, &spec, e);
    if (!rc) rc = pass(t, loader, &facts, e);
    loader_close(loader);
    if (rc) return error_prefix(e, rc, "validation after step %lld", (long long)t->step);
    rc = metrics_collect_validation(t->metrics, t->step, &facts, &row, &own, e);
    if (!rc) trainer_write_rows(t, &row, &own);
    return rc;
}
