/* SPDX-License-Identifier: MIT */
/* The fused end of a model; see head.h. */
#include "nn/head.h"

static const struct head *self(const struct module *m) { return (const struct head *)m; }

static void *offset(const struct exec *x, const void *base, int64_t elements)
{
    return (void *)((uintptr_t)base + (size_t)elements * dtype_bytes(x->type));
}

/* logits = normed W^T, loss, and with gradients: dlogits in place of logits, dnormed = dlogits W, dW += dlogits^T
 * normed. */
static void chunk(const struct head *h, struct exec *x, int64_t first, int64_t tokens, const void *normed, void *logits,
                  void *dnormed)
{
    const struct parameter *w = h->output.weight;
    const void *in = offset(x, normed, first * h->width);

    x->k->gemm(x->kernel, false, true, tokens, h->vocabulary, h->width, in, h->width, w->value, h->width, false, logits,
               h->vocabulary);
    x->k->cross_entropy(x->kernel, tokens, h->vocabulary, logits, x->batch.labels + first, x->loss_scale,
                        x->with_gradient, x->loss_sum);
    if (!x->with_gradient) return;
    x->k->gemm(x->kernel, false, false, tokens, h->width, h->vocabulary, logits, h->vocabulary, w->value, h->width,
               false, offset(x, dnormed, first * h->width), h->width);
    x->k->gemm_wide(x->kernel, true, false, h->vocabulary, h->width, tokens, logits, h->vocabulary, in, h->width, true,
                    w->gradient, h->width);
}

static void head_forward(const struct module *m, struct exec *x, void *frame, const void *in, void *out)
{
    const struct head *h = self(m);
    struct head_frame *f = frame;
    int64_t tokens = exec_tokens(x), most = x->k->chunk_tokens ? x->k->chunk_tokens : HEAD_CHUNK_TOKENS,
            n = tokens < most ? tokens : most;
    size_t mark = x->scratch.used;
    void *normed = exec_scratch(x, tokens * h->width), *logits = exec_scratch(x, n * h->vocabulary);

    (void)out;
    if (x->with_gradient) f->dnormed = exec_stash(x, tokens * h->width);
    module_forward(&h->norm.module, x, &f->norm, in, normed);
    for (int64_t first = 0; first < tokens; first += n)
        chunk(h, x, first, tokens - first < n ? tokens - first : n, normed, logits, f->dnormed);
    x->scratch.used = mark;
}

static void head_backward_input(const struct module *m, struct exec *x, void *frame, const void *dout, void *din)
{
    struct head_frame *f = frame;

    (void)dout;
    module_backward_input(&self(m)->norm.module, x, &f->norm, f->dnormed, din);
}

static void head_backward_weight(const struct module *m, struct exec *x, void *frame)
{
    struct head_frame *f = frame;

    module_backward_weight(&self(m)->norm.module, x, &f->norm);
}

void head_logits(const struct head *h, struct exec *x, const void *in, void *logits)
{
    int64_t tokens = exec_tokens(x);
    size_t mark = x->scratch.used;
    void *normed = exec_scratch(x, tokens * h->width);

    x->k->rmsnorm_forward(x->kernel, tokens, h->width, h->norm.eps, in, h->norm.weight->value, normed, NULL);
    x->k->gemm(x->kernel, false, true, tokens, h->vocabulary, h->width, normed, h->width, h->output.weight->value,
               h->width, false, logits, h->vocabulary);
    x->scratch.used = mark;
}

void head_init(struct head *h, struct parameter_list *list, const struct head_spec *spec)
{
    *h = (struct head){.module = {&module_ops_head}, .width = spec->width, .vocabulary = spec->vocabulary};
    norm_init(&h->norm, list, "norm", spec->width, spec->norm_eps);
    if (spec->tied)
        h->output = (struct linear){
            .module = {&module_ops_linear}, .weight = spec->tied, .in = spec->width, .out = spec->vocabulary};
    else
        linear_init(&h->output, list, "output", spec->width, spec->vocabulary, spec->std, spec->cut);
}

const struct module_ops module_ops_head = {
    .kind = "head",
    .frame_bytes = sizeof(struct head_frame),
    .forward = head_forward,
    .backward_input = head_backward_input,
    .backward_weight = head_backward_weight,
};
