/* SPDX-License-Identifier: MIT */
/*
 * The same training on every mesh (ranks are threads): dp_replicate x dp_shard in {1,2,4} x {1,2,4}, accumulation 1, 2,
 * 4, every reshard policy, documents, tied weights, uneven and empty shards, validation. tests/mutation proves that
 * this test turns red.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/equivalence.h"

static void compare(const struct equivalence_case *c, const struct equivalence_result *one)
{
    struct equivalence_result got;
    char what[160];

    equivalence_describe(c, what, sizeof what);
    equivalence_run_threads(c, &got);
    equivalence_assert_close(what, c->type, &got, one);
    equivalence_release(&got);
}

static void compare_all(enum dtype type, int with_documents, int is_tied, int accumulation_step)
{
    struct equivalence_case c = {1, 1, 1, RESHARD_DEFAULT, type, with_documents, is_tied, 0, 0, NULL, 0};
    struct equivalence_result one;

    equivalence_run_threads(&c, &one);
    for (c.n_replicas = 1; c.n_replicas <= 4; c.n_replicas *= 2)
        for (c.n_shards = 1; c.n_shards <= 4; c.n_shards *= 2)
            for (c.n_microbatches = 1; c.n_microbatches <= 4; c.n_microbatches *= accumulation_step) compare(&c, &one);
    equivalence_release(&one);
}

static void test_float64(void **state)
{
    (void)state;
    compare_all(DTYPE_FLOAT64, 0, 0, 2);
}

static void test_float32(void **state)
{
    (void)state;
    compare_all(DTYPE_FLOAT32, 0, 0, 4);
}

static void test_bfloat16(void **state)
{
    (void)state;
    compare_all(DTYPE_BFLOAT16, 0, 0, 2);
    compare_all(DTYPE_BFLOAT16, 1, 1, 4);
}

static void test_documents_and_tied_weights(void **state)
{
    (void)state;
    compare_all(DTYPE_FLOAT64, 1, 0, 4);
    compare_all(DTYPE_FLOAT64, 0, 1, 2);
}

/* When parameters are freed must not change a bit. */
static void test_reshard_policies(void **state)
{
    struct equivalence_case c = {1, 4, 2, RESHARD_DEFAULT, DTYPE_FLOAT32, 0, 0, 0, 0, NULL, 0};
    struct equivalence_result want, got;

    (void)state;
    for (int kind = 0; kind < 6; kind++) { /* float32, bfloat16, bfloat16 with one shard; tied or not */
        c.is_tied = kind % 2;
        c.type = kind / 2 ? DTYPE_BFLOAT16 : DTYPE_FLOAT32;
        c.n_shards = kind / 2 == 2 ? 1 : 4;
        c.reshard = RESHARD_DEFAULT;
        equivalence_run_threads(&c, &want);
        for (c.reshard = RESHARD_DEFAULT; c.reshard <= RESHARD_NEVER; c.reshard++) {
            char what[160];

            equivalence_describe(&c, what, sizeof what);
            equivalence_run_threads(&c, &got);
            equivalence_assert_bits(what, &got, &want);
            equivalence_release(&got);
        }
        equivalence_release(&want);
    }
}

/* Sixteen shards of tensors with 12 rows: some ranks hold nothing. Weights do not depend on the mesh, so neither does
 * the loss. */
static void test_empty_shards(void **state)
{
    struct equivalence_case c = {1, 1, 1, RESHARD_DEFAULT, DTYPE_FLOAT64, 0, 0, 0, 0, NULL, 0};
    struct equivalence_result one;

    (void)state;
    equivalence_run_threads(&c, &one);
    c.n_shards = 16;
    compare(&c, &one);
    c.n_shards = 8;
    c.n_replicas = 2;
    compare(&c, &one);
    equivalence_release(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float64),          cmocka_unit_test(test_float32),
        cmocka_unit_test(test_bfloat16),         cmocka_unit_test(test_documents_and_tied_weights),
        cmocka_unit_test(test_reshard_policies), cmocka_unit_test(test_empty_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
