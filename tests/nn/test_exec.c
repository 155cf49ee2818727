/* SPDX-License-Identifier: MIT */
/* Regions: what is taken is aligned and counted exactly; a region that only counts never overflows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "nn/exec.h"

static void test_taking(void **state)
{
    _Alignas(64) char memory[1024];
    struct region r = {.base = memory, .bytes = sizeof memory};

    (void)state;
    assert_ptr_equal(region_take(&r, 1), memory);
    assert_ptr_equal(region_take(&r, 64), memory + 64);
    assert_ptr_equal(region_take(&r, 65), memory + 128);
    assert_int_equal(r.used, 256);
    r.used = 64;
    assert_ptr_equal(region_take(&r, 960), memory + 64);
    assert_int_equal(r.used, 1024);
    assert_int_equal(r.peak, 1024);
}

static void test_counting_too_much(void **state)
{
    struct kernels nothing = {0};
    struct exec x;

    (void)state;
    exec_init_dry(&x, &nothing, NULL, DTYPE_FLOAT64);
    exec_stash(&x, 100);
    assert_int_equal(x.stash.peak, 832);
    exec_stash(&x, INT64_MAX / 8); /* 2^63 bytes less 8: fits alone, not with the others */
    exec_stash(&x, INT64_MAX);     /* its bytes are more than a size_t holds */
    exec_stash(&x, 1);
    assert_true(x.stash.used == REGION_COUNTING && x.stash.peak == REGION_COUNTING);
    exec_scratch(&x, (int64_t)1 << 61); /* 2^64 bytes: no bits left of it */
    assert_true(x.scratch.peak == REGION_COUNTING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_taking), cmocka_unit_test(test_counting_too_much)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
