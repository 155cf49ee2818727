/* SPDX-License-Identifier: MIT */
/* The console's lines, to the character. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "sinks/kinds.h"
#include "tests/support/rows.h"

static struct metric_row usual_row(void)
{
    struct metric_row row = row_at(10);

    metric_row_set(&row, METRIC_LOSS, 1.23456);
    metric_row_set(&row, METRIC_GRAD_NORM, 0.12341);
    metric_row_set(&row, METRIC_MEMORY_RESERVED, 42.15);
    metric_row_set(&row, METRIC_MEMORY_RESERVED_PERCENT, 78.32);
    metric_row_set(&row, METRIC_TPS, 12345.4);
    metric_row_set(&row, METRIC_TFLOPS, 456.78);
    metric_row_set(&row, METRIC_MFU, 42.1);
    return row;
}

static void assert_line(const struct metric_row *row, bool use_colour, const char *want)
{
    struct str line = {0};

    console_line(&line, row, use_colour);
    assert_string_equal(str_text(&line), want);
    str_release(&line);
}

static void test_line(void **state)
{
    struct metric_row row = usual_row();

    (void)state;
    assert_line(&row, false,
                "step: 10  loss: 1.23456  grad_norm: 0.1234  memory: 42.15GiB(78.32%)  tps: 12,345  tflops: "
                "456.78  mfu: 42.10%");
    assert_line(&row, true,
                "\033[31mstep: 10  \033[32mloss: 1.23456  \033[38;2;180;60;0mgrad_norm: 0.1234"
                "  \033[38;2;54;234;195mmemory: 42.15GiB(78.32%)  \033[34mtps: 12,345  \033[36mtflops: 456.78"
                "  \033[35mmfu: 42.10%\033[39m");
}

static void test_unknown_and_not_finite(void **state)
{
    struct metric_row row = row_at(3);

    (void)state;
    assert_line(&row, false, "step: 3  loss: N/A  grad_norm: N/A  memory: N/A  tps: N/A  tflops: N/A  mfu: N/A");
    metric_row_set(&row, METRIC_LOSS, -NAN);
    metric_row_set(&row, METRIC_GRAD_NORM, INFINITY);
    metric_row_set(&row, METRIC_TPS, 1234567);
    metric_row_set(&row, METRIC_TFLOPS, 1234.567);
    metric_row_set(&row, METRIC_SKIPPED, 2);
    assert_line(&row, false,
                "step: 3  loss: NaN  grad_norm: Inf  memory: N/A  tps: 1,234,567  tflops: 1,234.57  mfu: N/A "
                " skipped: 2");
}

static void test_validation_line(void **state)
{
    struct metric_row row = row_at(20);

    (void)state;
    row.kind = METRIC_ROW_VALIDATION;
    metric_row_set(&row, METRIC_VALIDATION_LOSS, 4.5);
    metric_row_set(&row, METRIC_VALIDATION_RESERVED, 1);
    metric_row_set(&row, METRIC_VALIDATION_TPS, 999);
    assert_line(&row, false, "validate step: 20  loss: 4.5000  memory: 1.00GiB  tps: 999");
    assert_line(&row, true,
                "\033[33mvalidate step: 20  \033[32mloss: 4.5000  \033[38;2;54;234;195mmemory: 1.00GiB  "
                "\033[34mtps: 999\033[39m");
}

static void test_progress(void **state)
{
    struct str line = {0};

    (void)state;
    console_progress(&line, 25, 100, 1.5, 8);
    assert_string_equal(str_text(&line), "step 25/100 [==>     ] 25%  1.5 s/step  1m53s left");
    str_clear(&line);
    console_progress(&line, 1, 100000, 60, 4);
    assert_string_equal(str_text(&line), "step 1/100000 [>   ] 0%  60 s/step  69d10h left");
    str_release(&line);
}

static void test_when_colours_are_wanted(void **state)
{
    int terminal = posix_openpt(O_RDWR | O_NOCTTY), plain = open("/dev/null", O_WRONLY);

    (void)state;
    assert_false(console_wants_colour(plain, NULL, false));
    close(plain);
    if (terminal < 0) skip();
    if (isatty(terminal)) {
        assert_true(console_wants_colour(terminal, NULL, false));
        assert_true(console_wants_colour(terminal, "", false));
        assert_false(console_wants_colour(terminal, "1", false));
        assert_false(console_wants_colour(terminal, NULL, true));
    }
    close(terminal);
}

static size_t read_all(int fd, char *out, size_t size)
{
    ssize_t n = read(fd, out, size - 1);

    out[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* On a terminal a progress line is drawn and removed again; in a file there is none, and no colour. */
static void test_through_the_log(void **state)
{
    struct metric_row row = usual_row();
    char text[4096];
    struct error e;

    (void)state;
    metric_row_set(&row, METRIC_TIME_STEP, 2);
    for (int is_terminal = 0; is_terminal < 2; is_terminal++) {
        int ends[2];
        struct log log;
        struct console_options options = {.log = &log, .use_colour = is_terminal, .total_steps = 20};
        void *sink;

        assert_int_equal(pipe(ends), 0);
        log_init(&log, ends[1], 0);
        log.use_colour = log.can_redraw = is_terminal;
        assert_int_equal(sink_ops_console.open(&sink, &options, &e), ERR_NONE);
        assert_int_equal(sink_ops_console.write(sink, &row, &e), ERR_NONE);
        assert_int_equal(sink_ops_console.flush(sink, &e), ERR_NONE);
        read_all(ends[0], text, sizeof text);
        assert_non_null(strstr(text, "[rank0]: [ctitan] "));
        assert_int_equal(strstr(text, "20s left") != NULL, is_terminal);
        assert_int_equal(strstr(text, "\033[") != NULL, is_terminal);
        assert_int_equal(strstr(text, " - INFO - step: 10  loss: 1.23456  grad_norm:") != NULL, !is_terminal);
        sink_ops_console.close(sink);
        if (is_terminal) {
            read_all(ends[0], text, sizeof text);
            assert_string_equal(text, "\r\033[K");
        }
        log_release(&log);
        close(ends[0]);
        close(ends[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_unknown_and_not_finite),
        cmocka_unit_test(test_validation_line),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_when_colours_are_wanted),
        cmocka_unit_test(test_through_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
