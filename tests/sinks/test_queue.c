/* SPDX-License-Identifier: MIT */
/* The queues: order, failure and recovery, a full ring, and an end within its time, on sinks that the test
 * drives. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/io.h"
#include "sinks/sink.h"
#include "tests/support/rows.h"
#include "tests/support/temp.h"

#define SECOND INT64_C(1000000000)
enum { MAX_STEPS = 20000 };

/* A sink in memory. gate: while it is closed, flush waits (like a slow disk) or fails (like a full one). */
struct probe {
    _Atomic bool is_slow, is_failing, fails_to_open;
    _Atomic int n_opened, n_closed, n_flushed, n_delivered;
    int64_t steps[MAX_STEPS];
    char last_text[64];
    int n_pending; /* encoded, not delivered */
};

static err_t probe_open(void **out, const void *options, struct error *e)
{
    struct probe *p = *(struct probe *const *)options;

    if (p->fails_to_open) return FAIL(e, ERR_IO, "cannot open the probe");
    p->n_opened++;
    *out = p;
    return ERR_NONE;
}

static err_t probe_write(void *sink, const struct metric_row *row, struct error *e)
{
    struct probe *p = sink;
    int at = p->n_delivered + p->n_pending;

    (void)e;
    if (at < MAX_STEPS) p->steps[at] = row->step;
    p->n_pending++;
    return ERR_NONE;
}

static err_t probe_text(void *sink, const struct sink_text *text, struct error *e)
{
    struct probe *p = sink;

    (void)e;
    snprintf(p->last_text, sizeof p->last_text, "%s=%s", text->tag, text->text);
    p->n_pending++;
    return ERR_NONE;
}

static err_t probe_flush(void *sink, struct error *e)
{
    struct probe *p = sink;

    while (p->is_slow) clock_sleep_ns(1000000);
    if (p->is_failing) {
        p->n_pending = 0;
        return FAIL(e, ERR_IO, "no space left on the probe");
    }
    p->n_delivered += p->n_pending;
    p->n_pending = 0;
    p->n_flushed++;
    return ERR_NONE;
}

static void probe_close(void *sink) { ((struct probe *)sink)->n_closed++; }

static const struct sink_ops probe_ops = {"probe", probe_open, probe_write, probe_text, probe_flush, probe_close};

static struct sinks *start(struct probe **p, struct log *log, int rows)
{
    struct sinks *s;
    struct error e;

    if (sinks_create(&s, log, rows, &e) || sinks_add(s, &probe_ops, p, &e)) fail_msg("%s", e.message);
    return s;
}

static void write_steps(struct sinks *s, int64_t first, int64_t last)
{
    for (int64_t i = first; i <= last; i++) {
        struct metric_row row = row_at(i);

        sinks_write(s, &row);
    }
}

static struct sink_stats stats_of(struct sinks *s)
{
    struct sink_stats out;

    assert_int_equal(sinks_count(s), 1);
    sinks_stats(s, 0, &out);
    return out;
}

static void test_all_rows_in_order(void **state)
{
    static struct probe probe;
    struct probe *p = &probe;
    struct sinks *s = start(&p, NULL, MAX_STEPS);

    (void)state;
    write_steps(s, 1, 10000);
    assert_true(sinks_flush(s, 60 * SECOND));
    assert_int_equal(stats_of(s).n_delivered, 10000);
    write_steps(s, 10001, 10010);
    assert_int_equal(sinks_close(s, 60 * SECOND), 0);
    assert_int_equal(p->n_delivered, 10010);
    for (int i = 0; i < 10010; i++) assert_int_equal(p->steps[i], i + 1);
    assert_int_equal(p->n_opened, 1);
    assert_int_equal(p->n_closed, 1);
    sinks_write(NULL, NULL); /* no sinks: nothing happens */
    assert_int_equal(sinks_close(NULL, 0), 0);
}

static void test_text_is_copied(void **state)
{
    static struct probe probe;
    struct probe *p = &probe;
    struct sinks *s = start(&p, NULL, 16);
    char words[] = "hello";

    (void)state;
    p->is_slow = true;
    sinks_text(s, &(struct sink_text){.run = "r", .tag = "greeting", .text = words});
    memset(words, 'x', 5);
    p->is_slow = false;
    assert_int_equal(sinks_close(s, 60 * SECOND), 0);
    assert_string_equal(p->last_text, "greeting=hello");
}

/* A sink that hangs delays nobody: what finds the ring full is counted, what is in it arrives. */
static void test_full_ring(void **state)
{
    static struct probe probe;
    struct probe *p = &probe;
    struct metric_row row = row_at(1);
    struct sinks *s;

    (void)state;
    p->is_slow = true;
    s = start(&p, NULL, 16);
    write_steps(s, 1, 100); /* returns although nothing is delivered */
    assert_int_equal(stats_of(s).n_written, 16);
    assert_int_equal(stats_of(s).n_lost, 84);
    sinks_measure(s, &row);
    assert_true(row.value[METRIC_SINK_QUEUED] == 16);
    assert_true(row.value[METRIC_SINK_LOST] == 84);
    assert_false(sinks_flush(s, SECOND / 100));
    p->is_slow = false;
    assert_true(sinks_flush(s, 60 * SECOND));
    write_steps(s, 101, 101);
    assert_int_equal(sinks_close(s, 60 * SECOND), 84);
    assert_int_equal(p->n_delivered, 17);
    assert_int_equal(p->steps[15], 16);
    assert_int_equal(p->steps[16], 101);
}

static int count(const char *text, const char *part)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

/* A full disk: one warning, the rows wait, and all of them arrive once, in order, when there is room again.
 */
static void test_failure_and_recovery(void **state)
{
    static struct probe probe;
    struct probe *p = &probe;
    struct temp t;
    struct log log;
    struct error e;
    struct str text = {0};
    struct sinks *s;

    (void)state;
    temp_make(&t);
    log_init(&log, -1, 0);
    assert_int_equal(log_open_file(&log, temp_path(&t, "log"), &e), ERR_NONE);
    p->fails_to_open = p->is_failing = true;
    s = start(&p, &log, 1000);
    write_steps(s, 1, 300);
    assert_false(sinks_flush(s, SECOND / 4)); /* retries several times meanwhile */
    p->fails_to_open = false;
    assert_false(sinks_flush(s, SECOND / 4));
    assert_true(stats_of(s).n_failures >= 2);
    assert_int_equal(p->n_delivered, 0);
    p->is_failing = false;
    assert_true(sinks_flush(s, 60 * SECOND));
    assert_int_equal(sinks_close(s, 60 * SECOND), 0);
    assert_int_equal(p->n_delivered, 300);
    for (int i = 0; i < 300; i++) assert_int_equal(p->steps[i], i + 1);
    log_release(&log);
    assert_int_equal(io_read_file(temp_path(&t, "log"), &text, &e), ERR_NONE);
    assert_int_equal(count(str_text(&text), "training goes on"), 1);
    assert_non_null(strstr(str_text(&text), "metrics sink probe: cannot open the probe"));
    assert_non_null(strstr(str_text(&text), "works again"));
    str_release(&text);
    temp_remove(&t);
}

/* Closing ends in its time and says what was not delivered: a sink that fails, and one that hangs. */
static void test_close_in_time(void **state)
{
    static struct probe failing, hanging;
    struct probe *p[2] = {&failing, &hanging};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct temp t;
        struct log log;
        struct error e;
        struct str text = {0};
        struct sinks *s;

        temp_make(&t);
        log_init(&log, -1, 0);
        assert_int_equal(log_open_file(&log, temp_path(&t, "log"), &e), ERR_NONE);
        p[i]->is_failing = i == 0;
        s = start(&p[i], &log, 32);
        assert_true(sinks_flush(s, 60 * SECOND));
        while (!p[i]->n_opened) clock_sleep_ns(1000000);
        p[i]->is_slow = i == 1;
        write_steps(s, 1, 40);
        assert_int_equal(sinks_close(s, SECOND / 5), 40);
        assert_int_equal(io_read_file(temp_path(&t, "log"), &text, &e), ERR_NONE);
        assert_non_null(strstr(str_text(&text),
                               "metrics sink probe: 40 rows not delivered (32 at its end, 8 lost to a full queue)"));
        str_release(&text);
        p[i]->is_slow = false; /* the abandoned writer ends by itself */
        clock_sleep_ns(SECOND / 5);
        log_release(&log);
        temp_remove(&t);
    }
    assert_int_equal(failing.n_closed, 1);
}

/* What a sink borrows is there for a writer that was left behind and comes back after everything else has gone. */
struct borrowed {
    struct log log;
    struct probe probe;
    struct probe *p;
};

static _Atomic int n_ended, n_closed_late;

static void end_borrowed(void *arg)
{
    struct borrowed *b = arg;

    n_closed_late = b->probe.n_closed;
    log_release(&b->log);
    mem_free(b);
    n_ended++;
}

static void test_borrowed_until_the_end(void **state)
{
    (void)state;
    for (int hangs = 0; hangs < 2; hangs++) {
        struct borrowed *b = mem_zalloc(1, sizeof *b);
        struct sinks *s;

        assert_non_null(b);
        n_ended = n_closed_late = 0;
        log_init(&b->log, -1, 0);
        b->p = &b->probe;
        s = start(&b->p, &b->log, 32);
        sinks_when_ended(s, end_borrowed, b);
        assert_true(sinks_flush(s, 60 * SECOND));
        while (!b->probe.n_opened) clock_sleep_ns(1000000);
        b->probe.is_slow = hangs;
        write_steps(s, 1, 3);
        assert_int_equal(sinks_close(s, hangs ? SECOND / 10 : 60 * SECOND), hangs ? 3 : 0);
        assert_int_equal(n_ended, !hangs);
        if (hangs) b->probe.is_slow = false;
        while (!n_ended) clock_sleep_ns(1000000);
        assert_int_equal(n_closed_late, 1);
    }
}

/* One sink's trouble is not the other's. */
static void test_sinks_are_independent(void **state)
{
    static struct probe good, bad;
    struct probe *p_good = &good, *p_bad = &bad;
    struct sinks *s;
    struct error e;

    (void)state;
    bad.is_failing = true;
    s = start(&p_bad, NULL, 8);
    assert_int_equal(sinks_add(s, &probe_ops, &p_good, &e), ERR_NONE);
    for (int i = 1; i <= 20; i++) {
        write_steps(s, i, i);
        while (good.n_delivered < i) clock_sleep_ns(100000);
    }
    assert_int_equal(sinks_close(s, SECOND / 10), 20);
    assert_int_equal(good.n_delivered, 20);
    assert_int_equal(bad.n_delivered, 0);
}

static void test_out_of_memory(void **state)
{
    static struct probe probe;
    struct probe *p = &probe;
    struct sinks *s;
    struct error e;

    (void)state;
    mem_fault_arm(0);
    assert_int_equal(sinks_create(&s, NULL, 16, &e), ERR_MEMORY);
    for (long n = 0; n < 2; n++) {
        assert_int_equal(sinks_create(&s, NULL, 16, &e), ERR_NONE);
        mem_fault_arm(n);
        assert_int_equal(sinks_add(s, &probe_ops, &p, &e), ERR_MEMORY);
        assert_int_equal(sinks_close(s, SECOND), 0);
    }
    mem_fault_arm(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_rows_in_order),
        cmocka_unit_test(test_text_is_copied),
        cmocka_unit_test(test_full_ring),
        cmocka_unit_test(test_failure_and_recovery),
        cmocka_unit_test(test_borrowed_until_the_end),
        cmocka_unit_test(test_close_in_time),
        cmocka_unit_test(test_sinks_are_independent),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
