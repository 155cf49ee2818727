/* SPDX-License-Identifier: MIT */
/* The generator's known answers, its moments, and that draws depend on nothing but their key and element. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"

/* Philox4x32-10 test vectors published with Random123 (kat_vectors). */
static void test_known_answers(void **state)
{
    struct rng_key zero = {{0, 0}}, ones = {{0xffffffffu, 0xffffffffu}};
    uint32_t r[4];

    (void)state;
    rng_block(zero, 0, 0, r);
    assert_int_equal(r[0], 0x6627e8d5u);
    assert_int_equal(r[1], 0xe169c58du);
    assert_int_equal(r[2], 0xbc57ac4cu);
    assert_int_equal(r[3], 0x9b00dbd8u);
    rng_block(ones, UINT64_MAX, UINT64_MAX, r);
    assert_int_equal(r[0], 0x408f276du);
    assert_int_equal(r[1], 0x41c83b0eu);
    assert_int_equal(r[2], 0xa20bc7c6u);
    assert_int_equal(r[3], 0x6d5451fdu);
}

static void test_normal_moments_and_cut(void **state)
{
    struct rng_key key = rng_key_of(42, "test");
    double sum = 0, squares = 0, fourth = 0;
    int n = 200000, i;

    (void)state;
    for (i = 0; i < n; i++) {
        double z = rng_normal(key, (uint64_t)i, 1.0, 0.0);

        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
        assert_true(fabs(rng_normal(key, (uint64_t)i, 1.0, 0.5)) <= 0.5);
    }
    assert_true(fabs(sum / n) < 5 / sqrt(n));
    assert_true(fabs(squares / n - 1) < 5 * sqrt(2.0 / n));
    assert_true(fabs(fourth / n - 3) < 5 * sqrt(96.0 / n));
}

/* A golden hash of the bits: a change of any draw on any machine turns this red. */
static void test_golden_bits(void **state)
{
    struct rng_key key = rng_key_of(7, "init/layers.0.attention.wq.weight");
    uint64_t h = HASH_FNV_START;

    (void)state;
    for (uint64_t i = 0; i < 4096; i++) {
        double z = rng_normal(key, i, 0.02, 2.0);

        h = hash_fnv(h, &z, sizeof z);
    }
    assert_int_equal(h, 0xbe5896126208488du);
}

/* Draws in a row are the same bits as one by one, wherever the row begins and however many attempts an element takes.
 */
static void test_rows_of_normals(void **state)
{
    struct rng_key key = rng_key_of(7, "rows");
    double row[700];

    (void)state;
    for (int first = 0; first < 3; first++) {
        rng_normals(key, (uint64_t)first * 1000003, 700, 0.02, 0.03, row);
        for (uint64_t i = 0; i < 700; i++) {
            double one = rng_normal(key, (uint64_t)first * 1000003 + i, 0.02, 0.03);

            assert_memory_equal(&row[i], &one, sizeof one);
        }
    }
}

static void test_below_is_unbiased(void **state)
{
    struct rng_key key = rng_key_of(1, "below");
    int count[6] = {0};

    (void)state;
    for (uint64_t i = 0; i < 60000; i++) count[rng_below(key, i, 6)]++;
    for (int i = 0; i < 6; i++) assert_in_range(count[i], 9500, 10500);
    assert_int_equal(rng_below(key, 3, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),     cmocka_unit_test(test_normal_moments_and_cut),
        cmocka_unit_test(test_golden_bits),       cmocka_unit_test(test_rows_of_normals),
        cmocka_unit_test(test_below_is_unbiased),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
