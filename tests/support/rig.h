/* SPDX-License-Identifier: MIT */
/* One rank's model, executor and optimizer without the rest of a trainer, for tests of numbers. */
#ifndef SUPPORT_RIG_H
#define SUPPORT_RIG_H

#include "optim/optimizer.h"
#include "parallel/executor.h"
#include "tests/support/lazy.h"

/* RIG_LAZY + enum lazy_order is the device of lazy.h; RIG_GPU that of gpu.h, with its own kernels. */
enum rig_device { RIG_CPU, RIG_GPU, RIG_LAZY };

struct rig_spec {
    struct model_spec model;
    enum dtype type;
    const char *kernels; /* "reference", "auto" */
    struct mesh_shape mesh;
    enum reshard_policy reshard;
    int n_microbatches, threads;
    int64_t sequences, length; /* of a microbatch */
    uint64_t seed;
    double weight_decay;
    int device; /* enum rig_device */
    uint64_t lazy_seed;
    long fail_block; /* the n-th block asked of the device, counted from 1, is refused; 0 = none */
};

struct rig {
    struct device *device;
    const struct kernels *kernels;
    struct mesh mesh;
    struct model *model;
    struct executor executor;
    struct optimizer optimizer;
};

/* Collective over world. Everything is released by rig_close, also after a failure. */
err_t rig_open(struct rig *r, const struct rig_spec *spec, struct comm *world, struct error *e) MUST_CHECK;
void rig_close(struct rig *r);

/* A number on the device, when all work before it is done. */
err_t rig_read(struct rig *r, const double *on_device, double *out, struct error *e) MUST_CHECK;

/* Sizes of a tiny Llama whose dim 0's do not divide by most numbers of ranks; some shards are empty. */
struct model_spec rig_tiny_model(void);

#endif
