/* SPDX-License-Identifier: MIT */
/* Lines of ranks: who is shown and how, one write a line from any thread, and a status line that stays the
 * last. */
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "tests/support/temp.h"

#define STAMP "\\[ctitan\\] [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3} - "

/* A log with a file and a terminal, both files of a folder of its own. */
struct scene {
    struct temp t;
    struct log log;
};

static void open_scene(struct scene *s, int rank)
{
    struct error e = {0};

    temp_make(&s->t);
    log_init(&s->log, open(temp_path(&s->t, "terminal"), O_WRONLY | O_CREAT | O_APPEND, 0644), rank);
    assert_true(s->log.terminal_fd >= 0);
    assert_int_equal(log_open_file(&s->log, temp_path(&s->t, "rank.log"), &e), ERR_NONE);
}

static void close_scene(struct scene *s)
{
    close(s->log.terminal_fd);
    log_release(&s->log);
    temp_remove(&s->t);
}

static void assert_matches(struct scene *s, const char *name, const char *pattern)
{
    struct str text = {0};
    struct error e = {0};
    regex_t regex;

    assert_int_equal(io_read_file(temp_path(&s->t, name), &text, &e), ERR_NONE);
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&regex, str_text(&text), 0, NULL, 0))
        fail_msg("%s holds \"%s\", not %s", name, str_text(&text), pattern);
    regfree(&regex);
    str_release(&text);
}

static void test_two_dresses(void **state)
{
    struct scene s;

    (void)state;
    open_scene(&s, 3);
    log_debug(&s.log, "below the level");
    log_info(&s.log, "step %d", 5);
    log_warning(&s.log, "slow");
    log_error(&s.log, "lost");
    log_info_coloured(&s.log, "plain", "\033[31mred\033[39m");
    s.log.use_colour = true;
    log_info_coloured(&s.log, "plain", "\033[31mred\033[39m");
    s.log.level = LOG_DEBUG;
    log_debug(&s.log, "wanted now");
    assert_matches(&s, "rank.log",
                   "^" STAMP "INFO - step 5\n" STAMP "WARNING - slow\n" STAMP "ERROR - lost\n" STAMP
                   "INFO - plain\n" STAMP "INFO - plain\n" STAMP "DEBUG - wanted now\n$");
    assert_matches(&s, "terminal",
                   "^\\[rank3\\]: " STAMP "INFO - step 5\n\\[rank3\\]: " STAMP "WARNING - slow\n\\[rank3\\]: " STAMP
                   "ERROR - lost\n\\[rank3\\]: " STAMP "INFO - plain\n\\[rank3\\]: " STAMP
                   "INFO - \033\\[31mred\033\\[39m\n\\[rank3\\]: " STAMP "DEBUG - wanted now\n$");
    close_scene(&s);
}

static void test_lines(void **state)
{
    struct scene s;

    (void)state;
    open_scene(&s, -1);
    log_lines(&s.log, LOG_WARNING, "head: ", "one %d\n\ntwo");
    log_lines(&s.log, LOG_INFO, "head: ", "");
    assert_matches(&s, "rank.log", "^" STAMP "WARNING - head: one %d\n" STAMP "WARNING - head: two\n$");
    close_scene(&s);
}

/* A rank that LOG_RANK does not name writes its file alone; a program outside a job has no prefix. */
static void test_who_is_shown(void **state)
{
    struct scene s;
    int terminal;

    (void)state;
    open_scene(&s, 1);
    terminal = s.log.terminal_fd;
    s.log.terminal_fd = -1;
    log_info(&s.log, "hidden");
    log_status(&s.log, "10%");
    s.log.terminal_fd = terminal;
    s.log.rank = -1;
    log_info(&s.log, "alone");
    assert_matches(&s, "rank.log", "^" STAMP "INFO - hidden\n" STAMP "INFO - alone\n$");
    assert_matches(&s, "terminal", "^" STAMP "INFO - alone\n$");
    close_scene(&s);
}

static void test_null_log(void **state)
{
    struct error e = {0};

    (void)state;
    log_info(NULL, "nobody %d", 1);
    log_info_coloured(NULL, "a", "b");
    log_status(NULL, "x");
    assert_int_equal(log_open_file(NULL, "/nowhere/rank.log", &e), ERR_NONE);
    log_release(NULL);
}

static void test_files(void **state)
{
    struct scene s;
    struct error e = {0};

    (void)state;
    open_scene(&s, 0);
    log_info(&s.log, "first");
    assert_int_equal(log_open_file(&s.log, temp_path(&s.t, "none/rank.log"), &e), ERR_IO);
    assert_non_null(strstr(e.message, "none/rank.log"));
    log_info(&s.log, "still there");
    assert_int_equal(log_open_file(&s.log, temp_path(&s.t, "second.log"), &e), ERR_NONE);
    log_info(&s.log, "second");
    assert_int_equal(log_open_file(&s.log, temp_path(&s.t, "rank.log"), &e), ERR_NONE); /* appends */
    log_info(&s.log, "third");
    assert_matches(&s, "rank.log", "^" STAMP "INFO - first\n" STAMP "INFO - still there\n" STAMP "INFO - third\n$");
    assert_matches(&s, "second.log", "^" STAMP "INFO - second\n$");
    close_scene(&s);
}

/* The status line is drawn again below each line, and gone after "". */
static void test_status(void **state)
{
    struct scene s;
    char wide[600];

    (void)state;
    open_scene(&s, 0);
    log_status(&s.log, "not a terminal");
    s.log.can_redraw = true;
    log_status(&s.log, "");
    log_status(&s.log, "50% done");
    log_info(&s.log, "line");
    log_status(&s.log, "60% done");
    log_status(&s.log, "");
    log_info(&s.log, "last");
    assert_matches(&s, "terminal",
                   "^\r\033\\[K50% done\r\033\\[K\\[rank0\\]: " STAMP "INFO - line\n50% done\r\033\\[K60% "
                   "done\r\033\\[K\\[rank0\\]: " STAMP "INFO - last\n$");
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    log_status(&s.log, wide);
    assert_true(strlen(s.log.status) < sizeof s.log.status);
    assert_matches(&s, "rank.log", "^" STAMP "INFO - line\n" STAMP "INFO - last\n$");
    close_scene(&s);
}

/* A text longer than any error is cut, not overrun; percent signs of an argument are text. */
static void test_long_and_strange_texts(void **state)
{
    struct scene s;
    char wide[3 * ERROR_MESSAGE_BYTES];

    (void)state;
    open_scene(&s, 0);
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    log_info(&s.log, "%s", "100%s %n");
    log_info(&s.log, "%s", wide);
    assert_matches(&s, "rank.log", "^" STAMP "INFO - 100%s %n\n" STAMP "INFO - w+\n$");
    close_scene(&s);
}

/* A terminal that is gone and a full disk stop nobody. */
static void test_unwritable(void **state)
{
    struct log log;
    struct error e = {0};
    int ends[2];

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    log_init(&log, ends[1], 0);
    if (access("/dev/full", W_OK) == 0) assert_int_equal(log_open_file(&log, "/dev/full", &e), ERR_NONE);
    log_info(&log, "nobody reads this");
    log_release(&log);
    close(ends[1]);
}

enum { THREADS = 4, LINES = 300 };

static void *write_lines(void *arg)
{
    struct log *log = arg;

    for (int i = 0; i < LINES; i++) {
        log_info(log, "%0*d|%s", 10 + i % 90, i, "end");
        if (i % 50 == 0) log_status(log, i % 100 ? "" : "status");
    }
    return NULL;
}

/* Another thread may change the file meanwhile: each line is whole, in one of both. */
static void test_many_threads(void **state)
{
    pthread_t threads[THREADS];
    struct scene s;
    struct str text = {0};
    struct error e = {0};
    regex_t regex;
    int n = 0;

    (void)state;
    open_scene(&s, 2);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, write_lines, &s.log), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(log_open_file(&s.log, temp_path(&s.t, i % 2 ? "rank.log" : "second.log"), &e), ERR_NONE);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(io_read_file(temp_path(&s.t, "rank.log"), &text, &e), ERR_NONE);
    assert_int_equal(io_read_file(temp_path(&s.t, "second.log"), &text, &e), ERR_NONE);
    assert_int_equal(regcomp(&regex, "^" STAMP "INFO - [0-9]{10,99}\\|end$", REG_EXTENDED | REG_NOSUB), 0);
    for (char *line = text.text, *end; (end = strchr(line, '\n')); line = end + 1, n++) {
        *end = '\0';
        if (regexec(&regex, line, 0, NULL, 0)) fail_msg("a torn line: %s", line);
    }
    assert_int_equal(n, THREADS * LINES);
    regfree(&regex);
    str_release(&text);
    close_scene(&s);
}

/* Ranks have logs of their own and one terminal. */
static void test_ranks_share_a_terminal(void **state)
{
    struct log logs[THREADS];
    pthread_t threads[THREADS];
    struct scene s;
    struct str text = {0};
    struct error e = {0};
    regex_t regex;
    int n = 0;

    (void)state;
    open_scene(&s, 0);
    assert_int_equal(regcomp(&regex, "^\\[rank[0-9]\\]: " STAMP "INFO - [0-9]{10,99}\\|end$", REG_EXTENDED | REG_NOSUB),
                     0);
    for (int i = 0; i < THREADS; i++) {
        log_init(&logs[i], s.log.terminal_fd, i);
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, &logs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        log_release(&logs[i]);
    }
    assert_int_equal(io_read_file(temp_path(&s.t, "terminal"), &text, &e), ERR_NONE);
    for (char *line = text.text, *end; (end = strchr(line, '\n')); line = end + 1, n++) {
        *end = '\0';
        if (regexec(&regex, line, 0, NULL, 0)) fail_msg("a torn line: %s", line);
    }
    assert_int_equal(n, THREADS * LINES);
    regfree(&regex);
    str_release(&text);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_dresses),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_who_is_shown),
        cmocka_unit_test(test_null_log),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_long_and_strange_texts),
        cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_ranks_share_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
