/* SPDX-License-Identifier: MIT */
/* Learning rates step by step against values worked out by hand, and the rules that hold for every schedule.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "optim/schedule.h"

static struct lr_schedule schedule(int64_t total, int64_t warmup, double decay_ratio, enum decay decay,
                                   double min_factor)
{
    struct str warning = {0};
    struct lr_schedule s;

    lr_schedule_init(&s, 1.0, total, warmup, decay_ratio, decay, min_factor, &warning);
    if (warning.length) fail_msg("%s", warning.text);
    str_release(&warning);
    return s;
}

static struct lr_schedule cut(int64_t total, int64_t warmup, double decay_ratio, const char *text)
{
    struct str warning = {0};
    struct lr_schedule s;

    lr_schedule_init(&s, 1.0, total, warmup, decay_ratio, DECAY_LINEAR, 0, &warning);
    if (!strstr(str_text(&warning), text)) fail_msg("\"%s\" is missing in \"%s\"", text, str_text(&warning));
    str_release(&warning);
    return s;
}

static void assert_rates(const struct lr_schedule *s, const double *want, int n)
{
    for (int i = 0; i < n; i++) {
        double got = lr_schedule_at(s, i + 1);

        if (!(fabs(got - want[i]) <= 1e-15)) fail_msg("step %d: got %.17g, want %.17g", i + 1, got, want[i]);
    }
}
#define ASSERT_RATES(s, ...)                                                                                           \
    assert_rates(s, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

/* The debug model's: 10 steps, 2 of warm-up, 80 % decay. One virtual step keeps the last rate above 0. */
static void test_debug_model(void **state)
{
    struct lr_schedule s = schedule(10, 2, 0.8, DECAY_LINEAR, 0);

    (void)state;
    ASSERT_RATES(&s, 0.5, 1, 1, 7 / 8., 6 / 8., 5 / 8., 4 / 8., 3 / 8., 2 / 8., 1 / 8.);
    s.peak = 8e-4;
    assert_true(lr_schedule_at(&s, 1) == 4e-4);
    assert_true(lr_schedule_at(&s, 10) == 1e-4);
}

/* Without a ratio all steps after the warm-up decay. */
static void test_decay_after_warmup(void **state)
{
    struct lr_schedule s = schedule(6, 2, -1, DECAY_LINEAR, 0);

    (void)state;
    assert_int_equal(s.decay_steps, 4);
    ASSERT_RATES(&s, 0.5, 1, 1, 3 / 4., 2 / 4., 1 / 4.);
}

static void test_shapes(void **state)
{
    struct lr_schedule s = schedule(6, 1, 4 / 6., DECAY_SQRT, 0);

    (void)state;
    ASSERT_RATES(&s, 1, 1, 1, 1 - sqrt(1 / 4.), 1 - sqrt(2 / 4.), 1 - sqrt(3 / 4.));
    s = schedule(6, 1, 4 / 6., DECAY_COSINE, 0);
    ASSERT_RATES(&s, 1, 1, 1, (1 + sqrt(0.5)) / 2, 0.5, (1 - sqrt(0.5)) / 2);
    s = schedule(6, 1, 4 / 6., DECAY_LINEAR, 0);
    ASSERT_RATES(&s, 1, 1, 1, 3 / 4., 2 / 4., 1 / 4.);
}

/* The decay ends at the factor, not at 0. */
static void test_min_factor(void **state)
{
    struct lr_schedule s = schedule(6, 2, -1, DECAY_LINEAR, 0.1);

    (void)state;
    ASSERT_RATES(&s, 0.5, 1, 1, 0.1 + 0.9 * 3 / 4., 0.1 + 0.9 * 2 / 4., 0.1 + 0.9 / 4.);
    s = schedule(6, 2, -1, DECAY_COSINE, 1);
    ASSERT_RATES(&s, 0.5, 1, 1, 1, 1, 1);
}

static void test_no_warmup_no_decay(void **state)
{
    struct lr_schedule s = schedule(4, 0, 0, DECAY_LINEAR, 0);

    (void)state;
    ASSERT_RATES(&s, 1, 1, 1, 1, 1, 1); /* also past the end */
    s = schedule(4, 0, 1, DECAY_LINEAR, 0);
    ASSERT_RATES(&s, 1, 3 / 4., 2 / 4., 1 / 4., 0, 0);
    s = schedule(4, 4, 0, DECAY_LINEAR, 0);
    ASSERT_RATES(&s, 1 / 4., 2 / 4., 3 / 4., 1, 1);
    s = schedule(4, 4, -1, DECAY_LINEAR, 0);
    ASSERT_RATES(&s, 1 / 4., 2 / 4., 3 / 4., 1, 1);
    s = schedule(1, 0, -1, DECAY_LINEAR, 0);
    ASSERT_RATES(&s, 1, 0);
    s = schedule(1, 1, 0, DECAY_LINEAR, 0);
    ASSERT_RATES(&s, 1, 1);
}

/* What does not fit is cut, and said with the numbers. */
static void test_what_does_not_fit(void **state)
{
    struct lr_schedule s =
        cut(4, 200, -1, "lr_scheduler.warmup_steps=200 is more than the 4 steps of the schedule: cut to 4");

    (void)state;
    ASSERT_RATES(&s, 1 / 4., 2 / 4., 3 / 4., 1);
    s = cut(10, 2, 1, "warm-up 2 + decay 10 are more than the 10 steps of the schedule: decay cut to 8");
    assert_int_equal(s.decay_steps, 8);
    ASSERT_RATES(&s, 0.5, 1, 1, 7 / 8.);
    s = cut(4, 200, 0.5,
            "; lr_scheduler: warm-up 4 + decay 2 are more than the 4 steps of the schedule: decay cut to 0");
    assert_int_equal(s.decay_steps, 0);
    ASSERT_RATES(&s, 1 / 4., 2 / 4., 3 / 4., 1, 1);
}

/* A half goes to the even number, as in Python. */
static void test_rounding_of_the_ratio(void **state)
{
    (void)state;
    assert_int_equal(schedule(5, 0, 0.5, DECAY_LINEAR, 0).decay_steps, 2);
    assert_int_equal(schedule(7, 0, 0.5, DECAY_LINEAR, 0).decay_steps, 4);
    assert_int_equal(schedule(1000, 200, 0.8, DECAY_LINEAR, 0).decay_steps, 800);
    assert_int_equal(schedule(10, 0, 0.26, DECAY_LINEAR, 0).decay_steps, 3);
    assert_int_equal(schedule(3000, 600, 0.33333, DECAY_LINEAR, 0).decay_steps, 1000);
}

/* Up to the peak, then never up again, never below the end point, and still above 0 at the last step. */
static void test_every_schedule(void **state)
{
    struct rng_key key = rng_key_of(12, "schedule");

    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        int64_t total = 1 + (int64_t)rng_below(key, 5 * i, 60), warmup = (int64_t)rng_below(key, 5 * i + 1, 70);
        double ratio = rng_below(key, 5 * i + 2, 4) ? rng_uniform(key, 5 * i + 2, 1) : -1,
               floor = rng_below(key, 5 * i + 3, 2) ? 0.1 : 0;
        enum decay decay = (enum decay)rng_below(key, 5 * i + 4, 3);
        struct str warning = {0};
        struct lr_schedule s;
        double last = 0;

        lr_schedule_init(&s, 3e-4, total, warmup, ratio, decay, floor, &warning);
        str_release(&warning);
        assert_true(s.warmup_steps >= 0 && s.decay_steps >= 0 && s.warmup_steps + s.decay_steps <= total);
        for (int64_t step = 1; step <= total + 10; step++) {
            double rate = lr_schedule_at(&s, step);

            if (step <= s.warmup_steps)
                assert_true(rate > last);
            else if (step > s.warmup_steps + 1)
                assert_true(rate <= last);
            assert_true(rate <= 3e-4 && rate >= (step <= s.warmup_steps ? 0 : 3e-4 * floor * (1 - 1e-15)));
            if (step <= total) assert_true(rate > 0);
            if (step == s.warmup_steps) assert_true(rate == 3e-4);
            last = rate;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_debug_model),
        cmocka_unit_test(test_decay_after_warmup),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_min_factor),
        cmocka_unit_test(test_no_warmup_no_decay),
        cmocka_unit_test(test_what_does_not_fit),
        cmocka_unit_test(test_rounding_of_the_ratio),
        cmocka_unit_test(test_every_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
