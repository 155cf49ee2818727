/* SPDX-License-Identifier: MIT */
/*
 * Counter-based random numbers: a draw is a pure function of (key, element, attempt), so initial weights, shuffles and
 * dropout do not depend on the mesh, the rank, the number of threads or the order of work.
 *
 * Generator: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
 * Everything is computed with integer operations and IEEE additions, multiplications, divisions and square roots in a
 * fixed order, never with libm, so the bits are the same on every machine.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng_key {
    uint32_t word[2];
};

/* The stream of one purpose: e.g. rng_key_of(seed, "init/layers.0.attention.wq.weight"). */
struct rng_key rng_key_of(uint64_t seed, const char *purpose);

void rng_block(struct rng_key key, uint64_t element, uint64_t attempt, uint32_t out[4]);
double rng_uniform(struct rng_key key, uint64_t element, uint64_t attempt); /* [0, 1), 53 bits */
uint64_t rng_below(struct rng_key key, uint64_t element, uint64_t bound);   /* [0, bound), unbiased */

/* Normal deviate of mean 0 and deviation `std`, drawn again until it lies in [-cut, cut] (an absolute bound; cut <= 0:
 * none). Marsaglia's polar method. */
double rng_normal(struct rng_key key, uint64_t element, double std, double cut);
void rng_normals(struct rng_key key, uint64_t first, size_t n, double std, double cut,
                 double *out); /* [n]: elements first, ... */

#endif
