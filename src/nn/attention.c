/* SPDX-License-Identifier: MIT */
/* The self-attention module; see attention.h. The scores never exist: the kernel works by blocks and keeps
 * log-sum-exps. */
#include "nn/attention.h"

#include <math.h>
#include <stdio.h>

static const struct self_attention *self(const struct module *m) { return (const struct self_attention *)m; }

static struct attention shapes(const struct self_attention *a, const struct exec *x)
{
    return (struct attention){
        .sequences = x->batch.sequences,
        .length = x->batch.length,
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .d_qk = a->head_dim,
        .d_v = a->head_dim,
        .ld_q = a->heads * a->head_dim,
        .ld_k = a->kv_heads * a->head_dim,
        .ld_v = a->kv_heads * a->head_dim,
        .ld_out = a->heads * a->head_dim,
        .scale = 1.0 / sqrt((double)a->head_dim),
        .causal = true,
        .document_start = x->batch.document_start,
    };
}

static void rotate(const struct self_attention *a, struct exec *x, int64_t heads, bool inverse, void *data)
{
    x->k->rope(x->kernel, exec_tokens(x), heads, a->head_dim, heads * a->head_dim, a->rope->cos, a->rope->sin,
               x->batch.positions, inverse, data);
}

static void self_attention_forward(const struct module *m, struct exec *x, void *frame, const void *in, void *out)
{
    const struct self_attention *a = self(m);
    struct self_attention_frame *f = frame;
    struct attention shape = shapes(a, x);
    int64_t tokens = exec_tokens(x);

    f->q = exec_stash(x, tokens * shape.ld_q);
    f->k = exec_stash(x, tokens * shape.ld_k);
    f->v = exec_stash(x, tokens * shape.ld_v);
    f->out = exec_stash(x, tokens * shape.ld_out);
    f->lse = exec_stash_wide(x, tokens * a->heads);
    module_forward(&a->wq.module, x, &f->wq, in, f->q);
    module_forward(&a->wk.module, x, &f->wk, in, f->k);
    module_forward(&a->wv.module, x, &f->wv, in, f->v);
    rotate(a, x, a->heads, false, f->q);
    rotate(a, x, a->kv_heads, false, f->k);
    x->k->attention_forward(x->kernel, &shape, f->q, f->k, f->v, f->out, f->lse);
    module_forward(&a->wo.module, x, &f->wo, f->out, out);
}

static void self_attention_backward_input(const struct module *m, struct exec *x, void *frame, const void *dout,
                                          void *din)
{
    const struct self_attention *a = self(m);
    struct self_attention_frame *f = frame;
    struct attention shape = shapes(a, x);
    int64_t tokens = exec_tokens(x);
    void *dq = exec_kept(x, tokens * shape.ld_q), *dk = exec_kept(x, tokens * shape.ld_k),
         *dv = exec_kept(x, tokens * shape.ld_v);
    size_t mark = x->scratch.used;
    void *dheads = exec_scratch(x, tokens * shape.ld_out);

    module_backward_input(&a->wo.module, x, &f->wo, dout, dheads);
    x->k->attention_backward(x->kernel, &shape, f->q, f->k, f->v, f->out, f->lse, dheads, dq, dk, dv);
    x->scratch.used = mark;
    rotate(a, x, a->heads, true, dq);
    rotate(a, x, a->kv_heads, true, dk);
    module_backward_input(&a->wq.module, x, &f->wq, dq, din);
    linear_backward_input_add(&a->wk, x, &f->wk, dk, din);
    linear_backward_input_add(&a->wv, x, &f->wv, dv, din);
}

static void self_attention_backward_weight(const struct module *m, struct exec *x, void *frame)
{
    const struct self_attention *a = self(m);
    struct self_attention_frame *f = frame;

    module_backward_weight(&a->wo.module, x, &f->wo);
    module_backward_weight(&a->wq.module, x, &f->wq);
    module_backward_weight(&a->wk.module, x, &f->wk);
    module_backward_weight(&a->wv.module, x, &f->wv);
}

void self_attention_set_input(struct self_attention_frame *f, const void *in) { f->wq.in = f->wk.in = f->wv.in = in; }

void self_attention_init(struct self_attention *a, struct parameter_list *list, const char *name,
                         const struct attention_spec *spec, const struct rope *rope)
{
    int64_t q_width = spec->heads * spec->head_dim, kv_width = spec->kv_heads * spec->head_dim;
    char path[PARAMETER_NAME_BYTES];

    *a = (struct self_attention){.module = {&module_ops_self_attention},
                                 .heads = spec->heads,
                                 .kv_heads = spec->kv_heads,
                                 .head_dim = spec->head_dim,
                                 .rope = rope};
    snprintf(path, sizeof path, "%s.wq", name);
    linear_init(&a->wq, list, path, spec->width, q_width, spec->std, spec->cut);
    snprintf(path, sizeof path, "%s.wk", name);
    linear_init(&a->wk, list, path, spec->width, kv_width, spec->std, spec->cut);
    snprintf(path, sizeof path, "%s.wv", name);
    linear_init(&a->wv, list, path, spec->width, kv_width, spec->std, spec->cut);
    snprintf(path, sizeof path, "%s.wo", name);
    linear_init(&a->wo, list, path, q_width, spec->width, spec->std_out, spec->cut);
}

const struct module_ops module_ops_self_attention = {
    .kind = "self_attention",
    .frame_bytes = sizeof(struct self_attention_frame),
    .forward = self_attention_forward,
    .backward_input = self_attention_backward_input,
    .backward_weight = self_attention_backward_weight,
};
