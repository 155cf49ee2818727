/* SPDX-License-Identifier: MIT */
/*
 * The window between two rows, and its row; see metrics.h.
 *
 * Time is booked by `settle`: all of it since the last call goes to training or, inside an excluded span, to
 * that span; the trace's phases of an excluded span are thrown away, so a validation's forward passes are not
 * training's. A rank first fills its own row; reduce.c then combines the ranks' rows by the reducers of
 * metrics.def; `derive` computes what depends on reduced values.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/device.h"
#include "metrics/metrics.h"
#include "metrics/reduce.h"

#define GIB 1073741824.0

struct peaks {
    int64_t active_bytes, reserved_bytes;
};

struct window {
    int64_t n_steps, n_tokens;
    int64_t training_ns;
    int64_t phase_ns[TRACE_PHASE_COUNT];    /* inside training */
    int64_t excluded_ns[TRACE_PHASE_COUNT]; /* whole spans */
    struct peaks peaks;                     /* of the time before the last reset of the device's */
    struct step_facts last;
};

struct metrics {
    struct metrics_spec spec;
    struct metrics_hooks hooks;
    struct window window;
    int64_t settled_ns; /* all time before is booked */
    bool is_excluded;
    enum trace_phase excluded; /* which span is open */
    struct peaks validation_peaks;
    int64_t sensed_ns; /* when the sensors were read last, and what they said */
    struct device_sensors sensed;
    int64_t n_tokens_seen, n_skipped;
};

/* ---- the real sources ---- */

static int64_t real_now_ns(void *arg)
{
    (void)arg;
    return clock_ns();
}

static double real_wall_s(void *arg)
{
    (void)arg;
    return clock_wall_s();
}

static void real_drain(void *arg, int64_t out_ns[TRACE_PHASE_COUNT])
{
    struct metrics *m = arg;

    if (m->spec.trace)
        trace_drain(m->spec.trace, out_ns);
    else
        memset(out_ns, 0, TRACE_PHASE_COUNT * sizeof *out_ns);
}

static void real_memory(void *arg, struct memory_stats *out)
{
    struct metrics *m = arg;

    device_memory_stats(m->spec.device, out);
}

static void real_reset_peaks(void *arg)
{
    struct metrics *m = arg;

    device_reset_peaks(m->spec.device);
}

static bool real_sensors(void *arg, struct device_sensors *out)
{
    struct metrics *m = arg;

    return device_read_sensors(m->spec.device, out);
}

err_t metrics_open(struct metrics **out, const struct metrics_spec *spec, struct error *e)
{
    struct metrics *m;

    *out = NULL;
    if (spec->log_freq <= 0)
        return FAIL(e, ERR_CONFIG, "metrics.log_freq must be greater than 0. (it is %lld)", (long long)spec->log_freq);
    m = mem_zalloc(1, sizeof *m);
    if (!m) return FAIL(e, ERR_MEMORY, "out of memory for the metrics of a run");
    m->spec = *spec;
    m->hooks = spec->hooks ? *spec->hooks
                           : (struct metrics_hooks){.arg = m,
                                                    .now_ns = real_now_ns,
                                                    .wall_s = real_wall_s,
                                                    .drain = real_drain,
                                                    .memory = spec->device ? real_memory : NULL,
                                                    .reset_peaks = real_reset_peaks,
                                                    .sensors = spec->device ? real_sensors : NULL};
    m->n_tokens_seen = spec->n_tokens_seen;
    m->n_skipped = spec->n_skipped;
    m->is_excluded = true;
    m->excluded = TRACE_SETUP;
    m->settled_ns = spec->started_ns ? spec->started_ns : m->hooks.now_ns(m->hooks.arg);
    *out = m;
    return ERR_NONE;
}

void metrics_close(struct metrics *m) { mem_free(m); }

/* ---- booking time ---- */

static bool is_training_phase(int phase)
{
    return phase != TRACE_SETUP && phase != TRACE_CHECKPOINT && phase != TRACE_VALIDATION && phase != TRACE_PROFILE;
}

static void settle(struct metrics *m)
{
    struct window *w = &m->window;
    int64_t now = m->hooks.now_ns(m->hooks.arg), elapsed = now - m->settled_ns;
    int64_t phase_ns[TRACE_PHASE_COUNT];

    m->hooks.drain(m->hooks.arg, phase_ns);
    m->settled_ns = now;
    if (m->is_excluded) {
        w->excluded_ns[m->excluded] += elapsed;
        return;
    }
    w->training_ns += elapsed;
    for (int i = 0; i < TRACE_PHASE_COUNT; i++) {
        if (is_training_phase(i)) {
            w->phase_ns[i] += phase_ns[i];
        } else { /* a lower layer's own span outside an excluded one is no training either */
            w->excluded_ns[i] += phase_ns[i];
            w->training_ns -= phase_ns[i];
        }
    }
}

/* Adds the device's peaks to p and starts them again. */
static void take_peaks(struct metrics *m, struct peaks *p)
{
    struct memory_stats stats;

    if (!m->hooks.memory) return;
    m->hooks.memory(m->hooks.arg, &stats);
    if (stats.active_peak_bytes > p->active_bytes) p->active_bytes = stats.active_peak_bytes;
    if (stats.reserved_peak_bytes > p->reserved_bytes) p->reserved_bytes = stats.reserved_peak_bytes;
    m->hooks.reset_peaks(m->hooks.arg);
}

/* false: there are none. */
static bool sense(struct metrics *m)
{
    if (!m->hooks.sensors || !m->hooks.sensors(m->hooks.arg, &m->sensed)) return false;
    m->sensed_ns = m->hooks.now_ns(m->hooks.arg);
    return true;
}

void metrics_exclude_begin(struct metrics *m, enum trace_phase phase)
{
    BUG_ON(m->is_excluded || is_training_phase(phase));
    settle(m);
    if (phase == TRACE_VALIDATION) take_peaks(m, &m->window.peaks);
    m->is_excluded = true;
    m->excluded = phase;
}

void metrics_exclude_end(struct metrics *m)
{
    BUG_ON(!m->is_excluded);
    settle(m);
    if (m->excluded == TRACE_VALIDATION) take_peaks(m, &m->validation_peaks);
    if (m->excluded == TRACE_SETUP) sense(m); /* energy is counted from here */
    m->is_excluded = false;
}

void metrics_step(struct metrics *m, const struct step_facts *facts)
{
    m->window.last = *facts;
    m->window.n_steps++;
    m->window.n_tokens += facts->n_tokens;
    m->n_tokens_seen += facts->n_tokens;
    if (facts->is_skipped) m->n_skipped++;
}

bool metrics_is_due(const struct metrics *m, int64_t step)
{
    return step == 1 || step <= m->spec.dense_steps || step % m->spec.log_freq == 0;
}

int64_t metrics_tokens_seen(const struct metrics *m) { return m->n_tokens_seen; }

int64_t metrics_skipped_updates(const struct metrics *m) { return m->n_skipped; }

/* ---- rows ---- */

static void start_row(const struct metrics *m, struct metric_row *row, enum metric_row_kind kind, int64_t step)
{
    *row = (struct metric_row){.run = m->spec.run,
                               .segment = m->spec.segment,
                               .kind = kind,
                               .step = step,
                               .wall_s = m->hooks.wall_s(m->hooks.arg)};
}

static void set_memory(const struct metrics *m, struct metric_row *row, const struct peaks *p,
                       const enum metric_id ids[4])
{
    double limit = (double)m->spec.memory_bytes;

    if (!m->hooks.memory) return;
    metric_row_set(row, ids[0], (double)p->active_bytes / GIB);
    metric_row_set(row, ids[2], (double)p->reserved_bytes / GIB);
    if (!(limit > 0)) return;
    metric_row_set(row, ids[1], 100 * (double)p->active_bytes / limit);
    metric_row_set(row, ids[3], 100 * (double)p->reserved_bytes / limit);
}

static void set_times(struct metrics *m, struct metric_row *row)
{
    static const struct {
        enum metric_id id;
        enum trace_phase phase;
    } phases[] = {
        {METRIC_TIME_DATA, TRACE_DATA},         {METRIC_TIME_FORWARD, TRACE_FORWARD},
        {METRIC_TIME_BACKWARD, TRACE_BACKWARD}, {METRIC_TIME_OPTIMIZER, TRACE_OPTIMIZER},
        {METRIC_TIME_SINKS, TRACE_SINKS},       {METRIC_TIME_COMMUNICATION, TRACE_COMMUNICATION},
    };
    const struct window *w = &m->window;
    double steps = (double)w->n_steps, other_ns = (double)w->training_ns;

    metric_row_set(row, METRIC_TIME_STEP, (double)w->training_ns / 1e9 / steps);
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        double ns = (double)w->phase_ns[phases[i].phase];

        metric_row_set(row, phases[i].id, ns / 1e9 / steps);
        other_ns -= ns;
    }
    metric_row_set(row, METRIC_TIME_OTHER, fmax(other_ns, 0) / 1e9 / steps);
    metric_row_set(row, METRIC_TIME_CHECKPOINT, (double)w->excluded_ns[TRACE_CHECKPOINT] / 1e9);
    metric_row_set(row, METRIC_TIME_VALIDATION, (double)w->excluded_ns[TRACE_VALIDATION] / 1e9);
    if (w->excluded_ns[TRACE_SETUP]) metric_row_set(row, METRIC_TIME_SETUP, (double)w->excluded_ns[TRACE_SETUP] / 1e9);
    if (w->excluded_ns[TRACE_PROFILE])
        metric_row_set(row, METRIC_TIME_PROFILE, (double)w->excluded_ns[TRACE_PROFILE] / 1e9);
}

/* What this rank knows alone: everything but DERIVED metrics. */
static void set_own(struct metrics *m, struct metric_row *row)
{
    static const enum metric_id memory_ids[4] = {METRIC_MEMORY_ACTIVE, METRIC_MEMORY_ACTIVE_PERCENT,
                                                 METRIC_MEMORY_RESERVED, METRIC_MEMORY_RESERVED_PERCENT};
    const struct step_facts *last = &m->window.last;
    struct memory_stats stats;

    if (last->n_valid > 0) metric_row_set(row, METRIC_LOSS_MAX, last->loss_sum / (double)last->n_valid);
    metric_row_set(row, METRIC_GRAD_NORM, last->grad_norm);
    metric_row_set(row, METRIC_LR, last->lr);
    metric_row_set(row, METRIC_EFFECTIVE_LR, last->is_skipped ? 0 : last->effective_lr);
    metric_row_set(row, METRIC_TOKENS_SEEN, (double)m->n_tokens_seen);
    if (m->n_skipped > 0) metric_row_set(row, METRIC_SKIPPED, (double)m->n_skipped);
    set_times(m, row);
    set_memory(m, row, &m->window.peaks, memory_ids);
    if (!m->hooks.memory) return;
    m->hooks.memory(m->hooks.arg, &stats);
    metric_row_set(row, METRIC_ALLOC_RETRIES, (double)stats.alloc_retries);
    metric_row_set(row, METRIC_OOMS, (double)stats.ooms);
}

/* What the device used since it was looked at last: r->energy_j, and this rank's metrics. What is unknown is NAN, in
 * all ranks' means too, and dropped after the reduction. */
static void set_sensors(struct metrics *m, struct metric_row *row, struct reduction *r)
{
    double energy_j = m->sensed.energy_j, seconds;
    int64_t sensed_ns = m->sensed_ns;

    r->energy_j = NAN;
    if (!sense(m)) return;
    energy_j = m->sensed.energy_j - energy_j;
    seconds = (double)(m->sensed_ns - sensed_ns) / 1e9;
    if (energy_j >= 0 && seconds > 0) r->energy_j = energy_j;
    metric_row_set(row, METRIC_POWER, isnan(r->energy_j) ? m->sensed.power_w : energy_j / seconds);
    metric_row_set(row, METRIC_UTILIZATION, m->sensed.utilization_percent);
}

static void drop_unknown(struct metric_row *row)
{
    static const enum metric_id ids[] = {METRIC_POWER, METRIC_UTILIZATION};

    for (int i = 0; i < 2; i++)
        if (isnan(row->value[ids[i]])) row->present &= ~(UINT64_C(1) << ids[i]);
}

static void derive(const struct metrics *m, struct metric_row *row, int world_size)
{
    const struct metrics_spec *spec = &m->spec;
    double step_s = row->value[METRIC_TIME_STEP], tps, tflops;

    if (!(step_s > 0)) return;
    tps = (double)m->window.n_tokens / ((double)m->window.n_steps * step_s * world_size);
    metric_row_set(row, METRIC_TPS, tps);
    metric_row_set(row, METRIC_TPS_TOTAL, tps * world_size);
    metric_row_set(row, METRIC_TIME_DATA_PERCENT, 100 * row->value[METRIC_TIME_DATA] / step_s);
    if (!(spec->flops_per_token > 0)) return;
    tflops = spec->flops_per_token * tps / 1e12;
    metric_row_set(row, METRIC_TFLOPS, tflops);
    if (spec->peak_flops > 0 && !spec->is_quantized)
        metric_row_set(row, METRIC_MFU, 100 * tflops * 1e12 / spec->peak_flops);
}

/* own becomes the world's row with this rank's own figures where ranks differ. */
static void overlay(struct metric_row *own, const struct metric_row *world)
{
    for (int i = 0; i < METRIC_COUNT; i++) {
        bool is_shared = metric_table[i].reducer == METRIC_DERIVED || metric_table[i].reducer == METRIC_LAST ||
                         i == METRIC_LOSS_MAX || !metric_row_has(own, i);

        if (is_shared && metric_row_has(world, i)) metric_row_set(own, i, world->value[i]);
    }
}

err_t metrics_collect(struct metrics *m, struct metric_row *row, struct metric_row *own, struct error *e)
{
    struct reduction r = {0};
    struct metric_row mine;
    err_t rc;

    BUG_ON(m->window.n_steps == 0 || m->is_excluded);
    settle(m);
    take_peaks(m, &m->window.peaks);
    start_row(m, &mine, METRIC_ROW_TRAINING, m->window.last.step);
    set_own(m, &mine);
    set_sensors(m, &mine, &r);
    r.loss_sum = m->window.last.loss_sum;
    r.n_valid = (double)m->window.last.n_valid;
    r.work_s = mine.value[METRIC_TIME_STEP] - mine.value[METRIC_TIME_COMMUNICATION];
    r.reserved_bytes = (double)m->window.peaks.reserved_bytes;
    rc = reduce_rows(m->spec.world, "metrics", &mine, row, &r, e);
    if (rc) return rc;
    drop_unknown(row);
    drop_unknown(&mine);

    if (r.n_valid > 0) metric_row_set(row, METRIC_LOSS, r.loss_sum / r.n_valid);
    if (m->hooks.memory) metric_row_set(row, METRIC_MEMORY_RANK, r.memory_rank);
    metric_row_set(row, METRIC_SLOWEST_RANK, r.slowest_rank);
    metric_row_set(row, METRIC_RANK_SPREAD, r.spread_percent);
    if (!isnan(r.energy_j)) metric_row_set(row, METRIC_ENERGY, r.energy_j / (double)m->window.n_tokens);
    derive(m, row, r.world_size);
    if (own) {
        *own = mine;
        overlay(own, row);
        derive(m, own, r.world_size);
    }
    m->window = (struct window){0};
    return ERR_NONE;
}

err_t metrics_collect_validation(struct metrics *m, int64_t step, const struct validation_facts *facts,
                                 struct metric_row *row, struct metric_row *own, struct error *e)
{
    static const enum metric_id memory_ids[4] = {METRIC_VALIDATION_ACTIVE, METRIC_VALIDATION_ACTIVE_PERCENT,
                                                 METRIC_VALIDATION_RESERVED, METRIC_VALIDATION_RESERVED_PERCENT};
    struct reduction r = {.loss_sum = facts->loss_sum, .n_valid = (double)facts->n_valid};
    struct metric_row mine;
    int64_t before_ns = m->window.excluded_ns[TRACE_VALIDATION];
    err_t rc;

    BUG_ON(!m->is_excluded || m->excluded != TRACE_VALIDATION);
    metrics_exclude_end(m);
    start_row(m, &mine, METRIC_ROW_VALIDATION, step);
    set_memory(m, &mine, &m->validation_peaks, memory_ids);
    m->validation_peaks = (struct peaks){0};
    r.seconds = (double)(m->window.excluded_ns[TRACE_VALIDATION] - before_ns) / 1e9;
    rc = reduce_rows(m->spec.world, "validation metrics", &mine, row, &r, e);
    if (rc) return rc;

    if (r.n_valid > 0) metric_row_set(row, METRIC_VALIDATION_LOSS, r.loss_sum / r.n_valid);
    if (r.seconds > 0) metric_row_set(row, METRIC_VALIDATION_TPS, (double)facts->n_tokens / r.seconds / r.world_size);
    if (own) {
        *own = mine;
        overlay(own, row);
    }
    return ERR_NONE;
}
