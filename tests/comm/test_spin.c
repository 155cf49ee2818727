/* SPDX-License-Identifier: MIT */
/* How ranks wait for each other: they spin where each has a core, and sleep at once where they must take turns. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/affinity.h"
#include "base/mem.h"
#include "comm/shared.h"

enum { RANKS = 2 };

struct rank {
    struct shared_job *job;
    struct shared_region *region;
    struct affinity place;
    int index, spin_rounds;
    err_t rc;
};

static void *run(void *arg)
{
    static const int world_ranks[RANKS] = {0, 1};
    struct rank *r = arg;
    struct shared_group group;
    const void *sources[RANKS];
    struct error e = {0};

    r->rc = affinity_apply(&r->place, &e);
    shared_group_init(&group, r->job, r->region, r->index, world_ranks, sources);
    if (!r->rc) r->rc = shared_barrier(&group, "meet", &e);
    if (!r->rc) r->rc = shared_barrier(&group, "meet again", &e);
    r->spin_rounds = group.spin_rounds;
    shared_group_leave(&group);
    return NULL;
}

/* How many rounds ranks spin that are bound to cores[0] and cores[1]; both must say the same. */
static int rounds(const struct affinity_mask cores[RANKS])
{
    size_t bytes = shared_region_bytes(RANKS, 64);
    struct shared_region *region = mem_aligned(64, bytes);
    struct shared_job job = {0};
    struct rank ranks[RANKS];
    pthread_t threads[RANKS];

    assert_non_null(region);
    memset(region, 0, bytes);
    shared_region_init(region, RANKS, 64);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank){.job = &job, .region = region, .place.cores = cores[i], .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, run, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < RANKS; i++) assert_int_equal(ranks[i].rc, ERR_NONE);
    assert_int_equal(ranks[0].spin_rounds, ranks[1].spin_rounds);
    mem_free(region);
    return ranks[0].spin_rounds;
}

/* A launcher, or ctitan itself, binds each rank to its own core: that is not crowded. */
static void test_bound_ranks_spin(void **state)
{
    struct affinity_mask all, first = {0}, second = {0};
    struct error e = {0};
    int n = 0, crowded;

    (void)state;
    assert_int_equal(affinity_get(&all, &e), ERR_NONE);
    if (affinity_count(&all) < RANKS) skip();
    for (int core = 0; core < AFFINITY_MAX_CORES && n < RANKS; core++)
        if (all.words[core / 64] >> (core % 64) & 1)
            (n++ ? &second : &first)->words[core / 64] |= UINT64_C(1) << (core % 64);
    crowded = rounds((struct affinity_mask[]){first, first});
    assert_true(rounds((struct affinity_mask[]){first, second}) > crowded);
    assert_true(rounds((struct affinity_mask[]){all, all}) > crowded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bound_ranks_spin)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
