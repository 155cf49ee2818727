/* SPDX-License-Identifier: MIT */
/*
 * The training of tests/support/equivalence.h on the GPU against the CPU's reference: gradients, losses, norms and
 * parameters. It is the whole path of a step: inputs, kernels, products, streams, optimizer, results.
 *
 * timeout: 600
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/equivalence.h"
#include "tests/support/gpu.h"
#include "tests/support/rig.h"

enum { SEQUENCES = 8 }; /* a step */

static void compare(struct equivalence_case c)
{
    struct equivalence_result want, got, again;
    char what[160];

    c.sequences = SEQUENCES;
    equivalence_run_threads(&c, &want);
    c.device = RIG_GPU;
    equivalence_describe(&c, what, sizeof what);
    equivalence_run_threads(&c, &got);
    equivalence_run_threads(&c, &again);
    equivalence_assert_close(what, c.type, &got, &want);
    equivalence_assert_bits(what, &again, &got);
    equivalence_release(&want);
    equivalence_release(&got);
    equivalence_release(&again);
}

static void test_float64(void **state)
{
    (void)state;
    compare((struct equivalence_case){
        .n_replicas = 1, .n_shards = 1, .n_microbatches = 2, .type = DTYPE_FLOAT64, .with_documents = true});
}

static void test_float32(void **state)
{
    (void)state;
    compare((struct equivalence_case){
        .n_replicas = 1, .n_shards = 1, .n_microbatches = 1, .type = DTYPE_FLOAT32, .is_tied = true});
}

/* Both round to 8 bits at every store, after sums of another order: where a sum is near the middle of two neighbours,
 * one of them stores a value 2^-8 away. Gradients of the first step, where the weights are the same, are that near in
 * L2, tensor by tensor; afterwards weights drift apart by such steps. */
static void test_bfloat16(void **state)
{
    static const struct equivalence_bounds bounds = {2e-2, 1e-3, 1e-2, 1e-2, 2e-2};
    struct equivalence_case c = {
        .n_replicas = 1, .n_shards = 1, .n_microbatches = 2, .type = DTYPE_BFLOAT16, .sequences = SEQUENCES};
    struct equivalence_result want, got;

    (void)state;
    equivalence_run_threads(&c, &want);
    c.device = RIG_GPU;
    equivalence_run_threads(&c, &got);
    equivalence_assert_within("bfloat16 on the GPU", &bounds, &got, &want);
    equivalence_release(&want);
    equivalence_release(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float64),
        cmocka_unit_test(test_float32),
        cmocka_unit_test(test_bfloat16),
    };
    return gpu_is_here() ? cmocka_run_group_tests(tests, NULL, NULL) : GPU_SKIPPED;
}
