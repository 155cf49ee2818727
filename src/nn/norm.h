/* SPDX-License-Identifier: MIT */
/* RMSNorm: y = x / sqrt(mean(x^2) + eps) * w (Zhang, Sennrich 2019). */
#ifndef NN_NORM_H
#define NN_NORM_H

#include "nn/module.h"

struct norm {
    struct module module;
    struct parameter *weight; /* [width] */
    int64_t width;
    double eps;
};

struct norm_frame {
    const void *in;   /* [tokens, width] */
    const void *dout; /* [tokens, width] */
    void *rstd;       /* [tokens], in the stash */
};

extern const struct module_ops module_ops_norm;

void norm_init(struct norm *n, struct parameter_list *list, const char *name, int64_t width, double eps);

/* The output once more, bit for bit, from what the frame holds: cheaper than keeping it. */
void norm_recompute(const struct norm *n, struct exec *x, const struct norm_frame *frame, void *out);

#endif
