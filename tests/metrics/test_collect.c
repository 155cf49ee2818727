/* SPDX-License-Identifier: MIT */
/*
 * The figures that trainers get wrong, one test each, with a clock that the test moves. Numbers in the names
 * of tests are those of the list in torchtitan's studied sources: 1 first window, 2 validation, 3
 * checkpoints, 4 memory of one rank, 8 counters per rank, 10 set-up in the first rate. (5, 7: test_flops.c;
 * 6: test_rank.c; 9: tests/sinks/test_tfevents.c.)
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "comm/local.h"
#include "device/device.h"
#include "metrics/metrics.h"
#include "tests/support/rank.h"

#define SECOND INT64_C(1000000000)

/* A rank whose time, phases and memory the test sets. */
struct fake {
    int64_t now_ns;
    int64_t phase_ns[TRACE_PHASE_COUNT];
    struct memory_stats memory;
    int n_resets;
    const struct device_sensors *sensors; /* NULL: the device has none */
    struct metrics_hooks hooks;
    struct metrics *m;
};

static int64_t fake_now(void *arg) { return ((struct fake *)arg)->now_ns; }
static double fake_wall(void *arg) { return 1.7e9 + (double)((struct fake *)arg)->now_ns / 1e9; }

static void fake_drain(void *arg, int64_t out_ns[TRACE_PHASE_COUNT])
{
    struct fake *f = arg;

    memcpy(out_ns, f->phase_ns, sizeof f->phase_ns);
    memset(f->phase_ns, 0, sizeof f->phase_ns);
}

static void fake_memory(void *arg, struct memory_stats *out) { *out = ((struct fake *)arg)->memory; }

static void fake_reset_peaks(void *arg)
{
    struct fake *f = arg;

    f->memory.active_peak_bytes = f->memory.active_bytes;
    f->memory.reserved_peak_bytes = f->memory.reserved_bytes;
    f->n_resets++;
}

static bool fake_sensors(void *arg, struct device_sensors *out)
{
    struct fake *f = arg;

    if (f->sensors) *out = *f->sensors;
    return f->sensors;
}

static void start(struct fake *f, struct metrics_spec spec)
{
    struct error e;

    *f = (struct fake){.now_ns = 1000 * SECOND};
    f->hooks = (struct metrics_hooks){f, fake_now, fake_wall, fake_drain, fake_memory, fake_reset_peaks, fake_sensors};
    spec.run = "abcd1234";
    spec.hooks = &f->hooks;
    if (!spec.log_freq) spec.log_freq = 10;
    spec.memory_bytes = INT64_C(4) << 30;
    if (metrics_open(&f->m, &spec, &e)) fail_msg("%s", e.message);
}

/* Time passes, all of it in one phase. */
static void pass(struct fake *f, enum trace_phase phase, double seconds)
{
    int64_t ns = (int64_t)(seconds * 1e9);

    f->now_ns += ns;
    f->phase_ns[phase] += ns;
}

/* A step of 1 s: 0.1 data, 0.3 forward, 0.4 backward, 0.1 waiting, 0.1 optimizer; 1000 tokens. */
static void step(struct fake *f, int64_t number)
{
    pass(f, TRACE_DATA, 0.1);
    pass(f, TRACE_FORWARD, 0.3);
    pass(f, TRACE_BACKWARD, 0.4);
    pass(f, TRACE_COMMUNICATION, 0.1);
    pass(f, TRACE_OPTIMIZER, 0.1);
    metrics_step(f->m, &(struct step_facts){.step = number,
                                            .loss_sum = 500,
                                            .n_valid = 250,
                                            .grad_norm = 1.5,
                                            .lr = 1e-3,
                                            .effective_lr = 1e-3,
                                            .n_tokens = 1000});
}

static struct metric_row collect(struct fake *f)
{
    struct metric_row row;
    struct error e;

    if (metrics_collect(f->m, &row, NULL, &e)) fail_msg("%s", e.message);
    return row;
}

static void assert_metric(const struct metric_row *row, enum metric_id id, double want)
{
    double got = row->value[id];

    if (!metric_row_has(row, id)) fail_msg("%s is absent, want %.17g", metric_table[id].tag, want);
    if (!(fabs(got - want) <= 1e-9 * fmax(1, fabs(want))) && !(isnan(got) && isnan(want)))
        fail_msg("%s is %.17g, want %.17g", metric_table[id].tag, got, want);
}

static void begin(struct fake *f, struct metrics_spec spec)
{
    start(f, spec);
    metrics_exclude_end(f->m);
}

static void test_every_key_of_a_row(void **state)
{
    struct fake f;
    struct metric_row row;

    (void)state;
    begin(&f, (struct metrics_spec){.flops_per_token = 1e9, .peak_flops = 4e12});
    f.memory = (struct memory_stats){.active_bytes = 1 << 20,
                                     .active_peak_bytes = INT64_C(1) << 30,
                                     .reserved_bytes = 1 << 21,
                                     .reserved_peak_bytes = INT64_C(2) << 30,
                                     .alloc_retries = 3,
                                     .ooms = 1};
    for (int i = 1; i <= 4; i++) step(&f, i);
    row = collect(&f);
    assert_int_equal(row.step, 4);
    assert_int_equal(row.kind, METRIC_ROW_TRAINING);
    assert_metric(&row, METRIC_LOSS, 2);
    assert_metric(&row, METRIC_LOSS_MAX, 2);
    assert_metric(&row, METRIC_GRAD_NORM, 1.5);
    assert_metric(&row, METRIC_TPS, 1000);
    assert_metric(&row, METRIC_TPS_TOTAL, 1000);
    assert_metric(&row, METRIC_TFLOPS, 1);
    assert_metric(&row, METRIC_MFU, 25);
    assert_metric(&row, METRIC_TIME_STEP, 1);
    assert_metric(&row, METRIC_TIME_DATA, 0.1);
    assert_metric(&row, METRIC_TIME_DATA_PERCENT, 10);
    assert_metric(&row, METRIC_TIME_FORWARD, 0.3);
    assert_metric(&row, METRIC_TIME_BACKWARD, 0.4);
    assert_metric(&row, METRIC_TIME_OPTIMIZER, 0.1);
    assert_metric(&row, METRIC_TIME_COMMUNICATION, 0.1);
    assert_metric(&row, METRIC_TIME_SINKS, 0);
    assert_metric(&row, METRIC_TIME_OTHER, 0);
    assert_metric(&row, METRIC_MEMORY_ACTIVE, 1);
    assert_metric(&row, METRIC_MEMORY_ACTIVE_PERCENT, 25);
    assert_metric(&row, METRIC_MEMORY_RESERVED, 2);
    assert_metric(&row, METRIC_MEMORY_RESERVED_PERCENT, 50);
    assert_metric(&row, METRIC_MEMORY_RANK, 0);
    assert_metric(&row, METRIC_ALLOC_RETRIES, 3);
    assert_metric(&row, METRIC_OOMS, 1);
    assert_metric(&row, METRIC_TOKENS_SEEN, 4000);
    assert_metric(&row, METRIC_LR, 1e-3);
    assert_metric(&row, METRIC_EFFECTIVE_LR, 1e-3);
    assert_metric(&row, METRIC_SLOWEST_RANK, 0);
    assert_metric(&row, METRIC_RANK_SPREAD, 0);
    assert_false(metric_row_has(&row, METRIC_SKIPPED));
    assert_false(metric_row_has(&row, METRIC_VALIDATION_LOSS));
    step(&f, 5);
    row = collect(&f);
    assert_metric(&row, METRIC_MEMORY_RESERVED, 2.0 / 1024); /* peaks began again */
    metrics_close(f.m);
}

/* 1 and 10: the first window holds one step and no set-up; the next holds nine. */
static void test_first_windows(void **state)
{
    struct fake f;
    struct metric_row row;

    (void)state;
    start(&f, (struct metrics_spec){0});
    pass(&f, TRACE_SETUP, 40);
    pass(&f, TRACE_COMMUNICATION, 2); /* inside set-up: no exposed communication of training */
    metrics_exclude_end(f.m);
    step(&f, 1);
    assert_true(metrics_is_due(f.m, 1));
    row = collect(&f);
    assert_metric(&row, METRIC_TIME_STEP, 1);
    assert_metric(&row, METRIC_TPS, 1000);
    assert_metric(&row, METRIC_TIME_COMMUNICATION, 0.1);
    assert_metric(&row, METRIC_TIME_SETUP, 42);
    for (int i = 2; i <= 10; i++) {
        assert_int_equal(metrics_is_due(f.m, i), i == 10);
        step(&f, i);
    }
    row = collect(&f);
    assert_metric(&row, METRIC_TIME_STEP, 1);
    assert_metric(&row, METRIC_TPS, 1000);
    assert_false(metric_row_has(&row, METRIC_TIME_SETUP));
    metrics_close(f.m);
}

/* 2: validation in the middle of a window, with its own loading and passes, moves no training figure. */
static void test_validation_inside_a_window(void **state)
{
    struct fake f;
    struct metric_row row, validation;
    struct error e;

    (void)state;
    begin(&f, (struct metrics_spec){0});
    f.memory.reserved_peak_bytes = INT64_C(1) << 30;
    for (int i = 1; i <= 3; i++) step(&f, i);
    metrics_exclude_begin(f.m, TRACE_VALIDATION);
    pass(&f, TRACE_DATA, 30);
    pass(&f, TRACE_FORWARD, 20);
    f.memory.reserved_peak_bytes = INT64_C(3) << 30;
    assert_int_equal(
        metrics_collect_validation(f.m, 3, &(struct validation_facts){.loss_sum = 90, .n_valid = 30, .n_tokens = 5000},
                                   &validation, NULL, &e),
        ERR_NONE);
    assert_int_equal(validation.kind, METRIC_ROW_VALIDATION);
    assert_int_equal(validation.step, 3);
    assert_metric(&validation, METRIC_VALIDATION_LOSS, 3);
    assert_metric(&validation, METRIC_VALIDATION_TPS, 100);
    assert_metric(&validation, METRIC_VALIDATION_RESERVED, 3);
    assert_metric(&validation, METRIC_VALIDATION_RESERVED_PERCENT, 75);
    assert_false(metric_row_has(&validation, METRIC_LOSS));
    step(&f, 4);
    row = collect(&f);
    assert_metric(&row, METRIC_TIME_STEP, 1);
    assert_metric(&row, METRIC_TIME_DATA, 0.1);
    assert_metric(&row, METRIC_TIME_DATA_PERCENT, 10);
    assert_metric(&row, METRIC_TIME_FORWARD, 0.3);
    assert_metric(&row, METRIC_TPS, 1000);
    assert_metric(&row, METRIC_TIME_VALIDATION, 50);
    assert_metric(&row, METRIC_MEMORY_RESERVED, 1);
    metrics_close(f.m);
}

/* 3: checkpoints and profile dumps stand beside the rates, not in them, also when a lower layer traced them
 * itself. */
static void test_checkpoint_inside_a_window(void **state)
{
    struct fake f;
    struct metric_row row;

    (void)state;
    begin(&f, (struct metrics_spec){0});
    step(&f, 1);
    metrics_exclude_begin(f.m, TRACE_CHECKPOINT);
    pass(&f, TRACE_OTHER, 7);
    pass(&f, TRACE_COMMUNICATION, 1);
    metrics_exclude_end(f.m);
    step(&f, 2);
    pass(&f, TRACE_CHECKPOINT, 4);
    metrics_exclude_begin(f.m, TRACE_PROFILE);
    pass(&f, TRACE_PROFILE, 3);
    metrics_exclude_end(f.m);
    row = collect(&f);
    assert_metric(&row, METRIC_TIME_STEP, 1);
    assert_metric(&row, METRIC_TPS, 1000);
    assert_metric(&row, METRIC_TIME_CHECKPOINT, 12);
    assert_metric(&row, METRIC_TIME_PROFILE, 3);
    assert_metric(&row, METRIC_TIME_COMMUNICATION, 0.1);
    metrics_close(f.m);
}

/* 8: counters are the world's and go on from the checkpoint, whatever the mesh is now. */
static void test_counters_go_on(void **state)
{
    struct fake f;
    struct metric_row row;

    (void)state;
    begin(&f, (struct metrics_spec){.n_tokens_seen = 100000, .n_skipped = 1, .segment = 2});
    step(&f, 101);
    metrics_step(f.m, &(struct step_facts){.step = 102,
                                           .loss_sum = NAN,
                                           .n_valid = 10,
                                           .n_tokens = 1000,
                                           .lr = 1e-3,
                                           .effective_lr = 1e-3,
                                           .is_skipped = true});
    row = collect(&f);
    assert_int_equal(row.step, 102);
    assert_int_equal(row.segment, 2);
    assert_metric(&row, METRIC_TOKENS_SEEN, 102000);
    assert_metric(&row, METRIC_SKIPPED, 2);
    assert_metric(&row, METRIC_LR, 1e-3);
    assert_metric(&row, METRIC_EFFECTIVE_LR, 0);
    assert_metric(&row, METRIC_LOSS, NAN);
    assert_int_equal(metrics_tokens_seen(f.m), 102000);
    assert_int_equal(metrics_skipped_updates(f.m), 2);
    metrics_close(f.m);
}

static void test_when_a_row_is_due(void **state)
{
    struct fake f;
    struct metrics *m;
    struct error e;

    (void)state;
    start(&f, (struct metrics_spec){.log_freq = 5, .dense_steps = 3});
    for (int i = 1; i <= 12; i++) assert_int_equal(metrics_is_due(f.m, i), i <= 3 || i == 5 || i == 10);
    metrics_close(f.m);
    /* the most that the options take */
    start(&f, (struct metrics_spec){.log_freq = 1000000000000, .dense_steps = 3000000000});
    assert_true(metrics_is_due(f.m, 2900000001));
    assert_false(metrics_is_due(f.m, 3000000001));
    metrics_close(f.m);
    assert_int_equal(metrics_open(&m, &(struct metrics_spec){.run = "x", .log_freq = 0}, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "metrics.log_freq must be greater than 0."));
    metrics_close(m);
}

/* What is not known is absent, never a sentinel, never a rate of nothing. */
static void test_unknown_is_absent(void **state)
{
    struct fake f;
    struct metric_row row;

    (void)state;
    begin(&f, (struct metrics_spec){.flops_per_token = 1e9, .peak_flops = 1e12, .is_quantized = true});
    metrics_step(f.m, &(struct step_facts){.step = 1, .n_tokens = 10}); /* no loss here, and no time passed */
    row = collect(&f);
    assert_false(metric_row_has(&row, METRIC_LOSS));
    assert_false(metric_row_has(&row, METRIC_LOSS_MAX));
    assert_false(metric_row_has(&row, METRIC_TPS));
    step(&f, 2);
    row = collect(&f);
    assert_metric(&row, METRIC_TFLOPS, 1e-6 * 1000 * 1e9 / 1e6);
    assert_false(metric_row_has(&row, METRIC_MFU));
    metrics_close(f.m);
}

/* ---- several ranks ---- */

static void body_ranks(struct rank_test *t)
{
    struct fake f;
    struct metric_row row, own;
    struct error e;
    int rank = t->comm->rank;
    struct device_sensors sensors = {.utilization_percent = 10.0 * rank, .energy_j = 7};

    start(&f, (struct metrics_spec){.world = t->comm});
    f.sensors = &sensors;
    metrics_exclude_end(f.m);
    sensors.energy_j += 100.0 * (rank + 1);
    f.memory.reserved_peak_bytes = (INT64_C(1) + (rank == 2)) << 30;
    f.memory.alloc_retries = rank;
    pass(&f, TRACE_FORWARD, rank == 1 ? 0.8 : 0.4); /* rank 1 works longest, the others wait for it */
    pass(&f, TRACE_COMMUNICATION, rank == 1 ? 0.2 : 0.6);
    metrics_step(f.m, &(struct step_facts){.step = 1,
                                           .loss_sum = rank == 3 ? 0 : 10.0 * (rank + 1),
                                           .n_valid = rank == 3 ? 0 : 10 * (rank == 2 ? 2 : 1),
                                           .n_tokens = 4000});
    rank_check_ok(t, metrics_collect(f.m, &row, &own, &e));
    rank_check(t, row.value[METRIC_LOSS] == 60.0 / 40);
    rank_check(t, row.value[METRIC_LOSS_MAX] == 2);
    rank_check(t, fabs(row.value[METRIC_TPS] - 1000) < 1e-6); /* per device */
    rank_check(t, fabs(row.value[METRIC_TPS_TOTAL] - 4000) < 1e-6);
    rank_check(t, fabs(row.value[METRIC_TIME_FORWARD] - 0.5) < 1e-9);
    rank_check(t, row.value[METRIC_MEMORY_RESERVED] == 2); /* 4: the largest, and whose */
    rank_check(t, row.value[METRIC_MEMORY_RANK] == 2);
    rank_check(t, row.value[METRIC_ALLOC_RETRIES] == 0 + 1 + 2 + 3);
    rank_check(t, row.value[METRIC_SLOWEST_RANK] == 1);
    rank_check(t, fabs(row.value[METRIC_RANK_SPREAD] - 50) < 1e-6);
    rank_check(t, own.value[METRIC_MEMORY_RESERVED] == (rank == 2 ? 2 : 1));
    rank_check(t, fabs(own.value[METRIC_TIME_FORWARD] - (rank == 1 ? 0.8 : 0.4)) < 1e-9);
    rank_check(t, own.value[METRIC_LOSS] == row.value[METRIC_LOSS]);
    rank_check(t, row.value[METRIC_ENERGY] == 1000.0 / 4000); /* of all together */
    rank_check(t, fabs(row.value[METRIC_POWER] - 250) < 1e-9);
    rank_check(t, fabs(own.value[METRIC_POWER] - 100.0 * (rank + 1)) < 1e-9);
    rank_check(t, row.value[METRIC_UTILIZATION] == 15);

    /* one rank's NaN shows in both losses of every rank */
    pass(&f, TRACE_FORWARD, 1);
    if (rank == 3) sensors.energy_j = NAN; /* nor is the energy of all known */
    metrics_step(f.m, &(struct step_facts){.step = 2, .loss_sum = rank == 1 ? NAN : 1, .n_valid = 1, .n_tokens = 4});
    rank_check_ok(t, metrics_collect(f.m, &row, NULL, &e));
    rank_check(t, isnan(row.value[METRIC_LOSS]) && isnan(row.value[METRIC_LOSS_MAX]));
    rank_check(t, !metric_row_has(&row, METRIC_ENERGY));

    metrics_exclude_begin(f.m, TRACE_VALIDATION);
    pass(&f, TRACE_FORWARD, 2);
    rank_check_ok(
        t, metrics_collect_validation(
               f.m, 2, &(struct validation_facts){.loss_sum = rank, .n_valid = 2, .n_tokens = 80}, &row, NULL, &e));
    rank_check(t, row.value[METRIC_VALIDATION_LOSS] == 6.0 / 8);
    rank_check(t, row.value[METRIC_VALIDATION_TPS] == 10);
    metrics_close(f.m);
}

static void test_ranks(void **state)
{
    (void)state;
    ranks_as_threads(4, 0, body_ranks, NULL);
}

/* Energy is what was used since the row before, or since set-up; power its mean, or what the sensor says now where the
 * device does not count; a device without sensors has no such metrics. */
static void test_energy(void **state)
{
    struct device_sensors s = {.utilization_percent = 97, .power_w = 300, .energy_j = 5000};
    struct metric_row row, own;
    struct error e;
    struct fake f;

    (void)state;
    start(&f, (struct metrics_spec){.flops_per_token = 1e9});
    f.sensors = &s;
    s.energy_j = 6000;
    metrics_exclude_end(f.m); /* what set-up used is not training's */
    step(&f, 1);
    s.energy_j += 250;
    row = collect(&f);
    assert_metric(&row, METRIC_POWER, 250);
    assert_metric(&row, METRIC_ENERGY, 0.25);
    assert_metric(&row, METRIC_UTILIZATION, 97);
    step(&f, 2);
    step(&f, 3);
    metrics_exclude_begin(f.m, TRACE_CHECKPOINT);
    f.now_ns += 2 * SECOND;
    metrics_exclude_end(f.m);
    s.energy_j += 1200;
    row = collect(&f); /* 4 s, 2000 tokens */
    assert_metric(&row, METRIC_POWER, 300);
    assert_metric(&row, METRIC_ENERGY, 0.6);
    step(&f, 4);
    s.energy_j = NAN;
    s.utilization_percent = NAN;
    s.power_w = 123;
    if (metrics_collect(f.m, &row, &own, &e)) fail_msg("%s", e.message);
    assert_metric(&row, METRIC_POWER, 123);
    assert_metric(&own, METRIC_POWER, 123);
    assert_false(metric_row_has(&row, METRIC_ENERGY) || metric_row_has(&row, METRIC_UTILIZATION));
    assert_false(metric_row_has(&own, METRIC_ENERGY) || metric_row_has(&own, METRIC_UTILIZATION));
    step(&f, 5);
    f.sensors = NULL;
    row = collect(&f);
    assert_false(metric_row_has(&row, METRIC_POWER) || metric_row_has(&row, METRIC_ENERGY));
    metrics_close(f.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_of_a_row),
        cmocka_unit_test(test_first_windows),
        cmocka_unit_test(test_validation_inside_a_window),
        cmocka_unit_test(test_checkpoint_inside_a_window),
        cmocka_unit_test(test_counters_go_on),
        cmocka_unit_test(test_when_a_row_is_due),
        cmocka_unit_test(test_unknown_is_absent),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_energy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
