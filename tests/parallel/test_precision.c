/* SPDX-License-Identifier: MIT */
/*
 * One training in other precisions and with other kernels: bfloat16 against float32, and the fast twins against the
 * reference in both.
 *
 * The bounds. A store in bfloat16 is off by up to 2^-9 of the number, 1.1e-3 in the mean square; some 25 stores lie
 * between a token and the farthest gradient of the tiny model, and their errors are independent: 1.1e-3 * sqrt(25) =
 * 6e-3 for a gradient tensor, of which three times is allowed. The loss is a mean over hundreds of labels, and the norm
 * one over all gradients: errors of their terms cancel. AdamW takes whole steps (1e-2, half of what such weights begin
 * with) along gradients that are noise, so that of parameters only the size of the difference is held.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/support/equivalence.h"

static const struct equivalence_bounds rounded = {2e-2, 1e-3, 5e-3, 1e-2, 0.3};
/* Sums in another order: some in a thousand of the stored numbers round to the other neighbour. */
static const struct equivalence_bounds fast16 = {2e-3, 1e-4, 3e-4, 1e-3, 2e-2}, fast32 = {1e-5, 1e-5, 1e-5, 1e-4, 1e-4};

static void compare(const struct equivalence_case *c, const struct equivalence_case *with,
                    const struct equivalence_bounds *bounds)
{
    struct equivalence_result got, want;
    char what[160];

    equivalence_describe(c, what, sizeof what);
    equivalence_run_threads(c, &got);
    equivalence_run_threads(with, &want);
    equivalence_assert_within(what, bounds, &got, &want);
    equivalence_release(&got);
    equivalence_release(&want);
}

static void compare_kinds(enum dtype type, const char *kernels, enum dtype with_type, const char *with_kernels,
                          const struct equivalence_bounds *bounds)
{
    for (int kind = 0; kind < 4; kind++) {
        struct equivalence_case c = {1, 1 + kind % 2, 2, RESHARD_DEFAULT, type, kind & 1, kind & 2, 0, 0, kernels, 0},
                                with = c;

        with.type = with_type;
        with.kernels = with_kernels;
        compare(&c, &with, bounds);
    }
}

static void test_bfloat16_is_float32(void **state)
{
    (void)state;
    compare_kinds(DTYPE_BFLOAT16, "reference", DTYPE_FLOAT32, "reference", &rounded);
    compare_kinds(DTYPE_BFLOAT16, "auto", DTYPE_FLOAT32, "auto", &rounded);
}

static void test_fast_is_reference(void **state)
{
    (void)state;
    compare_kinds(DTYPE_FLOAT32, "auto", DTYPE_FLOAT32, "reference", &fast32);
    compare_kinds(DTYPE_BFLOAT16, "auto", DTYPE_BFLOAT16, "reference", &fast16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bfloat16_is_float32),
        cmocka_unit_test(test_fast_is_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
