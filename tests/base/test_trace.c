/* SPDX-License-Identifier: MIT */
/* Every nanosecond is counted once, for the innermost phase; draining loses none. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/trace.h"

enum { MS = 1000000 };

static int64_t sum(const int64_t ns[TRACE_PHASE_COUNT])
{
    int64_t n = 0;

    for (int i = 0; i < TRACE_PHASE_COUNT; i++) n += ns[i];
    return n;
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(trace_phase_name(TRACE_OTHER), "other");
    assert_string_equal(trace_phase_name(TRACE_SINKS), "sinks");
    for (int a = 0; a < TRACE_PHASE_COUNT; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(trace_phase_name((enum trace_phase)a), trace_phase_name((enum trace_phase)b));
}

static void test_inner_phase_alone_is_counted(void **state)
{
    int64_t ns[TRACE_PHASE_COUNT], start;
    struct trace t;

    (void)state;
    trace_init(&t);
    start = t.since_ns;
    trace_begin(&t, TRACE_FORWARD);
    clock_sleep_ns(2 * MS);
    trace_begin(&t, TRACE_COMMUNICATION);
    clock_sleep_ns(20 * MS);
    trace_end(&t);
    trace_end(&t);
    trace_drain(&t, ns);
    assert_true(ns[TRACE_COMMUNICATION] >= 20 * MS);
    assert_true(ns[TRACE_FORWARD] >= 2 * MS);
    assert_true(ns[TRACE_BACKWARD] == 0);
    assert_int_equal(sum(ns), t.since_ns - start); /* more, if the inner time were in both */
}

/* Any nesting, drained at any moment, also in the middle of phases: what came out is the time that went by.
 */
static void test_no_time_is_lost_or_doubled(void **state)
{
    struct rng_key key = rng_key_of(6, "trace");
    int64_t ns[TRACE_PHASE_COUNT], start, drained = 0;
    struct trace t;
    int depth = 0;

    (void)state;
    trace_init(&t);
    start = t.since_ns;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t draw = rng_below(key, i, 40);

        if (draw < TRACE_PHASE_COUNT && depth < TRACE_MAX_DEPTH - 1) {
            trace_begin(&t, (enum trace_phase)draw);
            depth++;
        } else if (draw < 30 && depth) {
            trace_end(&t);
            depth--;
        } else if (draw == 39) {
            trace_drain(&t, ns);
            for (int p = 0; p < TRACE_PHASE_COUNT; p++) assert_true(ns[p] >= 0);
            drained += sum(ns);
            assert_int_equal(drained, t.since_ns - start);
        }
        assert_int_equal(t.depth, depth + 1);
    }
    trace_drain(&t, ns);
    assert_int_equal(drained + sum(ns), t.since_ns - start);
    assert_int_equal(sum(t.total_ns), 0);
}

static void test_null(void **state)
{
    (void)state;
    trace_begin(NULL, TRACE_DATA);
    trace_end(NULL);
}

static int ends_by_abort(int begins, int ends)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        struct trace t;

        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        trace_init(&t);
        for (int i = 0; i < begins; i++) trace_begin(&t, TRACE_DATA);
        for (int i = 0; i < ends; i++) trace_end(&t);
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* An end without a begin, or a begin too many, is a mistake in the code and found at once. */
static void test_unbalanced(void **state)
{
    (void)state;
    assert_false(ends_by_abort(TRACE_MAX_DEPTH - 1, TRACE_MAX_DEPTH - 1));
    assert_true(ends_by_abort(TRACE_MAX_DEPTH, 0));
    assert_true(ends_by_abort(0, 1));
    assert_true(ends_by_abort(2, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_inner_phase_alone_is_counted),
        cmocka_unit_test(test_no_time_is_lost_or_doubled),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_unbalanced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
