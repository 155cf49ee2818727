/* SPDX-License-Identifier: MIT */
/* Errors say what, where and which value; context is put before, never instead; a broken invariant ends the
 * process. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/error.h"

static void test_fill(void **state)
{
    struct error e = {0};

    (void)state;
    assert_int_equal(FAIL(&e, ERR_RANGE, "step %d of %s", 7, "ten"), ERR_RANGE);
    assert_int_equal(e.code, ERR_RANGE);
    assert_string_equal(e.message, "step 7 of ten");
    assert_non_null(strstr(e.file, "test_error.c"));
    assert_true(e.line > 0);
    assert_int_equal(FAIL(NULL, ERR_IO, "nobody listens"), ERR_IO);
}

static void test_prefix(void **state)
{
    struct error e = {0};

    (void)state;
    FAIL(&e, ERR_IO, "the disk is full");
    assert_int_equal(error_prefix(&e, ERR_IO, "step %d", 3), ERR_IO);
    assert_int_equal(error_prefix(&e, ERR_IO, "rank %d", 1), ERR_IO);
    assert_string_equal(e.message, "rank 1: step 3: the disk is full");
    assert_int_equal(e.code, ERR_IO);
    assert_int_equal(error_prefix(&e, ERR_PEER, "elsewhere"), ERR_PEER); /* the code may change on the way */
    assert_int_equal(e.code, ERR_PEER);
    assert_int_equal(error_prefix(NULL, ERR_IO, "step %d", 3), ERR_IO); /* nobody listens */
}

/* Long texts are cut at the end, and always end. */
static void test_long_messages(void **state)
{
    char longer[2 * ERROR_MESSAGE_BYTES];
    struct error e = {0};

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(FAIL(&e, ERR_IO, "%s", longer), ERR_IO);
    assert_int_equal(strlen(e.message), ERROR_MESSAGE_BYTES - 1);
    error_prefix(&e, ERR_IO, "short");
    assert_int_equal(strlen(e.message), ERROR_MESSAGE_BYTES - 1);
    assert_memory_equal(e.message, "short: xxx", 10);
    error_prefix(&e, ERR_IO, "%s", longer);
    assert_int_equal(strlen(e.message), ERROR_MESSAGE_BYTES - 1);
    FAIL(&e, ERR_IO, "room");
    longer[ERROR_MESSAGE_BYTES - 1] = '\0'; /* fills the message to its last byte: nothing fits behind it */
    error_prefix(&e, ERR_IO, "%s", longer);
    assert_string_equal(e.message, longer);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(error_code_name(ERR_NONE), "ERR_NONE");
    assert_string_equal(error_code_name(ERR_STOPPED), "ERR_STOPPED");
    assert_string_equal(error_code_text(ERR_CONFIG), "invalid configuration");
    for (err_t a = 0; a < ERR_COUNT; a++)
        for (err_t b = 0; b < a; b++) {
            assert_string_not_equal(error_code_name(a), error_code_name(b));
            assert_string_not_equal(error_code_text(a), error_code_text(b));
        }
    assert_string_equal(error_code_name(ERR_COUNT), "ERR_UNKNOWN");
    assert_string_equal(error_code_name(-1), "ERR_UNKNOWN");
    assert_string_equal(error_code_text(ERR_COUNT), "unknown error");
    assert_string_equal(error_code_text(-1), "unknown error");
}

static void break_invariant(int fd)
{
    int n = 3;

    dup2(fd, STDERR_FILENO);
    BUG_ON(n != 3);
    BUG("%d of %d shards", n, 4);
}

static void test_bug_aborts(void **state)
{
    char text[1024] = "";
    int ends[2], status = 0;
    size_t n = 0;
    ssize_t got;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); /* not the test library's handler */
        break_invariant(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    while ((got = read(ends[0], text + n, sizeof text - 1 - n)) > 0) n += (size_t)got;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "test_error.c"));
    assert_non_null(strstr(text, "3 of 4 shards"));
    assert_non_null(strstr(text, "mistake in ctitan itself"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill),  cmocka_unit_test(test_prefix),     cmocka_unit_test(test_long_messages),
        cmocka_unit_test(test_names), cmocka_unit_test(test_bug_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
