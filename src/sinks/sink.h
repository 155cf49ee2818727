/* SPDX-License-Identifier: MIT */
/*
 * Where rows go: one small table per kind of sink, one bounded queue and one writer thread per open sink
 * (queue.c).
 *
 * The training thread only copies a row into the queues: sinks_write takes no lock, allocates nothing and
 * makes no system call, except waking the writer of a queue that has become half full. Everything that can be
 * slow or fail happens on the writer thread. A sink that fails (disk full, I/O error) never stops training:
 * its rows wait in the queue and are tried again, with a warning that is repeated at most once a minute; rows
 * that find the queue full are counted and reported.
 *
 *     sinks_create(&s, log, 0, e); sinks_add(s, &sink_ops_jsonl, &(struct jsonl_options){...}, e); ...
 *     sinks_write(s, &row) at each logged step; sinks_close(s, close_timeout_ns) at the end
 */
#ifndef SINKS_SINK_H
#define SINKS_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "metrics/metrics.h"

/* A piece of text at a step: the configuration, an event, a sample. */
struct sink_text {
    const char *run; /* borrowed, outlives every sink */
    int segment;
    int64_t step;
    double wall_s; /* UTC */
    const char *tag, *text;
};

/*
 * One kind of sink. All functions run on the sink's writer thread. write and text only encode into memory of
 * the sink; flush delivers all that was encoded since the last flush, or nothing: after a failed flush the
 * sink has forgotten it (and cut a half-written record off its file), and the queue writes the same rows
 * again later.
 */
struct sink_ops {
    const char *name; /* "console", "jsonl", "tfevents" */
    /* options: of the kind's own type, valid until the sinks have ended. A failed open is tried again later. */
    err_t (*open)(void **out, const void *options, struct error *e);
    err_t (*write)(void *sink, const struct metric_row *row, struct error *e);
    err_t (*text)(void *sink, const struct sink_text *text, struct error *e); /* optional */
    err_t (*flush)(void *sink, struct error *e);
    void (*close)(void *sink);
};

struct sinks;

/* log (borrowed, may be NULL) gets the warnings. queue_rows: capacity of each queue; 0 = 4096. */
err_t sinks_create(struct sinks **out, struct log *log, int queue_rows, struct error *e) MUST_CHECK;

/* Calls ended(arg) once no writer is left: at the end of sinks_close, or, where that had to abandon a writer that
 * hangs, when that one comes back (on its thread; perhaps never). Until then writers may read what the sinks
 * borrow: log, options, and the texts of rows. */
void sinks_when_ended(struct sinks *s, void (*ended)(void *arg), void *arg);

/* Starts the sink's writer thread, which opens it. ops and options are borrowed until the sinks have ended. Fails
 * only for want of memory or threads. */
err_t sinks_add(struct sinks *s, const struct sink_ops *ops, const void *options, struct error *e) MUST_CHECK;

/* From one thread at a time (the training thread). s NULL: nothing. */
void sinks_write(struct sinks *s, const struct metric_row *row);
void sinks_text(
    struct sinks *s,
    const struct sink_text *text); /* copies it; for start and rare events (planned: samples, events of the run) */

/* Sets METRIC_SINK_QUEUED and, once rows were lost, METRIC_SINK_LOST: the sinks' own health, over all of
 * them. */
void sinks_measure(const struct sinks *s, struct metric_row *row);

/* Waits until every row written so far is delivered, at most timeout_ns; false = not all were. A sink that
 * fails meanwhile is not waited for. Before a checkpoint and before an exit: what is only queued dies with
 * the process. */
bool sinks_flush(struct sinks *s, int64_t timeout_ns);

struct sink_stats {
    const char *name;
    int64_t n_written; /* rows and texts accepted into the queue */
    int64_t n_delivered;
    int64_t n_lost;     /* found the queue full */
    int64_t n_failures; /* failed opens and flushes */
};
int sinks_count(const struct sinks *s);
void sinks_stats(const struct sinks *s, int index, struct sink_stats *out);

/* Delivers what is queued within timeout_ns (of all sinks together), warns of each sink that did not deliver
 * everything and of how much, ends the threads, except those that hang (sinks_when_ended). Returns the number of
 * rows and texts not delivered, lost ones included. NULL is fine. */
int64_t sinks_close(struct sinks *s, int64_t timeout_ns);

#endif
