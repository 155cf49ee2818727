/* SPDX-License-Identifier: MIT */
/*
 * The training of tests/support/equivalence.h on the GPU against the CPU's reference: gradients, losses, norms and
 * parameters. It is the whole path of a step: inputs, kernels, products, streams, optimizer, results.
 *
 * timeout: 600
 */
#include <math.h>
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

/* Rounded to 8 bits at every store, in sums of another order: losses and norms agree to two digits. */
static void test_bfloat16(void **state)
{
    struct equivalence_case c = {
        .n_replicas = 1, .n_shards = 1, .n_microbatches = 2, .type = DTYPE_BFLOAT16, .sequences = SEQUENCES};
    struct equivalence_result want, got;

    (void)state;
    equivalence_run_threads(&c, &want);
    c.device = RIG_GPU;
    equivalence_run_threads(&c, &got);
    for (int i = 0; i < EQUIVALENCE_STEPS; i++) {
        assert_true(fabs(got.loss[i] - want.loss[i]) <= 1e-2 * want.loss[i]);
        assert_true(fabs(got.norm[i] - want.norm[i]) <= 5e-2 * want.norm[i]);
    }
    assert_true(fabs(got.validation_loss - want.validation_loss) <= 1e-2 * want.validation_loss);
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
