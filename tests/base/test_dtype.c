/* SPDX-License-Identifier: MIT */
/* Element types: widths, and names that read back; the label that is not scored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/dtype.h"
#include "base/label.h"

static void test_widths(void **state)
{
    (void)state;
    assert_int_equal(dtype_bytes(DTYPE_FLOAT32), sizeof(float));
    assert_int_equal(dtype_bytes(DTYPE_FLOAT64), sizeof(double));
    assert_int_equal(dtype_bytes(DTYPE_BFLOAT16), 2);
    assert_int_equal(dtype_bytes(DTYPE_INT32), 4);
    assert_int_equal(dtype_bytes(DTYPE_INT64), 8);
    assert_int_equal(dtype_bytes(DTYPE_UINT8), 1);
}

static void test_wide(void **state)
{
    (void)state;
    assert_int_equal(dtype_wide(DTYPE_BFLOAT16), DTYPE_FLOAT32);
    assert_int_equal(dtype_wide(DTYPE_FLOAT32), DTYPE_FLOAT32);
    assert_int_equal(dtype_wide(DTYPE_FLOAT64), DTYPE_FLOAT64);
}

static void test_names_read_back(void **state)
{
    enum dtype got;

    (void)state;
    for (int t = 0; t < DTYPE_COUNT; t++) {
        got = DTYPE_COUNT;
        assert_true(dtype_parse(dtype_name((enum dtype)t), &got));
        assert_int_equal(got, t);
        assert_false(dtype_parse(dtype_file_name((enum dtype)t), &got));
    }
    assert_string_equal(dtype_file_name(DTYPE_BFLOAT16), "BF16"); /* as safetensors spells it */
    assert_false(dtype_parse("", &got));
    assert_false(dtype_parse("float3", &got));
    assert_false(dtype_parse("float322", &got));
    assert_false(dtype_parse("Float32", &got));
}

/* Files of labels made elsewhere use PyTorch's value. */
static void test_label(void **state)
{
    (void)state;
    assert_int_equal(LABEL_IGNORED, -100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_names_read_back),
        cmocka_unit_test(test_label),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
