/* SPDX-License-Identifier: MIT */
/* bfloat16: every value reads back, and rounding takes the nearest, the even one of two as near, once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bfloat16.h"

static float value(uint32_t bits) { return bfloat16_to_float((bfloat16){(uint16_t)bits}); }

static void test_all_values_read_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x10000; i++) {
        float x = value(i);

        if (isnan(x)) {
            assert_true(isnan(bfloat16_to_float(bfloat16_of_float(x))));
            assert_true(isnan(bfloat16_to_float(bfloat16_of_double(x))));
            continue;
        }
        assert_int_equal(bfloat16_of_float(x).bits, i);
        assert_int_equal(bfloat16_of_double(x).bits, i);
    }
}

/* Between any two neighbours: below, at and above the middle. */
static void test_nearest_even(void **state)
{
    (void)state;
    for (uint32_t sign = 0; sign < 2; sign++)
        for (uint32_t i = 0; i < 0x7f7f; i++) {
            uint32_t low = sign << 15 | i, even = low + (low & 1);
            double a = value(low), b = value(low + 1), middle = (a + b) / 2, step = (b - a) * 0x1p-30;
            float below = nextafterf((float)middle, (float)a), above = nextafterf((float)middle, (float)b);

            assert_int_equal(bfloat16_of_float((float)middle).bits, even);
            assert_int_equal(bfloat16_of_float(below).bits, low);
            assert_int_equal(bfloat16_of_float(above).bits, low + 1);
            assert_int_equal(bfloat16_of_double(middle).bits, even);
            /* a float would make these the middle, and then the even one */
            assert_int_equal(bfloat16_of_double(middle - step).bits, low);
            assert_int_equal(bfloat16_of_double(middle + step).bits, low + 1);
        }
}

static void test_the_ends(void **state)
{
    float largest = value(0x7f7f), next = ldexpf(1, 127) * (2 - ldexpf(1, -8)); /* halfway to what would be 2^128 */

    (void)state;
    assert_int_equal(bfloat16_of_float(nextafterf(next, 0)).bits, 0x7f7f);
    assert_int_equal(bfloat16_of_float(next).bits, 0x7f80);
    assert_int_equal(bfloat16_of_double(1e300).bits, 0x7f80);
    assert_int_equal(bfloat16_of_double(-1e300).bits, 0xff80);
    assert_int_equal(bfloat16_of_double(INFINITY).bits, 0x7f80);
    assert_int_equal(bfloat16_of_double(largest * (1 + 1e-12)).bits, 0x7f7f);
    assert_int_equal(bfloat16_of_double(1e-300).bits, 0);
    assert_int_equal(bfloat16_of_double(-1e-300).bits, 0x8000);
    assert_int_equal(bfloat16_of_float(-0.0f).bits, 0x8000);
    assert_true(isnan(bfloat16_to_float(bfloat16_of_double(NAN))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_values_read_back),
        cmocka_unit_test(test_nearest_even),
        cmocka_unit_test(test_the_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
