/* SPDX-License-Identifier: MIT */
/* Attention by cuDNN: which shapes, their plans, and the calls; see cudnn.h. */
#include "cuda/cudnn.h"

err_t cudnn_attention_supports(const struct attention *a, enum dtype compute, struct error *e)
{
    enum { ALIGNMENT = 8 }; /* elements of bfloat16 in 16 bytes */

    if (compute != DTYPE_BFLOAT16)
        return FAIL(e, ERR_UNSUPPORTED, "attention by cuDNN is of bfloat16, not of %s", dtype_name(compute));
    if (!a->causal || a->window > 0) return FAIL(e, ERR_UNSUPPORTED, "attention by cuDNN is causal and has no window");
    if (a->d_qk % ALIGNMENT || a->d_v % ALIGNMENT)
        return FAIL(e, ERR_UNSUPPORTED, "cuDNN wants heads of a multiple of %d elements, these have %lld and %lld",
                    ALIGNMENT, (long long)a->d_qk, (long long)a->d_v);
    if (a->ld_q % ALIGNMENT || a->ld_k % ALIGNMENT || a->ld_v % ALIGNMENT || a->ld_out % ALIGNMENT)
        return FAIL(e, ERR_UNSUPPORTED, "cuDNN wants rows that begin at a multiple of 16 bytes");
    return ERR_NONE;
}

#if __has_include(<cudnn.h>)

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/cudnn_plan.h"

/* One shape in one direction. */
struct prepared {
    struct attention shape; /* without what is no part of it: zero */
    bool is_backward, fixed_order;
    struct cudnn_plan plan;
    size_t workspace_bytes;
    err_t refused; /* cuDNN's answer, kept */
    struct error error;
};

struct cudnn {
    struct cudnn_target target;
    size_t fixed_order_bytes;
    struct prepared **items; /* owned */
    int n, capacity;
};

enum { ALIGN_BYTES = 256 };

static size_t aligned(size_t bytes) { return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES; }

static size_t delta_bytes(const struct attention *a)
{
    return (size_t)(a->sequences * a->heads * a->length) * sizeof(float);
}

static size_t dq_sum_bytes(const struct prepared *p)
{
    return p->is_backward && !p->fixed_order ? delta_bytes(&p->shape) * (size_t)p->shape.d_qk : 0;
}

/* What the plan of a fixed order wants, about: all scores in bfloat16. */
static bool has_fixed_order(const struct cudnn *c, const struct attention *a)
{
    return (double)a->sequences * (double)a->heads * (double)a->length * (double)a->length * 2 <=
           (double)c->fixed_order_bytes;
}

err_t cudnn_open(struct cudnn **out, const struct cudnn_options *options, struct error *e)
{
    struct cudnn *c = mem_zalloc(1, sizeof *c);
    err_t rc;

    *out = NULL;
    if (!c) return FAIL(e, ERR_MEMORY, "out of memory while opening cuDNN");
    rc = cudnn_target_open(&c->target, options->properties, e);
    if (rc) {
        mem_free(c);
        return rc;
    }
    c->fixed_order_bytes = options->fixed_order_bytes;
    *out = c;
    return ERR_NONE;
}

void cudnn_close(struct cudnn *c)
{
    if (!c) return;
    for (int i = 0; i < c->n; i++) {
        cudnn_plan_release(&c->items[i]->plan, &c->target);
        mem_free(c->items[i]);
    }
    mem_free(c->items);
    cudnn_target_close(&c->target);
    mem_free(c);
}

void cudnn_version(const struct cudnn *c, char *text, size_t bytes)
{
    int version = (int)c->target.cudnnGetVersion();

    snprintf(text, bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

/* ---- plans ---- */

/* What plans depend on; document_start is any pointer. */
static struct attention shape_of(const struct attention *a)
{
    static const int32_t has_documents;
    struct attention shape = *a;

    shape.scale = 0;
    shape.document_start = a->document_start ? &has_documents : NULL;
    return shape;
}

static bool same_shape(const struct attention *a, const struct attention *b)
{
    return a->sequences == b->sequences && a->length == b->length && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->d_qk == b->d_qk && a->d_v == b->d_v && a->ld_q == b->ld_q &&
           a->ld_k == b->ld_k && a->ld_v == b->ld_v && a->ld_out == b->ld_out && a->causal == b->causal &&
           a->window == b->window && !a->document_start == !b->document_start;
}

static struct prepared *find(const struct cudnn *c, const struct attention *a, bool is_backward)
{
    for (int i = 0; i < c->n; i++)
        if (c->items[i]->is_backward == is_backward && same_shape(&c->items[i]->shape, a)) return c->items[i];
    return NULL;
}

/* A new entry, which owns nothing yet; NULL: no memory. */
static struct prepared *add(struct cudnn *c)
{
    struct prepared *p;

    if (c->n == c->capacity) {
        int capacity = c->capacity ? 2 * c->capacity : 8;
        struct prepared **items = mem_resize(c->items, (size_t)capacity, sizeof(struct prepared *));

        if (!items) return NULL;
        c->items = items;
        c->capacity = capacity;
    }
    p = mem_zalloc(1, sizeof *p);
    if (p) c->items[c->n++] = p;
    return p;
}

static err_t prepare(struct cudnn *c, const struct attention *a, bool is_backward, struct prepared **out,
                     struct error *e)
{
    struct prepared *p = find(c, a, is_backward);

    *out = p;
    if (!p) {
        *out = p = add(c);
        if (!p) return FAIL(e, ERR_MEMORY, "out of memory for a plan of attention");
        p->shape = shape_of(a);
        p->is_backward = is_backward;
        p->fixed_order = has_fixed_order(c, a);
        if (is_backward)
            attention_graph_backward(&p->plan.graph, a, p->fixed_order);
        else
            attention_graph_forward(&p->plan.graph, a);
        p->refused = cudnn_plan_build(&p->plan, &c->target, &p->error);
        if (!p->refused)
            p->workspace_bytes = ALIGN_BYTES + aligned(p->plan.workspace_bytes) +
                                 (is_backward ? aligned(delta_bytes(a)) : 0) + dq_sum_bytes(p);
    }
    if (p->refused && e) *e = p->error;
    return p->refused;
}

err_t cudnn_attention_prepare(struct cudnn *c, const struct attention *a, enum dtype compute, bool with_backward,
                              struct error *e)
{
    struct prepared *p;
    err_t rc = cudnn_attention_supports(a, compute, e);

    if (!rc) rc = prepare(c, a, false, &p, e);
    if (!rc && with_backward) rc = prepare(c, a, true, &p, e);
    return rc;
}

size_t cudnn_attention_workspace_bytes(const struct cudnn *c, const struct attention *a, bool is_backward)
{
    const struct prepared *p = find(c, a, is_backward);

    return p ? p->workspace_bytes : 0;
}

/* ---- calls ---- */
static err_t run(struct cudnn *c, const struct prepared *p, const void *data[GRAPH_ROLES], double scale,
                 void *workspace, size_t workspace_bytes, cudaStream_t stream, struct error *e)
{
    const float factor = (float)scale, lowest = -INFINITY, one = 1;
    char *start = (char *)aligned((uintptr_t)workspace), *delta = start + aligned(p->plan.workspace_bytes),
         *dq_sum = delta + aligned(delta_bytes(&p->shape));
    cudnnStatus_t status;

    if (workspace_bytes < p->workspace_bytes)
        return FAIL(e, ERR_RANGE, "attention by cuDNN wants a workspace of %zu bytes, it got %zu", p->workspace_bytes,
                    workspace_bytes);
    if (dq_sum_bytes(p)) {
        cudaError_t code = cudaMemsetAsync(dq_sum, 0, dq_sum_bytes(p), stream);

        if (code != cudaSuccess)
            return FAIL(e, ERR_DEVICE, "cudaMemsetAsync before attention: %s", cudaGetErrorString(code));
    }
    status = c->target.cudnnSetStream(c->target.handle, stream);
    if (status != CUDNN_STATUS_SUCCESS)
        return FAIL(e, ERR_DEVICE, "cuDNN: the stream: %s", c->target.cudnnGetErrorString(status));
    data[GRAPH_DELTA] = delta;
    data[GRAPH_DQ_SUM] = dq_sum;
    data[GRAPH_SCALE] = &factor;
    data[GRAPH_LOWEST] = &lowest;
    data[GRAPH_ONE] = &one;
    return cudnn_plan_run(&p->plan, &c->target, data, start, e);
}

err_t cudnn_attention_forward(struct cudnn *c, const struct attention *a, const void *q, const void *k, const void *v,
                              void *out, void *lse, void *workspace, size_t workspace_bytes, cudaStream_t stream,
                              struct error *e)
{
    const void *data[GRAPH_ROLES] = {[GRAPH_Q] = q,     [GRAPH_K] = k,     [GRAPH_V] = v,
                                     [GRAPH_OUT] = out, [GRAPH_LSE] = lse, [GRAPH_DOCUMENT_START] = a->document_start};
    struct prepared *p;
    err_t rc = cudnn_attention_supports(a, DTYPE_BFLOAT16, e);

    if (!rc) rc = prepare(c, a, false, &p, e);
    return rc ? rc : run(c, p, data, a->scale, workspace, workspace_bytes, stream, e);
}

err_t cudnn_attention_backward(struct cudnn *c, const struct attention *a, const void *q, const void *k, const void *v,
                               const void *out, const void *lse, const void *dout, void *dq, void *dk, void *dv,
                               void *workspace, size_t workspace_bytes, cudaStream_t stream, struct error *e)
{
    const void *data[GRAPH_ROLES] = {[GRAPH_Q] = q,     [GRAPH_K] = k,
                                     [GRAPH_V] = v,     [GRAPH_OUT] = out,
                                     [GRAPH_LSE] = lse, [GRAPH_DOUT] = dout,
                                     [GRAPH_DQ] = dq,   [GRAPH_DK] = dk,
                                     [GRAPH_DV] = dv,   [GRAPH_DOCUMENT_START] = a->document_start};
    struct prepared *p;
    err_t rc = cudnn_attention_supports(a, DTYPE_BFLOAT16, e);

    if (!rc) rc = prepare(c, a, true, &p, e);
    return rc ? rc : run(c, p, data, a->scale, workspace, workspace_bytes, stream, e);
}

#else

err_t cudnn_open(struct cudnn **out, const struct cudnn_options *options, struct error *e)
{
    (void)options;
    *out = NULL;
    return FAIL(e, ERR_UNSUPPORTED, "the plugin was built where cudnn.h is not installed");
}

/* Nobody has a struct cudnn: the others are there to be linked. */
void cudnn_close(struct cudnn *c) { BUG_ON(c); }

void cudnn_version(const struct cudnn *c, char *text, size_t bytes) { BUG("%p %p %zu", (void *)c, text, bytes); }

err_t cudnn_attention_prepare(struct cudnn *c, const struct attention *a, enum dtype compute, bool with_backward,
                              struct error *e)
{
    BUG("%p %p %d %d %p", (void *)c, (void *)a, (int)compute, with_backward, (void *)e);
}

size_t cudnn_attention_workspace_bytes(const struct cudnn *c, const struct attention *a, bool is_backward)
{
    BUG("%p %p %d", (void *)c, (void *)a, is_backward);
}

err_t cudnn_attention_forward(struct cudnn *c, const struct attention *a, const void *q, const void *k, const void *v,
                              void *out, void *lse, void *workspace, size_t workspace_bytes, struct CUstream_st *stream,
                              struct error *e)
{
    const void *unused[] = {c, a, q, k, v, out, lse, workspace, &workspace_bytes, stream, e};

    BUG("%p", (void *)unused);
}

err_t cudnn_attention_backward(struct cudnn *c, const struct attention *a, const void *q, const void *k, const void *v,
                               const void *out, const void *lse, const void *dout, void *dq, void *dk, void *dv,
                               void *workspace, size_t workspace_bytes, struct CUstream_st *stream, struct error *e)
{
    const void *unused[] = {c, a, q, k, v, out, lse, dout, dq, dk, dv, workspace, &workspace_bytes, stream, e};

    BUG("%p", (void *)unused);
}

#endif
