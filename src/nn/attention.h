/* SPDX-License-Identifier: MIT */
/*
 * Causal self-attention with grouped queries and rotary positions:
 *   q, k, v = x wq^T, x wk^T, x wv^T;  q, k = rope(q), rope(k);  out = attention(q, k, v) wo^T.
 */
#ifndef NN_ATTENTION_H
#define NN_ATTENTION_H

#include "nn/linear.h"
#include "nn/rope.h"

struct attention_spec {
    int64_t width, heads, kv_heads, head_dim;
    double std, std_out, cut; /* of wq, wk, wv, and of wo */
};

struct self_attention {
    struct module module;
    struct linear wq, wk, wv, wo;
    int64_t heads, kv_heads, head_dim;
    const struct rope *rope; /* borrowed */
};

struct self_attention_frame {
    struct linear_frame wq, wk, wv, wo;
    void *q, *k, *v; /* [tokens, heads*head_dim], [tokens, kv_heads*head_dim] twice; q and k after rope; stash */
    void *out, *lse; /* [tokens, heads*head_dim], [sequences, heads, length]; stash */
};

extern const struct module_ops module_ops_self_attention;

void self_attention_init(struct self_attention *a, struct parameter_list *list, const char *name,
                         const struct attention_spec *spec, const struct rope *rope);

/* The owner recomputed the input: use this copy for the weight gradients. */
void self_attention_set_input(struct self_attention_frame *f, const void *in);

#endif
