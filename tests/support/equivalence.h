/* SPDX-License-Identifier: MIT */
/*
 * The backbone: one tiny training, computed on any mesh, gives what one rank gives.
 *
 * Every case trains the same tiny Llama for STEPS steps on the same EQUIVALENCE_SEQUENCES sequences a step, divided
 * over data ranks and microbatches by the loader's rule; labels are missing unevenly, so that a normalisation by local
 * counts would show.
 */
#ifndef SUPPORT_EQUIVALENCE_H
#define SUPPORT_EQUIVALENCE_H

#include <stdbool.h>

#include "comm/comm.h"
#include "parallel/action.h"

enum { EQUIVALENCE_STEPS = 5, EQUIVALENCE_SEQUENCES = 64, EQUIVALENCE_LENGTH = 5 };

struct equivalence_case {
    int n_replicas, n_shards, n_microbatches;
    enum reshard_policy reshard;
    enum dtype type;
    bool with_documents, is_tied;
    int device; /* as in rig.h */
    uint64_t lazy_seed;
    const char *kernels; /* their level; NULL: the reference */
    int sequences;       /* of a step, for devices that are slow; 0: EQUIVALENCE_SEQUENCES */
};

struct equivalence_result {
    double loss[EQUIVALENCE_STEPS], norm[EQUIVALENCE_STEPS]; /* mean over valid labels; before clipping */
    double validation_loss;                                  /* after the steps */
    int64_t n;                                               /* elements of all parameters */
    bool is_tied;                                            /* as the case said */
    double *gradients, *parameters; /* [n], of the first step; after all steps. Exact copies, also of float32 */
};

/* How far two results may be from each other, relative; of tensors by L2, each by itself. */
struct equivalence_bounds {
    double gradient, first_loss, first_norm; /* of the first step, where the weights are the same */
    double later, parameter;                 /* losses, norms and the validation afterwards; parameters at the end */
};

void equivalence_describe(const struct equivalence_case *c, char *out, size_t size);

/* Collective over a world of n_replicas * n_shards ranks; every rank gets the result. Release it also after a failure.
 */
err_t equivalence_run(const struct equivalence_case *c, struct comm *world, struct equivalence_result *out,
                      struct error *e) MUST_CHECK;
void equivalence_release(struct equivalence_result *r);

/* Ranks as threads; fails the running cmocka test when it cannot be run. */
void equivalence_run_threads(const struct equivalence_case *c, struct equivalence_result *out);

/* Fails the running test with what differs. */
void equivalence_assert_within(const char *what, const struct equivalence_bounds *bounds,
                               const struct equivalence_result *got, const struct equivalence_result *want);

/* The bounds for meshes. float64: everything to 1e-9. float32: losses, norms and gradients to 1e-5, parameters to 1e-4
 * (AdamW turns rounding in tiny gradients into whole updates). bfloat16: the first step as float32, because rows are
 * computed alone, and their gradients are summed in float32 and never rounded; afterwards a weight that differs by the
 * last bit of float32 may round to the other neighbour, 2^-8 away: losses to 1e-3, parameters to 1e-2. */
void equivalence_assert_close(const char *what, enum dtype type, const struct equivalence_result *got,
                              const struct equivalence_result *want);
void equivalence_assert_bits(const char *what, const struct equivalence_result *got,
                             const struct equivalence_result *want);

#endif
