/* SPDX-License-Identifier: MIT */
/*
 * Which cores a rank's threads run on.
 *
 * Launchers differ: one binds each rank to a core of its own, another leaves all ranks of a host on all
 * cores. The masks of all ranks of a host tell the cases apart: ranks with the same mask share it, and each
 * takes an equal run of its cores. Cores here are what the system calls CPUs (hardware threads).
 */
#ifndef BASE_AFFINITY_H
#define BASE_AFFINITY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { AFFINITY_MAX_CORES = 1024, AFFINITY_WORDS = AFFINITY_MAX_CORES / 64 };

struct affinity_mask {
    uint64_t words[AFFINITY_WORDS]; /* bit c of word c / 64: core c */
};

err_t affinity_get(struct affinity_mask *out, struct error *e) MUST_CHECK; /* of the calling thread */
int affinity_count(const struct affinity_mask *mask);
int affinity_own_cores(void); /* how many the calling thread may use; 1 where the system does not say */

struct affinity {
    struct affinity_mask cores; /* for this rank: its run of the mask, or the whole mask where ranks outnumber cores */
    int threads;                /* to start, the calling one included; at least 1 */
    char warning[320];          /* "" = none: threads that must take turns on cores, and what to do */
};

/* masks: [local_size], of the ranks of this host in local order. wanted_threads: 0 = one per core of this
 * rank. */
void affinity_plan(const struct affinity_mask *masks, int local_rank, int local_size, int wanted_threads,
                   struct affinity *out);

/* Binds the calling thread; threads that it starts afterwards inherit the binding. */
err_t affinity_apply(const struct affinity *a, struct error *e) MUST_CHECK;

#endif
