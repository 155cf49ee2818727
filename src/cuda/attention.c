/* SPDX-License-Identifier: MIT */
/* cuDNN's attention or our own; see attention.h. */
#include "cuda/attention.h"

#include <stdio.h>

#include "base/mem.h"
#include "cuda/cudnn.h"

struct cuda_attention {
    struct kernels table;
    const struct kernels *plain; /* borrowed */
    struct cudnn *cudnn;         /* owned */
    char level[512];
};

/* cuDNN gives the same bits in each run only with a workspace that grows with length^2. Up to this part of the memory
 * that is free it gets it; longer sequences sum dq in the order in which blocks end. */
enum { FIXED_ORDER_PART = 16 };

/* What cuDNN does not take is a reason to take the other way; what it takes and fails in is a failure. */
static bool is_refusal(err_t rc) { return rc == ERR_UNSUPPORTED || rc == ERR_RANGE; }

static void forward(struct kernel_context *c, const struct attention *a, const void *q, const void *k, const void *v,
                    void *out, wide *lse)
{
    struct cuda_attention *t = cuda_device_of(c->device)->attention;
    struct error e;
    err_t rc =
        cudnn_attention_forward(t->cudnn, a, q, k, v, out, lse, c->workspace, c->workspace_bytes, kernel_stream(c), &e);

    if (is_refusal(rc))
        t->plain->attention_forward(c, a, q, k, v, out, lse);
    else if (rc)
        kernel_fail(c, "attention", e.message);
}

static void backward(struct kernel_context *c, const struct attention *a, const void *q, const void *k, const void *v,
                     const void *out, const wide *lse, const void *dout, void *dq, void *dk, void *dv)
{
    struct cuda_attention *t = cuda_device_of(c->device)->attention;
    struct error e;
    err_t rc = cudnn_attention_backward(t->cudnn, a, q, k, v, out, lse, dout, dq, dk, dv, c->workspace,
                                        c->workspace_bytes, kernel_stream(c), &e);

    if (is_refusal(rc))
        t->plain->attention_backward(c, a, q, k, v, out, lse, dout, dq, dk, dv);
    else if (rc)
        kernel_fail(c, "the gradient of attention", e.message);
}

/* A shape that cuDNN refuses wants nothing: `plain` needs no workspace. */
static err_t prepare(void *owner, const struct attention *a, bool is_backward, size_t *workspace_bytes, struct error *e)
{
    struct cuda_attention *t = owner;
    struct error refused;
    err_t rc = cudnn_attention_prepare(t->cudnn, a, DTYPE_BFLOAT16, is_backward, &refused);

    *workspace_bytes = 0;
    if (is_refusal(rc)) {
        snprintf(t->level, sizeof t->level, "%s, attention without cuDNN (%.400s)", t->plain->level, refused.message);
        return ERR_NONE;
    }
    if (rc) {
        *e = refused;
        return rc;
    }
    *workspace_bytes = cudnn_attention_workspace_bytes(t->cudnn, a, is_backward);
    return ERR_NONE;
}

const struct kernels *cuda_attention_table(struct device *d, const struct kernels *plain)
{
    struct cuda_device *c = cuda_device_of(d);
    struct cudnn_options options = {.fixed_order_bytes = (size_t)d->properties.memory_bytes / FIXED_ORDER_PART};
    struct cuda_attention *t = c->attention;
    char version[64];
    struct error e;

    if (t) return &t->table;
    t = mem_zalloc(1, sizeof *t);
    if (!t) return plain;
    c->attention = t;
    t->plain = plain;
    t->table = *plain;
    t->table.level = t->level;
    if (cudnn_open(&t->cudnn, &options, &e)) {
        snprintf(t->level, sizeof t->level, "%s, attention without cuDNN (%.400s)", plain->level, e.message);
        return &t->table;
    }
    cudnn_version(t->cudnn, version, sizeof version);
    snprintf(t->level, sizeof t->level, "%s, attention by cuDNN %s", plain->level, version);
    t->table.attention_forward = forward;
    t->table.attention_backward = backward;
    t->table.prepare_attention = prepare;
    t->table.owner = t;
    return &t->table;
}

void cuda_attention_destroy(struct cuda_attention *t)
{
    if (!t) return;
    cudnn_close(t->cudnn);
    mem_free(t);
}
