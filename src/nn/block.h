/* SPDX-License-Identifier: MIT */
/* A pre-norm transformer block: mid = x + attention(norm(x)); out = mid + mlp(norm(mid)). */
#ifndef NN_BLOCK_H
#define NN_BLOCK_H

#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"

struct block_spec {
    struct attention_spec attention;
    struct mlp_spec mlp;
    double norm_eps;
};

struct block {
    struct module module;
    struct norm attention_norm, ffn_norm;
    struct self_attention attention;
    struct mlp feed_forward;
    int64_t width;
};

/* The normalised inputs of the two branches are not kept: backward_input computes them again, bit for bit. */
struct block_frame {
    struct norm_frame attention_norm, ffn_norm;
    struct self_attention_frame attention;
    struct mlp_frame feed_forward;
    void *mid; /* [tokens, width]; stash */
};

extern const struct module_ops module_ops_block;

void block_init(struct block *b, struct parameter_list *list, const char *name, const struct block_spec *spec,
                const struct rope *rope);

#endif
