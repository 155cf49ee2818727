/* SPDX-License-Identifier: MIT */
/* The loss on the validation text, forward only. Every rank runs equally many batches; the result is the same on every
 * mesh. */
#include "train/trainer.h"

static err_t pass(struct trainer *t, struct loader *loader, struct validation_facts *facts, struct error *e)
{
    int64_t limit = t->cfg->validation.steps;
    struct microbatch m;
    struct batch *batch;
    double loss_sum;
    err_t rc = ERR_NONE;

    for (int64_t i = 0; (limit < 0 || i < limit) && !rc; i++) {
        rc = loader_next(loader, &batch, e);
        if (rc || !batch) break;
        m = microbatch_of(batch);
        rc = executor_validate(&t->executor, &m, &loss_sum, e);
        if (!rc) facts->loss_sum += loss_sum;
        facts->n_valid += batch->n_valid;
        facts->n_tokens += batch->n_tokens;
        loader_release(loader, batch);
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
