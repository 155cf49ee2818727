/* SPDX-License-Identifier: MIT */
/* How a tensor is cut over ranks: every row once, ceil(rows / ranks) to the first, perhaps none to the last;
 * and the same initial bits however it is cut. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tensor/parameter.h"
#include "tests/support/close.h"

static struct parameter matrix(const char *name, int64_t rows, int64_t columns)
{
    struct parameter p = {.n_dims = 2, .dim = {rows, columns}, .init = INIT_NORMAL, .init_std = 0.02, .init_cut = 2.0};

    snprintf(p.name, sizeof p.name, "%s", name);
    return p;
}

static void test_elements(void **state)
{
    struct parameter vector = {.n_dims = 1, .dim = {256}}, cube = {.n_dims = 4, .dim = {3, 5, 7, 2}};
    struct parameter huge = matrix("tok_embeddings.weight", 128256, 1 << 20);

    (void)state;
    assert_int_equal(parameter_elements(&vector), 256);
    assert_int_equal(parameter_row_elements(&vector), 1);
    assert_int_equal(parameter_elements(&cube), 210);
    assert_int_equal(parameter_row_elements(&cube), 70);
    assert_int_equal(parameter_elements(&huge), 128256LL << 20); /* beyond 32 bits */
    parameter_shard(&huge, 1023, 1024);
    assert_int_equal(huge.shard_first, 128256); /* 126 rows a rank: none are left for the last ones */
    assert_int_equal(huge.shard_rows, 0);
    parameter_shard(&huge, 1017, 1024);
    assert_int_equal(huge.shard_rows, 128256 - 1017 * 126);
}

/* All divisions of up to 20 rows over up to 24 ranks. */
static void test_every_division(void **state)
{
    (void)state;
    for (int64_t rows = 1; rows <= 20; rows++)
        for (int n = 1; n <= 24; n++) {
            struct parameter p = matrix("w", rows, 3);
            int64_t chunk = parameter_chunk_rows(&p, n), next = 0;

            assert_true(chunk * n >= rows && (chunk - 1) * n < rows); /* the smallest that is enough */
            for (int i = 0; i < n; i++) {
                parameter_shard(&p, i, n);
                assert_int_equal(p.shard_first, next);
                assert_true(p.shard_rows >= 0 && p.shard_rows <= chunk);
                if (p.shard_rows < chunk) assert_int_equal(p.shard_first + p.shard_rows, rows); /* only at the end */
                next += p.shard_rows;
            }
            assert_int_equal(next, rows);
        }
}

/* FSDP2's example: 5 rows over 4 ranks are 2, 2, 1 and 0. */
static void test_uneven_and_empty(void **state)
{
    static const int64_t first[] = {0, 2, 4, 5}, rows[] = {2, 2, 1, 0};
    struct parameter p = matrix("w", 5, 3);

    (void)state;
    for (int i = 0; i < 4; i++) {
        parameter_shard(&p, i, 4);
        assert_int_equal(p.shard_first, first[i]);
        assert_int_equal(p.shard_rows, rows[i]);
    }
}

/* Seven rows of four numbers, cut in every way, and what an empty shard writes: nothing. */
static void test_initial_bits_do_not_depend_on_the_cut(void **state)
{
    enum { ROWS = 7, COLUMNS = 4, ALL = ROWS * COLUMNS };

    (void)state;
    for (int type = 0; type < 2; type++) {
        enum dtype t = type ? DTYPE_FLOAT64 : DTYPE_FLOAT32;
        struct parameter p = matrix("layers.0.attention.wq.weight", ROWS, COLUMNS);
        double whole[ALL + 1], cut[ALL + 1];
        size_t width = dtype_bytes(t);

        parameter_shard(&p, 0, 1);
        parameter_initialise(&p, 42, t, whole);
        for (int n = 2; n <= 9; n++) {
            memset(cut, 0xee, sizeof cut);
            for (int i = n - 1; i >= 0; i--) {
                parameter_shard(&p, i, n);
                parameter_initialise(&p, 42, t, (char *)cut + (size_t)(p.shard_first * COLUMNS) * width);
            }
            assert_bits_equal("cut", t, cut, whole, ALL);
            assert_int_equal(((unsigned char *)cut)[ALL * width], 0xee);
        }
    }
}

/* Name, seed and element decide: other names or seeds draw other numbers, float32 is the rounded float64. */
static void test_what_decides_a_draw(void **state)
{
    enum { N = 64 };
    struct parameter a = matrix("a", N, 1), b = matrix("b", N, 1);
    double one[N], other[N];
    float narrow[N];

    (void)state;
    parameter_shard(&a, 0, 1);
    parameter_shard(&b, 0, 1);
    parameter_initialise(&a, 1, DTYPE_FLOAT64, one);
    parameter_initialise(&b, 1, DTYPE_FLOAT64, other);
    for (int i = 0; i < N; i++) assert_true(one[i] != other[i]);
    parameter_initialise(&a, 2, DTYPE_FLOAT64, other);
    for (int i = 0; i < N; i++) assert_true(one[i] != other[i]);
    parameter_initialise(&a, 1, DTYPE_FLOAT32, narrow);
    for (int i = 0; i < N; i++) {
        assert_true(narrow[i] == (float)one[i]);
        assert_true(one[i] == rng_normal(rng_key_of(1, "init/a"), (uint64_t)i, 0.02, 2.0));
    }
}

static void test_constants(void **state)
{
    struct parameter p = {.name = "norm.weight", .n_dims = 1, .dim = {8}, .init = INIT_ONE};
    double value[8];

    (void)state;
    parameter_shard(&p, 0, 1);
    parameter_initialise(&p, 42, DTYPE_FLOAT64, value);
    for (int i = 0; i < 8; i++) assert_true(value[i] == 1.0);
    p.init = INIT_ZERO;
    parameter_initialise(&p, 42, DTYPE_FLOAT64, value);
    for (int i = 0; i < 8; i++) assert_true(value[i] == 0.0);
}

/* Draws stay within the cut, which is an absolute value. */
static void test_cut(void **state)
{
    enum { N = 20000 };
    struct parameter p = matrix("output.weight", N, 1);
    double *value = mem_alloc(N * sizeof *value), largest = 0;

    (void)state;
    p.init_std = 1.0;
    p.init_cut = 1.5;
    parameter_shard(&p, 0, 1);
    parameter_initialise(&p, 42, DTYPE_FLOAT64, value);
    for (int i = 0; i < N; i++)
        if (fabs(value[i]) > largest) largest = fabs(value[i]);
    assert_true(largest <= 1.5 && largest > 1.49);
    mem_free(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_every_division),
        cmocka_unit_test(test_uneven_and_empty),
        cmocka_unit_test(test_initial_bits_do_not_depend_on_the_cut),
        cmocka_unit_test(test_what_decides_a_draw),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
