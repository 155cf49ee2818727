/* SPDX-License-Identifier: MIT */
/*
 * What a training run measures: every metric is declared once in metrics.def; struct metrics gathers one
 * window between two logged steps on each rank; metrics_collect reduces it over the ranks (one collective per
 * operator) and gives a row for the sinks.
 *
 * Right by construction: a window knows how many steps it holds and divides by that; time that is not
 * training (set-up, checkpoint, validation, profile dumps) lies between metrics_exclude_begin and
 * metrics_exclude_end, is reported as itself and is in no rate, and neither are the forward passes or waits
 * inside it. Counters (tokens, skipped updates) are global and go on after a resume.
 *
 *     metrics_open(&m, &spec, e)             inside TRACE_SETUP
 *     metrics_exclude_end(m)                 the first step begins
 *     each step:  metrics_step(m, &facts)
 *                 if (metrics_is_due(m, step)) metrics_collect(m, &row, NULL, e), then sinks_write(row)
 *     validation: metrics_exclude_begin(m, TRACE_VALIDATION), the pass, metrics_collect_validation(m, ...)
 *     checkpoint: metrics_exclude_begin(m, TRACE_CHECKPOINT), the save, metrics_exclude_end(m)
 */
#ifndef METRICS_METRICS_H
#define METRICS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "base/trace.h"

struct comm;
struct device;
struct device_sensors;
struct memory_stats;

enum metric_id {
#define METRIC(id, tag, unit, reducer, sensitivity, number, format, help) id,
#include "metrics/metrics.def"
#undef METRIC
    METRIC_COUNT
};
_Static_assert(METRIC_COUNT <= 64, "struct metric_row.present holds one bit a metric");

enum metric_reducer { METRIC_SUM, METRIC_MEAN, METRIC_MAX, METRIC_MIN, METRIC_LAST, METRIC_DERIVED };
enum metric_sensitivity { METRIC_PUBLIC, METRIC_INTERNAL }; /* planned: sinks that take internal ones */
enum metric_number { METRIC_REAL, METRIC_INTEGER };

struct metric_info {
    const char *tag, *unit;
    enum metric_reducer reducer;
    enum metric_sensitivity sensitivity;
    enum metric_number number;
    const char *format, *help;
};
extern const struct metric_info metric_table[METRIC_COUNT];

enum metric_row_kind { METRIC_ROW_TRAINING, METRIC_ROW_VALIDATION };

/* One logged step. Copied by value into the sinks' queues. */
struct metric_row {
    const char *run; /* the run's id; borrowed, outlives every sink */
    int segment;     /* 0 = first life of the run, +1 at each resume */
    enum metric_row_kind kind;
    int64_t step;
    double wall_s; /* UTC, when it was collected */
    double value[METRIC_COUNT];
    uint64_t present; /* bit i: value[i] is set; an absent value is "n/a", never a sentinel */
};

static inline bool metric_row_has(const struct metric_row *row, enum metric_id id) { return row->present >> id & 1; }

static inline void metric_row_set(struct metric_row *row, enum metric_id id, double value)
{
    row->value[id] = value;
    row->present |= UINT64_C(1) << id;
}

/* Where figures come from; replaced as a whole by tests. */
struct metrics_hooks {
    void *arg;
    int64_t (*now_ns)(void *arg); /* monotonic */
    double (*wall_s)(void *arg);
    void (*drain)(void *arg, int64_t out_ns[TRACE_PHASE_COUNT]); /* like trace_drain */
    void (*memory)(void *arg, struct memory_stats *out);         /* like device_memory_stats; NULL = no figures */
    void (*reset_peaks)(void *arg);                              /* like device_reset_peaks */
    bool (*sensors)(void *arg, struct device_sensors *out);      /* like device_read_sensors; NULL = false */
};

struct metrics_spec {
    const char *run; /* borrowed */
    int segment;
    int64_t log_freq;    /* > 0, else ERR_CONFIG "metrics.log_freq must be greater than 0." */
    int64_t dense_steps; /* the first steps of a run, each logged; 0 = none */

    /* global counters so far: 0, or from the checkpoint */
    int64_t n_tokens_seen, n_skipped;

    double flops_per_token; /* 0 = unknown: no tflops, no mfu */
    double peak_flops;      /* dense, of one device, of the dtype computed in; 0 = unknown: no mfu */
    bool is_quantized;      /* computes in FP8 or MX: no mfu */
    int64_t memory_bytes;   /* this rank's device_properties.memory_bytes; 0 = unknown: no percentages */
    int64_t started_ns;     /* clock_ns() at the start of the process; 0 = now */

    /* Borrowed. Every rank of the world calls the collect functions at the same steps. */
    struct comm *world;                /* NULL = this rank alone */
    struct device *device;             /* NULL = no memory figures */
    struct trace *trace;               /* NULL = no phase times */
    const struct metrics_hooks *hooks; /* NULL = the real clock, trace and device */
};

struct metrics;

/* Opens inside TRACE_SETUP: call metrics_exclude_end when the first step begins. */
err_t metrics_open(struct metrics **out, const struct metrics_spec *spec, struct error *e) MUST_CHECK;
void metrics_close(struct metrics *m);

/* What one step did on this rank. */
struct step_facts {
    int64_t step;
    double loss_sum;  /* of this rank's valid tokens; 0 where no loss is computed (not the last stage) */
    int64_t n_valid;  /* this rank's tokens that have a label; 0 where no loss is computed */
    double grad_norm; /* global, before clipping */
    double lr, effective_lr;
    int64_t n_tokens; /* of the whole step, over all data ranks, microbatches and accumulation rounds */
    bool is_skipped;  /* the update was not applied */
};
void metrics_step(struct metrics *m, const struct step_facts *facts); /* no communication, no allocation */

/* Step 1, every log_freq steps, and the first dense_steps. */
bool metrics_is_due(const struct metrics *m, int64_t step);

/* Time that is not training, from now until metrics_exclude_end. `phase` (SETUP, CHECKPOINT, VALIDATION,
 * PROFILE) says what it was. Spans do not nest. */
void metrics_exclude_begin(struct metrics *m, enum trace_phase phase);
void metrics_exclude_end(struct metrics *m);

/* Collective over the world. Closes the window, reduces it, begins the next; resets the device's peaks. *row
 * is the same on every rank. own (may be NULL): the same row with this rank's own memory and times
 * (metrics.save_for_all_ranks). There must have been a metrics_step since the last row. */
err_t metrics_collect(struct metrics *m, struct metric_row *row, struct metric_row *own, struct error *e) MUST_CHECK;

struct validation_facts {
    double loss_sum; /* of this rank's valid tokens */
    int64_t n_valid;
    int64_t n_tokens; /* of the whole pass, over all data ranks */
};
/* Collective over the world. Ends the exclusion that metrics_exclude_begin(m, TRACE_VALIDATION) began. */
err_t metrics_collect_validation(struct metrics *m, int64_t step, const struct validation_facts *facts,
                                 struct metric_row *row, struct metric_row *own, struct error *e) MUST_CHECK;

int64_t metrics_tokens_seen(const struct metrics *m);     /* global; goes into the checkpoint */
int64_t metrics_skipped_updates(const struct metrics *m); /* global; goes into the checkpoint */

/* ---- which rank speaks (rank.c) ---- */

/* The rank whose rows are published: rank 0 without a pipeline, else the first rank of the pipeline position
 * that holds the last stage (pp is the outermost axis of the mesh). position_of_stage[n_stages] is the
 * schedule's placement; NULL with n_stages 0 = no pipeline. */
int metrics_rank(int world_size, int pp_degree, const int *position_of_stage, int n_stages);

/* Whether a value of LOG_RANK is a list of ranks, such as "0,16"; NULL and "" are: the default. */
bool metrics_rank_list_ok(const char *log_rank);

/* log_rank: the value of LOG_RANK, "0,16"; NULL or "" = "0". A text that is no list shows no rank. */
bool metrics_rank_is_shown(const char *log_rank, int rank);

/* The warning for a job whose speaking rank is not shown: appends one line with the command that would show
 * it, the arguments quoted for a shell. */
void metrics_rank_warning(struct str *out, const char *log_rank, int rank, int n_arguments,
                          const char *const *arguments);

#endif
