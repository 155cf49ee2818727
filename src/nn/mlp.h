/* SPDX-License-Identifier: MIT */
/* The gated feed-forward module: out = (silu(x w1^T) * (x w3^T)) w2^T (SwiGLU, Shazeer 2020). */
#ifndef NN_MLP_H
#define NN_MLP_H

#include "nn/linear.h"

struct mlp_spec {
    int64_t width, hidden;
    double std, std_out, cut; /* std of w1; std_out of w2 and w3 (torchtitan's rule) */
};

struct mlp {
    struct module module;
    struct linear w1, w2, w3;
    int64_t hidden;
};

struct mlp_frame {
    struct linear_frame w1, w2, w3;
    void *gate, *up; /* [tokens, hidden]; stash. The product silu(gate) * up is computed again in the backward pass */
};

extern const struct module_ops module_ops_mlp;

void mlp_init(struct mlp *m, struct parameter_list *list, const char *name, const struct mlp_spec *spec);

/* The owner recomputed the input: use this copy for the weight gradients. */
void mlp_set_input(struct mlp_frame *f, const void *in);

#endif
