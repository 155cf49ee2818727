/* SPDX-License-Identifier: MIT */
/* Cores of ranks; see affinity.h. */
#include "base/affinity.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(cpu_set_t) == sizeof(struct affinity_mask), "a mask is as large as the C library's");

static bool has_core(const struct affinity_mask *mask, int core) { return mask->words[core / 64] >> (core % 64) & 1; }

err_t affinity_get(struct affinity_mask *out, struct error *e)
{
    cpu_set_t set;

    *out = (struct affinity_mask){0};
    if (sched_getaffinity(0, sizeof set, &set))
        return FAIL(e, ERR_DEVICE, "cannot read the affinity mask: %s", strerror(errno));
    for (int core = 0; core < AFFINITY_MAX_CORES; core++)
        if (CPU_ISSET(core, &set)) out->words[core / 64] |= UINT64_C(1) << (core % 64);
    return ERR_NONE;
}

int affinity_count(const struct affinity_mask *mask)
{
    int n = 0;

    for (int i = 0; i < AFFINITY_WORDS; i++) n += __builtin_popcountll(mask->words[i]);
    return n;
}

int affinity_own_cores(void)
{
    struct affinity_mask own;

    return affinity_get(&own, NULL) ? 1 : affinity_count(&own);
}

/* The cores of mask number [from, to), counted from its lowest. */
static struct affinity_mask run_of(const struct affinity_mask *mask, int from, int to)
{
    struct affinity_mask run = {0};

    for (int core = 0, nth = 0; core < AFFINITY_MAX_CORES; core++) {
        if (!has_core(mask, core)) continue;
        if (nth >= from && nth < to) run.words[core / 64] |= UINT64_C(1) << (core % 64);
        nth++;
    }
    return run;
}

void affinity_plan(const struct affinity_mask *masks, int local_rank, int local_size, int wanted_threads,
                   struct affinity *out)
{
    const struct affinity_mask *own = &masks[local_rank];
    int sharers = 0, index = 0, n = affinity_count(own), mine;

    for (int q = 0; q < local_size; q++) {
        if (memcmp(&masks[q], own, sizeof *own) != 0) continue;
        if (q < local_rank) index++;
        sharers++;
    }
    *out = (struct affinity){.cores = *own};
    if (n >= sharers) out->cores = run_of(own, index * n / sharers, (index + 1) * n / sharers);
    mine = affinity_count(&out->cores);
    out->threads = wanted_threads > 0 ? wanted_threads : n >= sharers ? mine : 1;
    if (n < sharers || out->threads > mine)
        snprintf(out->warning, sizeof out->warning,
                 "%d rank%s with %d thread%s each share %d core%s: they will take turns and slow each other "
                 "down; start fewer ranks or "
                 "threads%s",
                 sharers, sharers == 1 ? "" : "s", out->threads, out->threads == 1 ? "" : "s", n, n == 1 ? "" : "s",
                 sharers == 1 && local_size > 1
                     ? ", or let the launcher give each rank more cores (mpirun --bind-to none)"
                     : "");
}

err_t affinity_apply(const struct affinity *a, struct error *e)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (int core = 0; core < AFFINITY_MAX_CORES; core++)
        if (has_core(&a->cores, core)) CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        return FAIL(e, ERR_DEVICE, "cannot bind this rank to its %d cores: %s", affinity_count(&a->cores),
                    strerror(errno));
    return ERR_NONE;
}
