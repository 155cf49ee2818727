/* SPDX-License-Identifier: MIT */
/*
 * The same training on a device that puts everything off, in orders as bad as the events allow: every bit is as on the
 * CPU, where all is done at once. tests/mutation proves that a missing event turns this test red.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/equivalence.h"
#include "tests/support/lazy.h"
#include "tests/support/rig.h"

static const char *const orders[] = {
#define X(id, name) name,
    LAZY_ORDERS(X)
#undef X
};

/* All orders, some of the random ones, against the CPU. */
static void compare(struct equivalence_case c)
{
    struct equivalence_result want, got;
    char what[256];

    equivalence_run_threads(&c, &want);
    equivalence_describe(&c, what, 160);
    for (int order = 0; order < LAZY_ORDER_COUNT; order++) {
        for (uint64_t seed = 0; seed < (order == LAZY_RANDOM ? 4 : 1); seed++) {
            size_t length = strlen(what);

            c.device = RIG_LAZY + order;
            c.lazy_seed = seed;
            snprintf(what + length, sizeof what - length, ", %s, seed %d", orders[order], (int)seed);
            equivalence_run_threads(&c, &got);
            equivalence_assert_bits(what, &got, &want);
            equivalence_release(&got);
            what[length] = '\0';
        }
    }
    equivalence_release(&want);
}

static void test_one_rank(void **state)
{
    (void)state;
    compare((struct equivalence_case){
        .n_replicas = 1, .n_shards = 1, .n_microbatches = 2, .type = DTYPE_FLOAT64, .with_documents = true});
}

static void test_replicas(void **state)
{
    (void)state;
    compare((struct equivalence_case){.n_replicas = 2, .n_shards = 1, .n_microbatches = 2, .type = DTYPE_FLOAT64});
}

static void test_shards(void **state)
{
    struct equivalence_case c = {.n_replicas = 1, .n_shards = 4, .n_microbatches = 2, .type = DTYPE_FLOAT64};

    (void)state;
    for (c.reshard = RESHARD_DEFAULT; c.reshard <= RESHARD_NEVER; c.reshard++) compare(c);
    c.reshard = RESHARD_DEFAULT;
    c.is_tied = true;
    compare(c);
}

static void test_both(void **state)
{
    (void)state;
    compare((struct equivalence_case){.n_replicas = 2, .n_shards = 2, .n_microbatches = 4, .type = DTYPE_FLOAT32});
}

/* Where every gather is a cast, also with one shard. */
static void test_bfloat16(void **state)
{
    struct equivalence_case c = {.n_replicas = 2, .n_microbatches = 2, .type = DTYPE_BFLOAT16};

    (void)state;
    for (c.n_shards = 1; c.n_shards <= 2; c.n_shards++) compare(c);
    c.n_replicas = 1;
    c.reshard = RESHARD_ALWAYS;
    compare(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank), cmocka_unit_test(test_replicas), cmocka_unit_test(test_shards),
        cmocka_unit_test(test_both),     cmocka_unit_test(test_bfloat16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
