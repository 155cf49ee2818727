/* SPDX-License-Identifier: MIT */
/* The transformer block; see block.h. */
#include "nn/block.h"

#include <stdio.h>

static const struct block *self(const struct module *m) { return (const struct block *)m; }

static void block_forward(const struct module *m, struct exec *x, void *frame, const void *in, void *out)
{
    const struct block *b = self(m);
    struct block_frame *f = frame;
    int64_t n = exec_tokens(x) * b->width;
    size_t mark = x->scratch.used;
    void *normed, *branch;

    f->mid = exec_stash(x, n);
    normed = exec_scratch(x, n);
    branch = exec_scratch(x, n);
    module_forward(&b->attention_norm.module, x, &f->attention_norm, in, normed);
    module_forward(&b->attention.module, x, &f->attention, normed, branch);
    x->k->add(x->kernel, n, in, branch, f->mid);
    module_forward(&b->ffn_norm.module, x, &f->ffn_norm, f->mid, normed);
    module_forward(&b->feed_forward.module, x, &f->feed_forward, normed, branch);
    x->k->add(x->kernel, n, f->mid, branch, out);
    x->scratch.used = mark;
}

/* dmid = dout + norm'(mlp'(dout)); din = dmid + norm'(attention'(dmid)). What weight gradients need later is kept. */
static void block_backward_input(const struct module *m, struct exec *x, void *frame, const void *dout, void *din)
{
    const struct block *b = self(m);
    struct block_frame *f = frame;
    int64_t n = exec_tokens(x) * b->width;
    void *normed = exec_kept(x, n), *dnormed = exec_kept(x, n), *dmid = exec_kept(x, n);

    norm_recompute(&b->ffn_norm, x, &f->ffn_norm, normed);
    mlp_set_input(&f->feed_forward, normed);
    module_backward_input(&b->feed_forward.module, x, &f->feed_forward, dout, dnormed);
    module_backward_input(&b->ffn_norm.module, x, &f->ffn_norm, dnormed, dmid);
    x->k->add(x->kernel, n, dmid, dout, dmid);

    normed = exec_kept(x, n);
    dnormed = exec_kept(x, n);
    norm_recompute(&b->attention_norm, x, &f->attention_norm, normed);
    self_attention_set_input(&f->attention, normed);
    module_backward_input(&b->attention.module, x, &f->attention, dmid, dnormed);
    module_backward_input(&b->attention_norm.module, x, &f->attention_norm, dnormed, din);
    x->k->add(x->kernel, n, din, dmid, din);
}

static void block_backward_weight(const struct module *m, struct exec *x, void *frame)
{
    const struct block *b = self(m);
    struct block_frame *f = frame;

    module_backward_weight(&b->feed_forward.module, x, &f->feed_forward);
    module_backward_weight(&b->ffn_norm.module, x, &f->ffn_norm);
    module_backward_weight(&b->attention.module, x, &f->attention);
    module_backward_weight(&b->attention_norm.module, x, &f->attention_norm);
}

void block_init(struct block *b, struct parameter_list *list, const char *name, const struct block_spec *spec,
                const struct rope *rope)
{
    char path[PARAMETER_NAME_BYTES];

    *b = (struct block){.module = {&module_ops_block}, .width = spec->attention.width};
    snprintf(path, sizeof path, "%s.attention", name);
    self_attention_init(&b->attention, list, path, &spec->attention, rope);
    snprintf(path, sizeof path, "%s.feed_forward", name);
    mlp_init(&b->feed_forward, list, path, &spec->mlp);
    snprintf(path, sizeof path, "%s.attention_norm", name);
    norm_init(&b->attention_norm, list, path, b->width, spec->norm_eps);
    snprintf(path, sizeof path, "%s.ffn_norm", name);
    norm_init(&b->ffn_norm, list, path, b->width, spec->norm_eps);
}

const struct module_ops module_ops_block = {
    .kind = "block",
    .frame_bytes = sizeof(struct block_frame),
    .forward = block_forward,
    .backward_input = block_backward_input,
    .backward_weight = block_backward_weight,
};
