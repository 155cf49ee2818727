/* SPDX-License-Identifier: MIT */
/* Which rank speaks follows the schedule's placement, and a job that would be silent says how not to be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "metrics/metrics.h"

static void test_no_pipeline(void **state)
{
    static const int one[] = {0};

    (void)state;
    assert_int_equal(metrics_rank(8, 1, NULL, 0), 0);
    assert_int_equal(metrics_rank(8, 1, one, 1), 0);
}

/* Figure 6: a V-shaped placement ends where it began, whatever the schedule is called. */
static void test_placement(void **state)
{
    static const int in_turn[] = {0, 1, 2, 3}, looped[] = {0, 1, 2, 3, 0, 1, 2, 3}, v[] = {0, 1, 2, 3, 3, 2, 1, 0};

    (void)state;
    assert_int_equal(metrics_rank(32, 4, in_turn, 4), 24);
    assert_int_equal(metrics_rank(32, 4, looped, 8), 24);
    assert_int_equal(metrics_rank(32, 4, v, 8), 0);
}

static void test_log_rank_list(void **state)
{
    (void)state;
    assert_true(metrics_rank_is_shown(NULL, 0));
    assert_true(metrics_rank_is_shown("", 0));
    assert_false(metrics_rank_is_shown(NULL, 16));
    assert_true(metrics_rank_is_shown("0,16", 16));
    assert_false(metrics_rank_is_shown("0,1", 16));
    assert_false(metrics_rank_is_shown("16,", 16));
    assert_false(metrics_rank_is_shown("all", 0));
    assert_false(metrics_rank_is_shown("99999999999999999999", 0));
    assert_true(metrics_rank_list_ok(NULL) && metrics_rank_list_ok("") && metrics_rank_list_ok("3") &&
                metrics_rank_list_ok("0,16"));
    assert_false(metrics_rank_list_ok("all") || metrics_rank_list_ok("0,") || metrics_rank_list_ok(",") ||
                 metrics_rank_list_ok("-1") || metrics_rank_list_ok("0-3") ||
                 metrics_rank_list_ok("99999999999999999999"));
}

static void test_warning_has_the_command(void **state)
{
    static const char *const arguments[] = {"--config", "llama3_8b", "job.description=it's a test", ""};
    struct str text = {0};

    (void)state;
    metrics_rank_warning(&text, NULL, 16, 4, arguments);
    assert_string_equal(str_text(&text),
                        "the step lines come from rank 16, which LOG_RANK=0 does not show; to see them: "
                        "LOG_RANK=0,16 ./run_train.sh --config llama3_8b 'job.description=it'\\''s a test' ''");
    str_clear(&text);
    metrics_rank_warning(&text, "all", 16, 0, NULL);
    assert_non_null(strstr(str_text(&text), "LOG_RANK=16 ./run_train.sh"));
    str_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_pipeline),
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_log_rank_list),
        cmocka_unit_test(test_warning_has_the_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
