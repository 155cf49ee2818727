/* SPDX-License-Identifier: MIT */
/* Rotary frequencies with and without Llama 3.1's scaling, at its borders and in between, and the tables made of them.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "device/dry.h"
#include "nn/rope.h"

static const struct rope_scaling none = {0, 0, 0, 0}, one = {1, 1, 4, 8192}, llama = {8, 1, 4, 8192};

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-14 * fabs(want))) fail_msg("got %.17g, want %.17g", got, want);
}

static void test_without_scaling(void **state)
{
    (void)state;
    for (int64_t i = 0; i < 64; i++) {
        assert_near(rope_frequency(i, 128, 500000, &none), 1 / pow(500000, (double)i / 64));
        assert_near(rope_frequency(i, 128, 500000, &one), 1 / pow(500000, (double)i / 64));
    }
    assert_true(rope_frequency(0, 128, 500000, &llama) == 1.0); /* the fastest pair is never scaled */
}

/* Pair 1 of 2 turns by theta^-1/2, so that theta chooses the wavelength. */
static double scaled(double wavelength)
{
    double frequency = 2 * M_PI / wavelength;

    return rope_frequency(1, 4, 1 / (frequency * frequency), &llama) / frequency;
}

static void test_scaling(void **state)
{
    double last = 1;

    (void)state;
    assert_near(scaled(8192 / 4 - 1), 1);
    assert_near(scaled(8192 + 1), 1 / 8.);
    assert_near(scaled(1e6), 1 / 8.);
    /* in between the share of the unscaled frequency is (8192 / wavelength - 1) / 3 */
    assert_near(scaled(4096), 1 / 3. + 2 / 3. / 8);
    assert_near(scaled(3276.8), 0.5 + 0.5 / 8);
    for (double wavelength = 2000; wavelength < 8300; wavelength += 1) { /* without a jump at either border */
        double factor = scaled(wavelength);

        assert_true(factor <= last + 1e-12 && factor >= last - 2e-3);
        last = factor;
    }
}

static void test_tables(void **state)
{
    enum { POSITIONS = 5, WIDTH = 6, HALF = WIDTH / 2 };
    struct device_options options = {.kind = "cpu", .local_size = 1, .threads = 1};
    struct device *d;
    struct error e = {0};

    (void)state;
    assert_int_equal(device_open(&d, &options, &e), ERR_NONE);
    for (int wide = 0; wide < 2; wide++) {
        struct rope r;

        assert_int_equal(rope_open(&r, d, wide ? DTYPE_FLOAT64 : DTYPE_FLOAT32, POSITIONS, WIDTH, 100, &none, &e),
                         ERR_NONE);
        for (int p = 0; p < POSITIONS; p++)
            for (int i = 0; i < HALF; i++) {
                double angle = p * rope_frequency(i, WIDTH, 100, &none);
                int at = p * HALF + i;

                if (wide)
                    assert_true(((double *)r.cos)[at] == cos(angle) && ((double *)r.sin)[at] == sin(angle));
                else
                    assert_true(((float *)r.cos)[at] == (float)cos(angle) && ((float *)r.sin)[at] == (float)sin(angle));
            }
        rope_close(&r);
        rope_close(&r);
    }
    device_close(d);
}

/* On a device that only counts, tables too large for any host are counted and not computed. */
static void test_dry(void **state)
{
    const int64_t positions = INT64_C(1) << 36; /* with 2048 pairs more than a process has addresses */
    struct device_properties like = {.name = "plan"};
    struct memory_stats stats;
    struct device *d;
    struct rope r;
    struct error e = {0};
    err_t rc;

    (void)state;
    assert_int_equal(device_dry_open(&d, &like, 0, &e), ERR_NONE);
    rc = rope_open(&r, d, DTYPE_FLOAT32, positions, 1 << 12, 100, &none, &e);
    if (rc) fail_msg("%s", e.message);
    device_memory_stats(d, &stats);
    assert_true(stats.kind_bytes[MEMORY_BUFFERS] == 2 * positions * (1 << 11) * 4);
    rope_close(&r);
    device_close(d);
}

static void test_out_of_memory(void **state)
{
    struct device_options options = {.kind = "cpu", .local_size = 1, .threads = 1};
    struct memory_stats stats;
    struct device *d;
    struct rope r;
    struct error e = {0};

    (void)state;
    assert_int_equal(device_open(&d, &options, &e), ERR_NONE);
    for (long n = 0;; n++) {
        err_t rc;

        mem_fault_arm(n);
        rc = rope_open(&r, d, DTYPE_FLOAT32, 8, 8, 100, &llama, &e);
        if (rc) assert_int_equal(rc, ERR_MEMORY);
        rope_close(&r);
        device_memory_stats(d, &stats);
        assert_int_equal(stats.active_bytes, 0);
        if (!mem_fault_fired()) break;
    }
    mem_fault_arm(-1);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_scaling), cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_tables),          cmocka_unit_test(test_dry),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
