/* SPDX-License-Identifier: MIT */
/* Exchange of affinity masks; see place.h. */
#include "comm/place.h"

#include "base/mem.h"

struct place {
    int64_t host_index;
    struct affinity_mask mask;
};

err_t comm_place(struct comm *world, int wanted_threads, struct affinity *out, struct error *e)
{
    struct place own = {.host_index = world->host_index}, *all = mem_zalloc((size_t)world->size, sizeof *all);
    struct affinity_mask *masks = mem_zalloc((size_t)world->size, sizeof *masks);
    int n = 0, index = 0;
    err_t rc;

    if (!all || !masks)
        rc = FAIL(e, ERR_MEMORY, "out of memory for the affinity masks of %d ranks", world->size);
    else if (!(rc = affinity_get(&own.mask, e)))
        rc = comm_all_gather(world, "affinity masks", &own, all, sizeof own, DTYPE_UINT8, NULL, e);
    for (int q = 0; q < world->size && !rc; q++) {
        if (all[q].host_index != own.host_index) continue;
        if (q == world->rank) index = n;
        masks[n++] = all[q].mask;
    }
    if (!rc) affinity_plan(masks, index, n, wanted_threads, out);
    mem_free(all);
    mem_free(masks);
    return rc;
}
