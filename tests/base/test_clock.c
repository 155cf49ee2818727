/* SPDX-License-Identifier: MIT */
/* Durations never run backwards, dates are UTC whatever TZ says, and milliseconds are the nearest ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"

static void assert_iso(double wall_s, const char *want)
{
    char text[CLOCK_ISO_BYTES + 1];

    memset(text, '#', sizeof text);
    clock_iso(wall_s, text);
    assert_string_equal(text, want);
    assert_int_equal(text[CLOCK_ISO_BYTES], '#');
}

static void test_dates(void **state)
{
    (void)state;
    assert_iso(0, "1970-01-01T00:00:00.000Z");
    assert_iso(1769860800, "2026-01-31T12:00:00.000Z");
    assert_iso(951827696.5, "2000-02-29T12:34:56.500Z");
    assert_iso(-0.25, "1969-12-31T23:59:59.750Z");
    assert_iso(253402300799.999, "9999-12-31T23:59:59.999Z");
}

/* A double rarely holds a millisecond exactly: each must come back as itself, and never as ".1000". */
static void test_every_millisecond(void **state)
{
    char want[CLOCK_ISO_BYTES];

    (void)state;
    for (int ms = 0; ms < 1000; ms++) {
        snprintf(want, sizeof want, "2026-01-31T12:00:00.%03dZ", ms);
        assert_iso(1769860800 + ms / 1000.0, want);
    }
    assert_iso(1769860799.9996, "2026-01-31T12:00:00.000Z");
    assert_iso(1769860799.9994, "2026-01-31T11:59:59.999Z");
}

static void test_impossible_dates(void **state)
{
    (void)state;
    assert_iso(NAN, "1970-01-01T00:00:00.000Z");
    assert_iso(INFINITY, "1970-01-01T00:00:00.000Z");
    assert_iso(-INFINITY, "1970-01-01T00:00:00.000Z");
    assert_iso(1e300, "1970-01-01T00:00:00.000Z");
    assert_iso(253402300799.9999, "1970-01-01T00:00:00.000Z"); /* rounds up to the year 10000 */
}

/* A zone with an odd offset, and one with summer time. */
static void test_time_zones(void **state)
{
    static const char *const zones[] = {"Asia/Kathmandu", "America/New_York", "UTC+14", ""};
    const char *old = getenv("TZ");
    char kept[64] = "";

    (void)state;
    if (old) snprintf(kept, sizeof kept, "%s", old);
    for (int i = 0; i < 4; i++) {
        setenv("TZ", zones[i], 1);
        tzset();
        assert_iso(1783080000, "2026-07-03T12:00:00.000Z");
    }
    if (old)
        setenv("TZ", kept, 1);
    else
        unsetenv("TZ");
    tzset();
}

static void test_running(void **state)
{
    int64_t start = clock_ns(), last = start;
    double wall = clock_wall_s();

    (void)state;
    for (int i = 0; i < 1000; i++) {
        int64_t now = clock_ns();

        assert_true(now >= last);
        last = now;
    }
    clock_sleep_ns(0);
    clock_sleep_ns(-5);
    start = clock_ns();
    clock_sleep_ns(3000000);
    assert_true(clock_ns() - start >= 3000000);
    assert_true(wall > 1.6e9 && wall < 1e11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dates),
        cmocka_unit_test(test_every_millisecond),
        cmocka_unit_test(test_impossible_dates),
        cmocka_unit_test(test_time_zones),
        cmocka_unit_test(test_running),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
