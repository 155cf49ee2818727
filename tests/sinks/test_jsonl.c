/* SPDX-License-Identifier: MIT */
/* run.jsonl: exact numbers, whole lines, and what happens to it when a run was killed, goes back or finds the
 * disk full. */
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/io.h"
#include "sinks/kinds.h"
#include "tests/support/rows.h"
#include "tests/support/temp.h"

static void assert_file(const char *path, const char *want)
{
    struct error e;
    struct str text = {0};

    if (io_read_file(path, &text, &e)) fail_msg("%s", e.message);
    assert_string_equal(str_text(&text), want);
    str_release(&text);
}

static void test_line_is_exact(void **state)
{
    struct metric_row row = row_at(7);
    struct str line = {0};
    json_t *object;

    (void)state;
    row.segment = 2;
    metric_row_set(&row, METRIC_LOSS, 0.1 + 0.2);
    metric_row_set(&row, METRIC_LOSS_MAX, NAN);
    metric_row_set(&row, METRIC_GRAD_NORM, INFINITY);
    metric_row_set(&row, METRIC_LR, 8e-4);
    metric_row_set(&row, METRIC_TPS, 0);
    metric_row_set(&row, METRIC_MFU, DBL_MAX);
    metric_row_set(&row, METRIC_TOKENS_SEEN, 9007199254740991.0);
    jsonl_line(&line, &row, "{\"team\":\"a\"}");
    assert_string_equal(
        str_text(&line),
        "{\"run\":\"abcd1234\",\"segment\":2,\"step\":7,\"wall_s\":1767225607.125,\"tags\":{\"team\":\"a\"},"
        "\"loss_metrics/global_avg_loss\":0.30000000000000004,\"loss_metrics/global_max_loss\":\"NaN\","
        "\"grad_norm\":\"Infinity\",\"throughput(tps)\":0,\"mfu(%)\":1.7976931348623157e+308,"
        "\"n_tokens_seen\":9007199254740991,\"lr\":0.0008}\n");
    object = json_loads(str_text(&line), 0, NULL);
    assert_non_null(object);
    assert_true(json_real_value(json_object_get(object, "loss_metrics/global_avg_loss")) == 0.1 + 0.2);
    json_decref(object);
    str_release(&line);
}

static void *open_at(const struct jsonl_options *options)
{
    struct error e;
    void *sink = NULL;

    if (sink_ops_jsonl.open(&sink, options, &e)) fail_msg("%s", e.message);
    return sink;
}

static void write_steps(void *sink, int64_t first, int64_t last)
{
    struct error e;

    for (int64_t s = first; s <= last; s++) {
        struct metric_row row = row_at(s);

        assert_int_equal(sink_ops_jsonl.write(sink, &row, &e), ERR_NONE);
    }
    if (sink_ops_jsonl.flush(sink, &e)) fail_msg("%s", e.message);
}

static void test_tags_and_text(void **state)
{
    static const char *const tags[] = {"experiment=base=line", "team=\"a\"", "bare"};
    struct sink_text text = {.run = "r", .step = 4, .wall_s = 1, .tag = "event", .text = "two\nlines"};
    struct temp t;
    struct error e;
    struct jsonl_options options = {.tags = tags, .n_tags = 3};
    void *sink;

    (void)state;
    temp_make(&t);
    options.path = temp_path(&t, "run.jsonl");
    sink = open_at(&options);
    assert_int_equal(sink_ops_jsonl.text(sink, &text, &e), ERR_NONE);
    assert_int_equal(sink_ops_jsonl.flush(sink, &e), ERR_NONE);
    sink_ops_jsonl.close(sink);
    assert_file(options.path,
                "{\"run\":\"r\",\"segment\":0,\"step\":4,\"wall_s\":1,\"tags\":{\"experiment\":\"base=line\","
                "\"team\":\"\\\"a\\\"\",\"bare\":\"\"},\"tag\":\"event\",\"text\":\"two\\nlines\"}\n");
    temp_remove(&t);
}

/* A killed run's last line is completed if only its newline is missing, and removed if it is torn. */
static void test_repair_at_open(void **state)
{
    static const struct {
        const char *before, *after;
    } cases[] = {
        {"", ""},
        {"{\"step\":1}\n", "{\"step\":1}\n"},
        {"{\"step\":1}\n{\"step\":2}", "{\"step\":1}\n{\"step\":2}\n"},
        {"{\"step\":1}\n{\"step\":2,\"los", "{\"step\":1}\n"},
        {"{\"st", ""},
    };
    struct temp t;
    struct jsonl_options options = {0};

    (void)state;
    temp_make(&t);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        options.path = temp_write_text(&t, "run.jsonl", cases[i].before);
        sink_ops_jsonl.close(open_at(&options));
        assert_file(options.path, cases[i].after);
    }
    temp_remove(&t);
}

static void test_rewind(void **state)
{
    struct temp t, u;
    struct error e;
    char path[700], old[700];
    int64_t n;

    (void)state;
    temp_make(&t);
    temp_make(&u);
    strcpy(path, temp_path(&t, "run.jsonl"));
    strcpy(old, temp_path(&t, "superseded.jsonl"));
    assert_int_equal(jsonl_rewind(path, 5, old, &n, &e), ERR_NONE); /* nothing there */
    assert_int_equal(n, 0);
    assert_false(io_exists(path));

    temp_write_text(&t, "run.jsonl", "{\"step\":1}\n{\"step\":5}\n{\"step\":5,\"v\":1}\n{\"step\":6}\n{\"step\":7,\"x");
    assert_int_equal(jsonl_rewind(path, 5, old, &n, &e), ERR_NONE);
    assert_int_equal(n, 2);
    assert_file(path, "{\"step\":1}\n{\"step\":5}\n{\"step\":5,\"v\":1}\n");
    assert_file(old, "{\"step\":6}\n{\"step\":7,\"x\n");

    assert_int_equal(jsonl_rewind(path, 5, old, &n, &e), ERR_NONE); /* again: nothing to cut */
    assert_int_equal(n, 0);
    assert_file(old, "{\"step\":6}\n{\"step\":7,\"x\n");

    /* killed after the tail was kept and before the file was replaced: the next start does not keep it twice
     */
    temp_write_text(&t, "run.jsonl", "{\"step\":1}\n{\"step\":6}\n{\"step\":7,\"x");
    assert_int_equal(jsonl_rewind(path, 5, old, &n, &e), ERR_NONE);
    assert_file(old, "{\"step\":6}\n{\"step\":7,\"x\n");

    temp_write_text(&t, "run.jsonl", "{\"step\":1}\n{\"step\":3}\n"); /* a second fall-back adds to it */
    assert_int_equal(jsonl_rewind(path, 2, old, &n, &e), ERR_NONE);
    assert_file(old, "{\"step\":6}\n{\"step\":7,\"x\n{\"step\":3}\n");

    /* where the tail cannot be kept, run.jsonl stays as it is */
    temp_write_text(&t, "run.jsonl", "{\"step\":1}\n{\"step\":3}\n{\"step\":4}\n");
    assert_int_not_equal(jsonl_rewind(path, 2, temp_path(&u, "no/such/folder"), &n, &e), ERR_NONE);
    assert_file(path, "{\"step\":1}\n{\"step\":3}\n{\"step\":4}\n");
    temp_remove(&t);
    temp_remove(&u);
}

static void test_rewind_keeps_only_lines_of_ours(void **state)
{
    static const char bytes[] =
        "{\"step\":1}\n\n[1]\n{\"step\":1.5}\n{\"step\":\"1\"}\n{\"a\":1}\nx\0y\n{\"step\":-1}\n";
    struct str kept = {0}, cut = {0};
    int64_t n;

    (void)state;
    jsonl_split(bytes, sizeof bytes - 1, 5, &kept, &cut, &n);
    assert_string_equal(str_text(&kept), "{\"step\":1}\n{\"step\":-1}\n");
    assert_int_equal(n, 6);
    assert_int_equal(kept.length + cut.length, sizeof bytes - 1);
    str_release(&kept);
    str_release(&cut);
}

static void test_has(void **state)
{
    static const struct {
        int64_t step;
        const char *tag;
        bool is_there;
    } cases[] = {{7, "validation_metrics/loss", true},
                 {7, "loss", false},
                 {8, "validation_metrics/loss", false},
                 {9, "lr", true},
                 {5, "lr", false}};
    struct temp t;
    struct error e;
    bool has = true;

    (void)state;
    temp_make(&t);
    assert_int_equal(jsonl_has(temp_path(&t, "run.jsonl"), 1, "lr", &has, &e), ERR_NONE);
    assert_false(has);
    temp_write_text(&t, "run.jsonl",
                    "{\"step\":7,\"lr\":1}\n{\"step\":7,\"validation_metrics/loss\":2}\nlr\n{\"step\":\"5\",\"lr\":1}\n"
                    "{\"step\":8,\"text\":\"validation_metrics/loss\"}\n{\"step\":9,\"lr\":\"NaN\"}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (jsonl_has(temp_path(&t, "run.jsonl"), cases[i].step, cases[i].tag, &has, &e)) fail_msg("%s", e.message);
        if (has != cases[i].is_there) fail_msg("step %d, %s: %d", (int)cases[i].step, cases[i].tag, (int)has);
    }
    temp_remove(&t);
}

/* A disk that is full in the middle of a line: the file holds whole lines only, and the same rows go in
 * later. */
static void test_full_disk(void **state)
{
    struct rlimit before, small;
    struct metric_row row = row_full(3);
    struct temp t;
    struct error e;
    struct jsonl_options options = {0};
    int64_t whole;
    void *sink;

    (void)state;
    temp_make(&t);
    options.path = temp_path(&t, "run.jsonl");
    sink = open_at(&options);
    write_steps(sink, 1, 2);
    whole = io_file_bytes(options.path);

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = (rlim_t)whole + 100;
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(sink_ops_jsonl.write(sink, &row, &e), ERR_NONE);
    assert_int_not_equal(sink_ops_jsonl.flush(sink, &e), ERR_NONE);
    assert_int_equal(io_file_bytes(options.path), whole);
    setrlimit(RLIMIT_FSIZE, &before);

    write_steps(sink, 3, 3);
    sink_ops_jsonl.close(sink);
    {
        struct str text = {0}, kept = {0}, cut = {0};
        int64_t n;

        assert_int_equal(io_read_file(options.path, &text, &e), ERR_NONE);
        jsonl_split(str_text(&text), text.length, 2, &kept, &cut, &n);
        assert_int_equal(n, 1);
        assert_int_equal(kept.length, whole);
        str_release(&text);
        str_release(&kept);
        str_release(&cut);
    }
    temp_remove(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_is_exact),
        cmocka_unit_test(test_tags_and_text),
        cmocka_unit_test(test_repair_at_open),
        cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_rewind_keeps_only_lines_of_ours),
        cmocka_unit_test(test_has),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
