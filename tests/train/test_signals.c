/* SPDX-License-Identifier: MIT */
/* A stop request sets a flag that all threads see; the former handlers come back; a second INT ends the
 * process. */
#include <pthread.h>
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
#include "train/signals.h"

static void test_sets_the_flag(void **state)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};
    static const char *const names[] = {"SIGTERM", "SIGINT", "SIGUSR1"};
    struct signals s;
    struct error e;

    (void)state;
    for (int i = 0; i < 3; i++) {
        if (signals_install(&s, &e)) fail_msg("%s", e.message);
        assert_int_equal(signals_pending(&s), 0);
        raise(numbers[i]);
        assert_int_equal(signals_pending(&s), numbers[i]);
        assert_string_equal(signals_name(numbers[i]), names[i]);
        signals_restore(&s);
    }
    assert_int_equal(signals_pending(NULL), 0);
    assert_string_equal(signals_name(0), "signal");
}

/* A pipe without a reader and a file at its limit are errors of a write, not the end. */
static void test_ignores_what_writes_report(void **state)
{
    static const int numbers[] = {SIGPIPE, SIGXFSZ};
    struct sigaction now;
    struct signals s;
    struct error e;

    (void)state;
    assert_int_equal(signals_install(&s, &e), ERR_NONE);
    for (int i = 0; i < 2; i++) raise(numbers[i]);
    assert_int_equal(signals_pending(&s), 0);
    signals_restore(&s);
    for (int i = 0; i < 2; i++) {
        sigaction(numbers[i], NULL, &now);
        assert_true(now.sa_handler == SIG_DFL);
    }
}

static volatile sig_atomic_t former_calls;
static void former(int number)
{
    (void)number;
    former_calls = former_calls + 1;
}

static void test_restores_what_was_there(void **state)
{
    struct sigaction mine = {.sa_handler = former}, now;
    struct signals s = {0};
    struct error e;

    (void)state;
    signals_restore(&s); /* zeroed: nothing */
    sigaction(SIGUSR1, &mine, NULL);
    assert_int_equal(signals_install(&s, &e), ERR_NONE);
    raise(SIGUSR1);
    assert_int_equal(former_calls, 0);
    signals_restore(&s);
    raise(SIGUSR1);
    assert_int_equal(former_calls, 1);
    assert_int_equal(signals_pending(&s), SIGUSR1); /* the flag stays to be asked for */
    signals_restore(&s);                            /* twice: nothing */
    sigaction(SIGTERM, NULL, &now);
    assert_true(now.sa_handler == SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
}

static void test_one_at_a_time(void **state)
{
    struct signals a, b;
    struct error e;

    (void)state;
    assert_int_equal(signals_install(&a, &e), ERR_NONE);
    assert_int_equal(signals_install(&b, &e), ERR_BUSY);
    signals_restore(&b); /* was not installed: must not take a's handlers away */
    raise(SIGTERM);
    assert_int_equal(signals_pending(&a), SIGTERM);
    signals_restore(&a);
    assert_int_equal(signals_install(&b, &e), ERR_NONE);
    signals_restore(&b);
}

static void *wait_for_flag(void *arg)
{
    for (int i = 0; i < 5000 && !signals_pending(arg); i++) clock_sleep_ns(1000 * 1000);
    return signals_pending(arg) ? arg : NULL;
}

static void test_all_threads_see_it(void **state)
{
    pthread_t threads[3];
    struct signals s;
    struct error e;
    void *saw;

    (void)state;
    assert_int_equal(signals_install(&s, &e), ERR_NONE);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, wait_for_flag, &s), 0);
    kill(getpid(), SIGTERM);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &saw);
        assert_ptr_equal(saw, &s);
    }
    signals_restore(&s);
}

/* The exit code of a child that gets these signals; 7 if it outlives them. */
static int child_gets(const int *numbers, int n)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct signals s;

        if (signals_install(&s, NULL)) _exit(1);
        for (int i = 0; i < n; i++) raise(numbers[i]);
        _exit(7);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_second_interrupt_ends_at_once(void **state)
{
    (void)state;
    assert_int_equal(child_gets((int[]){SIGINT, SIGINT}, 2), 130);
    assert_int_equal(child_gets((int[]){SIGINT, SIGTERM, SIGINT}, 3), 130);
    assert_int_equal(child_gets((int[]){SIGINT, SIGTERM, SIGUSR1, SIGTERM}, 4), 7);
    assert_int_equal(child_gets((int[]){SIGUSR1, SIGUSR1, SIGTERM, SIGTERM, SIGINT}, 5), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_the_flag),
        cmocka_unit_test(test_restores_what_was_there),
        cmocka_unit_test(test_ignores_what_writes_report),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_all_threads_see_it),
        cmocka_unit_test(test_second_interrupt_ends_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
