/* SPDX-License-Identifier: MIT */
/* Agreement among the ranks of a checkpoint; see agree.h. */
#include "checkpoint/agree.h"

#include <string.h>

#include "base/mem.h"

err_t checkpoint_agree(struct comm *c, err_t mine, struct error *e)
{
    struct {
        int64_t code;
        char message[ERROR_MESSAGE_BYTES];
    } told = {0};
    int64_t worst = mine ? c->size - c->rank : 0; /* the maximum over the ranks names the lowest that failed */
    int failed;
    err_t rc;

    if (mine) {
        told.code = mine;
        if (e) memcpy(told.message, e->message, sizeof told.message);
    }
    rc = comm_all_reduce(c, "agree on the checkpoint", &worst, 1, DTYPE_INT64, COMM_MAX, NULL, mine ? NULL : e);
    if (rc) return mine ? mine : rc;
    if (!worst) return ERR_NONE;
    failed = c->size - (int)worst;
    rc = comm_broadcast(c, "tell what failed", &told, sizeof told, failed, NULL, mine ? NULL : e);
    if (rc) return mine ? mine : rc;
    told.message[sizeof told.message - 1] = '\0';
    if (c->size == 1) return mine;
    return FAIL(e, (err_t)told.code, "rank %d: %s", failed, told.message);
}

err_t checkpoint_gather_texts(struct comm *c, const struct str *mine, char **out, size_t *block_bytes, struct error *e)
{
    int64_t longest = (int64_t)mine->length;
    char *all = NULL, *own;
    size_t block;
    err_t rc;

    *out = NULL;
    rc = comm_all_reduce(c, "longest report", &longest, 1, DTYPE_INT64, COMM_MAX, NULL, e);
    if (rc) return rc;
    block = (size_t)longest + 1;
    all = mem_zalloc((size_t)c->size, block);
    rc = checkpoint_agree(c, all ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory for the ranks' reports"), e);
    if (rc) goto out;
    own = all + (size_t)c->rank * block;
    memcpy(own, str_text(mine), mine->length);
    rc = comm_all_gather(c, "reports", own, all, block, DTYPE_UINT8, NULL, e);
out:
    if (rc) {
        mem_free(all);
        return rc;
    }
    *out = all;
    *block_bytes = block;
    return ERR_NONE;
}

err_t checkpoint_share_text(struct comm *c, struct str *text, struct error *e)
{
    int64_t n = (int64_t)text->length;
    char *copy;
    err_t rc;

    rc = comm_broadcast(c, "length of the text", &n, sizeof n, 0, NULL, e);
    if (rc) return rc;
    copy = mem_zalloc((size_t)n + 1, 1);
    if (copy && c->rank == 0) memcpy(copy, str_text(text), (size_t)n);
    rc = checkpoint_agree(
        c, copy ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory for a text of %lld bytes", (long long)n), e);
    if (!rc) rc = comm_broadcast(c, "text", copy, (size_t)n, 0, NULL, e);
    if (!rc && c->rank) str_add_bytes(text, copy, (size_t)n);
    mem_free(copy);
    return rc ? rc : checkpoint_agree(c, str_ok(text, e), e);
}
