/* SPDX-License-Identifier: MIT */
/* Which checkpoint is picked, which are removed, and that nothing of others is ever touched. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/io.h"
#include "checkpoint/folder.h"
#include "checkpoint/retention.h"
#include "comm/self.h"
#include "tests/support/checkpoint_fixture.h"
#include "tests/support/fault_files.h"
#include "tests/support/temp.h"

#define RUN "aaaa1111"
#define OTHER "bbbb2222"

struct world {
    struct temp t;
    struct comm *c;
    struct fixture f;
    struct fault_files quick; /* without flushing */
    struct error e;
    struct str notes;
};

static int set_up(void **state)
{
    static struct world w;

    memset(&w, 0, sizeof w);
    temp_make(&w.t);
    if (comm_self_create(&w.c, &w.e)) return -1;
    fixture_make(&w.f, 0, 1, 1);
    fault_files_init(&w.quick, -1, 0);
    w.quick.no_sync = true;
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    comm_destroy(w->c);
    str_release(&w->notes);
    temp_remove(&w->t);
    return 0;
}

static void save(struct world *w, const char *run, int64_t step, int keep, bool unhealthy)
{
    struct checkpoint_spec spec = fixture_spec(&w->f, w->t.folder, step);

    spec.run_id = run;
    spec.keep_latest_k = keep;
    spec.state.unhealthy = unhealthy;
    spec.files = &w->quick.ops;
    if (checkpoint_save(&spec, w->c, &w->e)) fail_msg("%s", w->e.message);
}

/* The names in a folder of the test, joined by spaces. */
static void expect_names(struct world *w, const char *folder, const char *wanted)
{
    struct arena a = {0};
    struct str joined = {0};
    char **names;
    int n;

    if (io_list(temp_path(&w->t, folder), &a, &names, &n, &w->e)) fail_msg("%s", w->e.message);
    for (int i = 0; i < n; i++) str_addf(&joined, "%s%s", i ? " " : "", names[i]);
    assert_string_equal(str_text(&joined), wanted);
    str_release(&joined);
    arena_release(&a);
}

static int64_t find(struct world *w, int64_t load_step, const char *run)
{
    struct checkpoint_found found;

    str_clear(&w->notes);
    if (checkpoint_find(w->t.folder, load_step, run, &found, &w->notes, &w->e)) return -2;
    return found.step;
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(checkpoint_step_of("step-0"), 0);
    assert_int_equal(checkpoint_step_of("step-12"), 12);
    assert_int_equal(checkpoint_step_of("step-9223372036854775800"), -1); /* near the end of the range: not ours */
    assert_int_equal(checkpoint_step_of("step-99999999999999999999"), -1);
    assert_int_equal(checkpoint_step_of("step-12x"), -1);
    assert_int_equal(checkpoint_step_of("my-step-3"), -1);
    assert_int_equal(checkpoint_step_of("step-"), -1);
    assert_int_equal(checkpoint_step_of("step--3"), -1);
    assert_int_equal(checkpoint_step_of("step-007"), -1);
    assert_int_equal(checkpoint_step_of("step-3.tmp-aaaa1111"), -1);
    assert_int_equal(checkpoint_step_of("Step-3"), -1);
    assert_int_equal(checkpoint_step_of(""), -1);
}

static void test_newest_and_given_step(void **state)
{
    struct world *w = *state;
    struct checkpoint_found found;

    assert_int_equal(find(w, -1, RUN), -1); /* an empty folder */
    assert_int_equal(checkpoint_find(temp_path(&w->t, "none"), -1, RUN, &found, NULL, &w->e), ERR_NONE);
    assert_int_equal(found.step, -1);
    save(w, RUN, 9, 0, false);
    save(w, RUN, 10, 0, false);
    save(w, RUN, 100, 0, false); /* by number, not by text */
    assert_int_equal(find(w, -1, RUN), 100);
    assert_int_equal(find(w, 9, RUN), 9);
    assert_int_equal(find(w, 50, RUN), -2);
    assert_int_equal(w->e.code, ERR_MISSING);
    assert_non_null(strstr(w->e.message, "it holds steps 9, 10, 100"));
}

/* A stale checkpoint of another run, however high its number, is not picked, not counted, not removed. */
static void test_other_runs_and_strays(void **state)
{
    struct world *w = *state;

    save(w, OTHER, 99999, 0, false);
    temp_write_text(&w->t, "step-12x/manifest.json", "{}");
    temp_write_text(&w->t, "my-step-3/file", "x");
    assert_int_equal(find(w, -1, RUN), -1);
    assert_non_null(strstr(str_text(&w->notes), "step-99999 passed over: it belongs to another run"));
    for (int step = 1; step <= 5; step++) save(w, RUN, step, 2, false);
    expect_names(w, "", "my-step-3 step-12x step-4 step-5 step-99999");
    assert_int_equal(find(w, -1, RUN), 5);
    assert_int_equal(find(w, 99999, RUN), -2);
    assert_non_null(strstr(w->e.message, "belongs to run bbbb2222"));
    assert_int_equal(find(w, -1, NULL), 99999);
}

static void test_new_run_sets_others_aside(void **state)
{
    struct world *w = *state;
    char runs[TEMP_PATH_BYTES + 128];

    snprintf(runs, sizeof runs, "%s/runs", w->t.folder);
    save(w, OTHER, 5, 0, false);
    save(w, OTHER, 99999, 0, false);
    save(w, RUN, 1, 0, false);
    temp_write_text(&w->t, "step-7/other.bin", "x");
    temp_write_text(&w->t, "step-7x/other.bin", "x");
    str_clear(&w->notes);
    if (checkpoint_set_aside(w->t.folder, RUN, runs, &w->notes, &w->e)) fail_msg("%s", w->e.message);
    expect_names(w, "", "runs step-1 step-7x");
    expect_names(w, "runs", "bbbb2222 unknown");
    expect_names(w, "runs/bbbb2222/checkpoint", "step-5 step-99999");
    assert_non_null(strstr(str_text(&w->notes), "step-99999 moved to "));
    /* again, with the same name: nothing is overwritten */
    save(w, OTHER, 5, 0, false);
    if (checkpoint_set_aside(w->t.folder, RUN, runs, NULL, &w->e)) fail_msg("%s", w->e.message);
    expect_names(w, "runs/bbbb2222/checkpoint", "step-5 step-5-2 step-99999");
}

static void test_damaged_ones(void **state)
{
    struct world *w = *state;

    /* nothing but what cannot be read: starting anew silently would be wrong */
    temp_write_text(&w->t, "step-40/manifest.json", "{}");
    assert_int_equal(find(w, -1, RUN), -2);
    assert_int_equal(w->e.code, ERR_FORMAT);
    assert_non_null(strstr(w->e.message, "move it away"));
    save(w, RUN, 10, 0, false);
    save(w, RUN, 20, 0, false);
    save(w, RUN, 30, 1, false);
    expect_names(w, "", "step-30 step-40"); /* the damaged one neither counts nor goes */
    save(w, RUN, 35, 0, false);
    assert_int_equal(remove(temp_path(&w->t, "step-35/rank_00000_of_00001.optimizer.safetensors")), 0);
    assert_int_equal(find(w, -1, RUN), 30);
    assert_non_null(strstr(str_text(&w->notes), "step-35 passed over: "));
    assert_non_null(strstr(str_text(&w->notes), "optimizer.safetensors is missing"));
    assert_non_null(strstr(str_text(&w->notes), "step-40 passed over: "));
    assert_int_equal(find(w, 35, RUN), -2);
    /* renamed by hand: the manifest knows better */
    assert_int_equal(rename(temp_path(&w->t, "step-30"), "/dev/null/x"), -1);
    save(w, RUN, 41, 0, false);
    {
        char from[TEMP_PATH_BYTES + 128];

        snprintf(from, sizeof from, "%s", temp_path(&w->t, "step-41"));
        assert_int_equal(rename(from, temp_path(&w->t, "step-50")), 0);
    }
    assert_int_equal(find(w, -1, RUN), 30);
    assert_non_null(strstr(str_text(&w->notes), "says step 41: was the folder renamed?"));
}

/* What has the name of the step to save, and is not this run's, is moved, not deleted. */
static void test_name_taken(void **state)
{
    struct world *w = *state;

    save(w, OTHER, 10, 0, false);
    save(w, RUN, 10, 0, false);
    expect_names(w, "", "step-10 superseded");
    expect_names(w, "superseded", "step-10");
    assert_int_equal(find(w, 10, RUN), 10);
    temp_write_text(&w->t, "step-20/precious", "x");
    save(w, RUN, 20, 0, false);
    expect_names(w, "superseded", "step-10 step-20");
    expect_names(w, "superseded/step-20", "precious");
    save(w, RUN, 20, 0, false); /* the same run's: replaced */
    expect_names(w, "superseded", "step-10 step-20");
}

/* Resumed from step 20 of 50: what lies above is of a line that was given up, and must not be resumed from
 * later. */
static void test_going_back(void **state)
{
    struct world *w = *state;

    for (int step = 10; step <= 50; step += 10) save(w, RUN, step, 0, false);
    save(w, OTHER, 60, 0, false);
    save(w, RUN, 25, 3, false);
    expect_names(w, "", "step-10 step-20 step-25 step-60 superseded");
    expect_names(w, "superseded", "step-30 step-40 step-50");
    assert_int_equal(find(w, -1, RUN), 25);
}

static void test_keep_latest_k(void **state)
{
    struct world *w = *state;

    for (int step = 1; step <= 4; step++) save(w, RUN, step, 0, false);
    expect_names(w, "", "step-1 step-2 step-3 step-4"); /* 0 keeps all */
    save(w, RUN, 5, 3, false);
    expect_names(w, "", "step-3 step-4 step-5");
    save(w, RUN, 6, 1, false);
    expect_names(w, "", "step-6"); /* 1 keeps one good one */
}

/* Unhealthy ones are marked, are not resumed from while there is a healthy one, and do not push out the last
 * healthy one. */
static void test_unhealthy(void **state)
{
    struct world *w = *state;

    save(w, RUN, 1, 2, false);
    save(w, RUN, 2, 2, false);
    for (int step = 3; step <= 6; step++) save(w, RUN, step, 2, true);
    expect_names(w, "", "step-2 step-5 step-6");
    assert_int_equal(find(w, -1, RUN), 2);
    assert_non_null(strstr(str_text(&w->notes), "step-6 passed over: its loss, gradient or parameters are not finite"));
    assert_int_equal(find(w, 6, RUN), 6); /* asked for by number */
    /* a parameter that is not a number is seen without being told */
    ((float *)w->f.data[0])[84] = NAN;
    save(w, RUN, 7, 2, false);
    assert_int_equal(find(w, -1, RUN), 2);
    ((float *)w->f.data[0])[84] = -INFINITY;
    save(w, RUN, 8, 2, false);
    assert_int_equal(find(w, -1, RUN), 2);
    ((float *)w->f.data[0])[84] = 1;
    ((uint16_t *)w->f.data[1])[20] = 0xff80; /* -inf in bfloat16 */
    save(w, RUN, 9, 2, false);
    assert_int_equal(find(w, -1, RUN), 2);
    ((uint16_t *)w->f.data[1])[20] = 0;
    ((double *)w->f.data[3])[47] = NAN;
    save(w, RUN, 10, 2, false);
    assert_int_equal(find(w, -1, RUN), 2);
    ((double *)w->f.data[3])[47] = 1.7976931348623157e308;
    save(w, RUN, 11, 2, false);
    assert_int_equal(find(w, -1, RUN), 11);
    expect_names(w, "", "step-10 step-11");
}

static void test_all_unhealthy(void **state)
{
    struct world *w = *state;

    save(w, RUN, 1, 0, true);
    save(w, RUN, 2, 0, true);
    assert_int_equal(find(w, -1, RUN), 2); /* better than to start anew without a word */
}

static void test_initial_path(void **state)
{
    struct world *w = *state;
    struct checkpoint_found found;

    assert_int_equal(checkpoint_find_initial(w->t.folder, &found, NULL, &w->e), ERR_MISSING);
    assert_int_equal(checkpoint_find_initial(temp_path(&w->t, "none"), &found, NULL, &w->e), ERR_MISSING);
    save(w, OTHER, 3, 0, false);
    save(w, RUN, 4, 0, false);
    if (checkpoint_find_initial(w->t.folder, &found, NULL, &w->e)) fail_msg("%s", w->e.message);
    assert_int_equal(found.step, 4);
    if (checkpoint_find_initial(temp_path(&w->t, "step-3"), &found, NULL, &w->e)) fail_msg("%s", w->e.message);
    assert_int_equal(found.step, 3);
    assert_string_equal(found.run_id, OTHER);
    assert_string_equal(found.model, "llama3/debugmodel");
    assert_true(found.has_optimizer);
}

static void test_refuses_ids_that_are_paths(void **state)
{
    struct world *w = *state;
    struct checkpoint_spec spec = fixture_spec(&w->f, w->t.folder, 1);

    spec.run_id = "../up";
    assert_int_equal(checkpoint_save(&spec, w->c, &w->e), ERR_RANGE);
    spec.run_id = "";
    assert_int_equal(checkpoint_save(&spec, w->c, &w->e), ERR_RANGE);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_names),
        T(test_newest_and_given_step),
        T(test_other_runs_and_strays),
        T(test_new_run_sets_others_aside),
        T(test_damaged_ones),
        T(test_name_taken),
        T(test_going_back),
        T(test_keep_latest_k),
        T(test_unhealthy),
        T(test_all_unhealthy),
        T(test_initial_path),
        T(test_refuses_ids_that_are_paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
