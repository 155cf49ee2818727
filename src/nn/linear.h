/* SPDX-License-Identifier: MIT */
/* y = x W^T, W [out, in], no bias. */
#ifndef NN_LINEAR_H
#define NN_LINEAR_H

#include "nn/module.h"

struct linear {
    struct module module;
    struct parameter *weight; /* [out, in] */
    int64_t in, out;
};

struct linear_frame {
    const void
        *in; /* [tokens, in]; may be set anew by the owner before backward_weight, when it recomputes its input */
    const void *dout; /* [tokens, out] */
};

extern const struct module_ops module_ops_linear;

/* Truncated normal start with deviation std, cut at +-cut (absolute). */
void linear_init(struct linear *l, struct parameter_list *list, const char *name, int64_t in, int64_t out, double std,
                 double cut);

/* backward_input that adds to din instead of overwriting it: for inputs that feed several linears. */
void linear_backward_input_add(const struct linear *l, struct exec *x, struct linear_frame *frame, const void *dout,
                               void *din);

#endif
