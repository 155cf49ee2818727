/* SPDX-License-Identifier: MIT */
/*
 * With what a module runs: kernels, memory by lifetime, and the read-only facts of the microbatch.
 *
 * Memory comes from three regions that the executor has set up: `stash` lives from a frame's forward to its
 * backward_weight, `kept` from backward_input to backward_weight, `scratch` within one call (take a mark, release to
 * it). Their sizes are exact because the plan measures them: it runs the same module code with kernels that do nothing
 * (kernels_dry) over regions that only count.
 */
#ifndef NN_EXEC_H
#define NN_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "kernels/kernels.h"

struct region {
    char *base;   /* borrowed; NULL when only counting */
    size_t bytes; /* capacity; REGION_COUNTING when only counting */
    size_t used, peak;
};
#define REGION_COUNTING (SIZE_MAX / 2) /* also the count of whatever is more: no device has it */

/* The microbatch, on the device. tokens = sequences * length. */
struct batch_view {
    int64_t sequences, length;
    const int32_t *tokens;         /* [tokens] */
    const int32_t *labels;         /* [tokens], -100 = none */
    const int32_t *positions;      /* [tokens] */
    const int32_t *document_start; /* [tokens] or NULL */
};

struct exec {
    const struct kernels *k;       /* borrowed */
    struct kernel_context *kernel; /* borrowed */
    enum dtype type;               /* the compute type */
    struct region stash, kept, scratch;
    struct batch_view batch;
    bool with_gradient; /* false in validation: what forward stashes for backward is dropped after each unit */
    double loss_scale;  /* 1 / valid labels of the whole step */
    double *loss_sum;   /* borrowed, on the device; grown by the head: summed cross-entropy, unscaled */
};

static inline int64_t exec_tokens(const struct exec *x) { return x->batch.sequences * x->batch.length; }

/* Room for n elements of x->type (or n bytes), aligned to 64 bytes; a region with memory that overflows is a mistake in
 * the plan: BUG. exec_stash_wide: n elements of its wide type. */
void *region_take(struct region *r, size_t bytes);
void *exec_stash(struct exec *x, int64_t n);
void *exec_stash_wide(struct exec *x, int64_t n);
void *exec_kept(struct exec *x, int64_t n);
void *exec_scratch(struct exec *x, int64_t n);

/* An exec that counts: regions have no memory. dry: from kernels_dry(), borrowed. */
void exec_init_dry(struct exec *x, const struct kernels *dry, struct kernel_context *kernel, enum dtype type);

#endif
