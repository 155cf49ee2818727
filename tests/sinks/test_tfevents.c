/* SPDX-License-Identifier: MIT */
/* Event files, read back by a reader that shares nothing with the writer. */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/io.h"
#include "sinks/tfevents_encode.h"
#include "tests/support/rows.h"
#include "tests/support/temp.h"
#include "tests/support/tfevents_reader.h"

static struct tfevents_read *reading(void) { return test_calloc(1, sizeof(struct tfevents_read)); }

static const struct tfevents_point *point(const struct tfevents_read *r, const char *tag, int64_t step)
{
    for (int i = 0; i < r->n_points; i++)
        if (!strcmp(r->points[i].tag, tag) && r->points[i].step == step) return &r->points[i];
    fail_msg("no point %s at step %lld", tag, (long long)step);
    return NULL;
}

static void test_golden_checksum(void **state)
{
    (void)state;
    assert_int_equal(tfevents_masked_crc("123456789", 9), 0xc78ab0e5u);
    assert_int_equal(tfevents_reader_masked_crc((const uint8_t *)"123456789", 9), 0xc78ab0e5u);
}

static void test_row_round_trip(void **state)
{
    struct metric_row row = row_at(12);
    struct tfevents_read *r = reading();
    struct str bytes = {0};

    (void)state;
    metric_row_set(&row, METRIC_LOSS, 0); /* a zero is a value, not a default to be left out */
    metric_row_set(&row, METRIC_GRAD_NORM, NAN);
    metric_row_set(&row, METRIC_TPS, INFINITY);
    metric_row_set(&row, METRIC_TFLOPS, -INFINITY);
    metric_row_set(&row, METRIC_LR, 1e39);
    metric_row_set(&row, METRIC_EFFECTIVE_LR, -1e300);
    metric_row_set(&row, METRIC_TIME_STEP, 1e-46);
    metric_row_set(&row, METRIC_TIME_DATA, 1e-40); /* subnormal in float32 */
    metric_row_set(&row, METRIC_TOKENS_SEEN, 16777217);
    tfevents_add_row(&bytes, &row);
    tfevents_read_bytes(r, (const uint8_t *)bytes.text, bytes.length);
    assert_int_equal(r->n_records, 1); /* one event a row */
    assert_int_equal(r->n_points, 9);
    assert_true(point(r, "loss_metrics/global_avg_loss", 12)->has_value);
    assert_true(point(r, "loss_metrics/global_avg_loss", 12)->value == 0);
    assert_true(isnan(point(r, "grad_norm", 12)->value));
    assert_true(point(r, "throughput(tps)", 12)->value == INFINITY);
    assert_true(point(r, "tflops", 12)->value == -INFINITY);
    assert_true(point(r, "lr", 12)->value == FLT_MAX);
    assert_true(point(r, "effective_lr", 12)->value == -FLT_MAX);
    assert_true(point(r, "time_metrics/end_to_end(s)", 12)->value == 0);
    assert_true(point(r, "time_metrics/data_loading(s)", 12)->value == 1e-40f);
    assert_true(point(r, "n_tokens_seen", 12)->value == 16777216);
    assert_true(point(r, "lr", 12)->wall_s == row.wall_s);
    str_release(&bytes);
    test_free(r);
}

static void write_life(const struct tfevents_options *options, int64_t first, int64_t last)
{
    struct error e;
    void *sink;

    if (sink_ops_tfevents.open(&sink, options, &e)) fail_msg("%s", e.message);
    for (int64_t s = first; s <= last; s++) {
        struct metric_row row = row_full(s);

        assert_int_equal(sink_ops_tfevents.write(sink, &row, &e), ERR_NONE);
    }
    if (sink_ops_tfevents.flush(sink, &e)) fail_msg("%s", e.message);
    sink_ops_tfevents.close(sink);
}

/* Each life of a run opens a file of its own behind all older ones and starts it with START, the first one
 * too. */
static void test_two_lives(void **state)
{
    static const struct tfevents_hparam hparams[] = {{"optimizer.lr", TFEVENTS_NUMBER, NULL, 8e-4},
                                                     {"model.name", TFEVENTS_TEXT, "llama\xff", 0},
                                                     {"checkpoint.enable", TFEVENTS_BOOL, NULL, 1}};
    struct tfevents_options options = {.run = "abcd1234",
                                       .first_step = 1,
                                       .config_text = "training:\n  steps: 10\n",
                                       .hparams = hparams,
                                       .n_hparams = 3};
    struct tfevents_read *r;
    struct temp t;
    struct arena a = {0};
    struct error e;
    char folder[800], **names;
    int n;

    (void)state;
    temp_make(&t);
    strcpy(folder, temp_path(&t, "tb/20260101-0000"));
    options.folder = folder;
    write_life(&options, 1, 20);
    options.first_step = 11;
    write_life(&options, 11, 20);
    assert_int_equal(io_list(folder, &a, &names, &n, &e), ERR_NONE);
    assert_int_equal(n, 2);
    for (int i = 0; i < n; i++) {
        long long stamp[2];

        r = reading();
        assert_int_equal(strncmp(names[i], "events.out.tfevents.", 20), 0);
        tfevents_read_file(r, io_join(&a, folder, names[i]));
        assert_string_equal(r->first, "brain.Event:2");
        assert_int_equal(r->n_versions, 1);
        assert_int_equal(r->n_starts, 1);
        assert_int_equal(r->start_step, i ? 11 : 1);
        assert_true(point(r, "lr", 20)->value == 20 + 0.25 * METRIC_LR);
        assert_string_equal(point(r, "config/text_summary", i ? 11 : 1)->plugin, "text");
        assert_string_equal(point(r, "config/text_summary", i ? 11 : 1)->text,
                            "```yaml\ntraining:\n  steps: 10\n\n```\n");
        assert_string_equal(point(r, "_hparams_/experiment", 0)->plugin, "hparams");
        assert_string_equal(point(r, "_hparams_/session_start_info", 0)->plugin, "hparams");
        stamp[i] = strtoll(names[i] + 20, NULL, 10);
        if (i) assert_true(stamp[1] > strtoll(names[0] + 20, NULL, 10));
        test_free(r);
    }
    arena_release(&a);
    temp_remove(&t);
}

/* A clock that was ahead, or was set back: the new file still comes last. */
static void test_name_after_a_file_of_the_future(void **state)
{
    struct tfevents_options options = {.run = "r", .first_step = 5};
    struct temp t;
    struct arena a = {0};
    struct error e;
    char **names;
    int n;

    (void)state;
    temp_make(&t);
    temp_write_text(&t, "events.out.tfevents.4000000000.host.1.0", "torn");
    temp_write_text(&t, "other", "");
    options.folder = t.folder;
    write_life(&options, 5, 5);
    assert_int_equal(io_list(t.folder, &a, &names, &n, &e), ERR_NONE);
    assert_int_equal(n, 3);
    assert_int_equal(strncmp(names[1], "events.out.tfevents.4000000001.", 31), 0);
    arena_release(&a);
    temp_remove(&t);
}

/* 9: starts of the same minute, also at the same moment, get folders of their own. */
struct maker {
    const char *dump;
    struct str made;
};

static void *make_one(void *arg)
{
    struct maker *m = arg;
    struct error e;

    if (tfevents_make_folder(m->dump, "tb", 1767225600, &m->made, &e)) str_add(&m->made, e.message);
    return NULL;
}

static void test_folder_of_each_start(void **state)
{
    enum { N = 8 };
    struct maker makers[N] = {0};
    pthread_t threads[N];
    struct temp t;

    (void)state;
    temp_make(&t);
    for (int i = 0; i < N; i++) {
        makers[i].dump = t.folder;
        pthread_create(&threads[i], NULL, make_one, &makers[i]);
    }
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N; i++) {
        const char *name = str_text(&makers[i].made);
        int year, minute, k = 1;

        assert_true(sscanf(name, "tb/%8d-%4d-%d", &year, &minute, &k) >= 2);
        assert_true(k >= 1 && k <= N);
        assert_true(io_is_folder(temp_path(&t, name)));
        for (int j = 0; j < i; j++) assert_string_not_equal(name, str_text(&makers[j].made));
    }
    for (int i = 0; i < N; i++) str_release(&makers[i].made);
    temp_remove(&t);
}

/* The disk is full inside a record: the file keeps whole records only, and takes the rows later. */
static void test_full_disk(void **state)
{
    struct tfevents_options options = {.run = "r", .first_step = 1};
    struct tfevents_read *r = reading();
    struct rlimit before, small;
    struct metric_row row = row_full(1);
    struct arena a = {0};
    struct temp t;
    struct error e;
    char **names, *path;
    void *sink;
    int n;

    (void)state;
    temp_make(&t);
    options.folder = t.folder;
    assert_int_equal(sink_ops_tfevents.open(&sink, &options, &e), ERR_NONE);
    assert_int_equal(io_list(t.folder, &a, &names, &n, &e), ERR_NONE);
    path = io_join(&a, t.folder, names[0]);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = (rlim_t)io_file_bytes(path) + 50;
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(sink_ops_tfevents.write(sink, &row, &e), ERR_NONE);
    assert_int_not_equal(sink_ops_tfevents.flush(sink, &e), ERR_NONE);
    setrlimit(RLIMIT_FSIZE, &before);
    tfevents_read_file(r, path);
    assert_int_equal(r->n_records, 2);
    assert_int_equal(r->whole_bytes, io_file_bytes(path));
    assert_int_equal(sink_ops_tfevents.write(sink, &row, &e), ERR_NONE);
    assert_int_equal(sink_ops_tfevents.flush(sink, &e), ERR_NONE);
    sink_ops_tfevents.close(sink);
    memset(r, 0, sizeof *r);
    tfevents_read_file(r, path);
    assert_int_equal(r->n_records, 3);
    assert_int_equal(r->whole_bytes, io_file_bytes(path));
    arena_release(&a);
    temp_remove(&t);
    test_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_checksum),
        cmocka_unit_test(test_row_round_trip),
        cmocka_unit_test(test_two_lives),
        cmocka_unit_test(test_name_after_a_file_of_the_future),
        cmocka_unit_test(test_folder_of_each_start),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
