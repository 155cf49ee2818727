/* SPDX-License-Identifier: MIT */
/*
 * AdamW (Loshchilov, Hutter: "Decoupled Weight Decay Regularization", 2019, algorithm 2) over named tensors, and the
 * global gradient norm.
 *
 * It works on this rank's rows of each parameter and knows nothing of modules or meshes. Parameter groups give some
 * tensors another weight decay or a factor on the rate: the first group whose pattern (POSIX extended regular
 * expression, searched anywhere in the name) matches wins.
 */
#ifndef OPTIM_OPTIMIZER_H
#define OPTIM_OPTIMIZER_H

#include <stdbool.h>

#include "base/mem.h"
#include "comm/comm.h"
#include "device/device.h"
#include "kernels/kernels.h"

struct optim_tensor {
    const char *name;       /* borrowed */
    int64_t n;              /* elements of this rank's rows */
    void *value, *gradient; /* [n], wide, device, borrowed */
    void *first, *second;   /* [n], wide, device: moments; point into the optimizer's storage */
    double weight_decay, lr_factor;
};

struct optim_group {
    const char *pattern;
    int pattern_length;
    double weight_decay, lr_factor; /* NAN: as for all */
};

struct optim_spec {
    struct device *device; /* borrowed, like the rest */
    const struct kernels *kernels;
    enum dtype type; /* the compute type */
    double beta1, beta2, eps, weight_decay;
    const struct optim_group *groups;
    int n_groups;
};

struct optimizer {
    struct optim_spec spec;
    struct optim_tensor *tensors; /* owned array [n] */
    int n;
    void *storage; /* device: all moments */
    struct kernel_context kernel;
    double *sum, *norm, *factor; /* device, [1] each: of squared gradients, its root, what clips it */
    int64_t step;                /* updates done so far */
};

/* Takes over `tensors` (from mem_*); names, values and gradients stay borrowed. Moments start at zero. ERR_CONFIG: a
 * pattern that is no regular expression, or that matches no tensor. */
err_t optimizer_open(struct optimizer *o, const struct optim_spec *spec, struct optim_tensor *tensors, int n,
                     struct error *e) MUST_CHECK;
void optimizer_close(struct optimizer *o);

/* In *o->norm, on the device: the L2 norm of the gradients over all tensors of all ranks of `shards` (ranks that hold
 * different rows), the same on every rank. And in *o->factor what brings it down to max_norm (0 = never), for the next
 * optimizer_step: see clip in kernels.def for the rule. Issued on the main stream, not waited for. */
err_t optimizer_gradient_norm(struct optimizer *o, struct comm *shards, double max_norm, struct error *e) MUST_CHECK;

/* One update with the gradients times the factor that optimizer_gradient_norm has left. */
err_t optimizer_step(struct optimizer *o, double lr, struct error *e) MUST_CHECK;

#endif
