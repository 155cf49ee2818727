/* SPDX-License-Identifier: MIT */
/*
 * One rank of a training job: everything it holds, and the phases of its life.
 *
 *     trainer_open     set-up in the order of the members below; collective over the world
 *     train_run        the loop: step, validate, save, stop
 *     trainer_close    releases all of it; also after a failed open
 *
 * Every rank of the job makes the same calls. What only rank 0 can know (may this folder be used, which checkpoint is
 * resumed) is decided there and broadcast (start.h).
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <stdbool.h>

#include "base/log.h"
#include "base/trace.h"
#include "config/config.h"
#include "data/loader.h"
#include "data/prepare.h"
#include "mesh/mesh.h"
#include "metrics/metrics.h"
#include "models/model.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "parallel/executor.h"
#include "sinks/kinds.h"
#include "train/run.h"
#include "train/signals.h"
#include "train/start.h"

/* What the launcher gives; all borrowed. */
struct trainer_spec {
    const struct config *cfg; /* resolved for the world's size */
    struct comm *world;
    struct log *log;
    const struct signals *signals; /* NULL: none */
    const char *log_rank;          /* LOG_RANK, for the warning about the rank that speaks; NULL = "0" */
    int n_arguments;               /* of the command, for the same warning */
    const char *const *arguments;
    bool is_terminal;   /* the speaking rank's terminal takes colours and a progress line */
    bool is_dry;        /* fake_backend: nothing is written to the dump folder */
    int64_t started_ns; /* clock_ns() at the start of the process */
};

/* What a step leaves on the device, in host memory for copies. */
struct step_scalars {
    double loss_sum, grad_norm;
};

/* A step that was issued. */
struct step_result {
    struct step_facts facts; /* scalars are filled in when it is settled */
    struct step_scalars *scalars;
    struct event *done; /* they are there */
    bool is_pending;
};

struct trainer {
    struct trainer_spec spec;
    const struct config *cfg;
    struct trace trace;
    struct mesh mesh;
    struct device *device;
    const struct kernels *kernels;
    enum dtype type; /* the compute type */
    struct data_prepared data, validation_data;
    struct token_cache *tokens, *validation_tokens;
    struct run run;           /* rank 0 only */
    struct train_start start; /* how this life of the run begins; the same on every rank */
    struct model *model;
    struct executor executor;
    struct optimizer optimizer;
    struct step_result results[2]; /* of step n: [n % 2] */
    struct step_scalars *scalars;  /* owned, [2] */
    struct lr_schedule schedule;
    struct loader *loader;
    struct metrics *metrics;
    struct sinks *sinks;                /* NULL on ranks that publish nothing */
    struct trainer_sinks *sink_options; /* what the sinks borrow */
    struct microbatch *microbatches;    /* [n_microbatches] */
    struct batch **batches;             /* [n_microbatches], borrowed from the loader during a step */
    int n_microbatches;
    struct memory_stats forecast; /* of this rank: the highest values */
    double patience_s;            /* how long this rank waits for others: trainer_be_patient */
    int64_t step;                 /* steps done, or issued: trainer_settle */
    int64_t schedule_step;        /* of the learning rate's schedule: another number when that was not loaded */
    bool is_finite;               /* last loss and gradient norm that were settled */
};

/* ERR_INTERRUPTED: this rank was asked to stop while it prepared the data; others may know nothing of it. */
err_t trainer_open(struct trainer *t, const struct trainer_spec *spec, struct error *e) MUST_CHECK;
void trainer_close(struct trainer *t);

/* ERR_STOPPED: stopped on request, with a checkpoint; ERR_INTERRUPTED: without one. */
err_t train_run(struct trainer *t, struct error *e) MUST_CHECK;

/* ---- the parts, each in its file ---- */
struct microbatch microbatch_of(const struct batch *b);          /* a view of it */
err_t train_step(struct trainer *t, struct error *e) MUST_CHECK; /* step.c: issues one optimizer step */
/* step.c: waits for the steps that were issued, and tells their results in order. Collective: whoever looks at results,
 * at parameters or at the time calls it first, on every rank. */
err_t trainer_settle(struct trainer *t, struct error *e) MUST_CHECK;
err_t trainer_open_results(struct trainer *t, struct error *e) MUST_CHECK; /* step.c */
void trainer_close_results(struct trainer *t);
err_t train_validate(struct trainer *t, struct error *e) MUST_CHECK; /* validate.c: one pass over the validation text */
err_t trainer_load(struct trainer *t, struct error *e) MUST_CHECK;   /* state.c: what t->start decided to load */
/* state.c: step-N for the steps done. parameters_only: seeds, and last_save_model_only. ERR_IO is the same on all
 * ranks: the files cannot be written, and everything else is as it was. */
err_t trainer_save(struct trainer *t, bool parameters_only, struct error *e) MUST_CHECK;
/* state.c: for an error that all ranks share: ERR_PEER on all but rank 0, which tells it. Returns e's code. */
err_t trainer_tell_once(const struct trainer *t, struct error *e) MUST_CHECK;
/* How long a rank waits for another: comm.init_timeout_seconds, or comm.train_timeout_seconds between checkpoints once
 * a step is done. */
void trainer_be_patient(struct trainer *t, bool is_patient);

/* setup.c: parts of trainer_open, which the forecast uses too */
err_t trainer_open_mesh(struct trainer *t, struct error *e) MUST_CHECK;
err_t trainer_open_model(struct trainer *t, const struct model_spec *model, struct error *e) MUST_CHECK;
err_t trainer_open_optimizer(struct trainer *t, struct error *e) MUST_CHECK;

/* forecast.c: what this rank's memory will be, found by running the step on a device that only counts; into
 * t->forecast. ERR_MEMORY with the table of who needs what when that is more than there is. */
err_t trainer_forecast_memory(struct trainer *t, const struct model_spec *model, struct error *e) MUST_CHECK;
void trainer_compare_memory(struct trainer *t); /* logs the forecast beside what was measured */

/* report.c */
err_t trainer_open_sinks(struct trainer *t, struct error *e) MUST_CHECK;
/* false: a sink hangs and was left behind; should it come back it still uses the log. The rest it may read is kept for
 * it. */
bool trainer_close_sinks(struct trainer *t);
void trainer_announce(struct trainer *t); /* the lines printed at start */
/* Sets t->is_finite. Told at once, also between two logged steps, when numbers stop to be finite and when they are
 * again; not at every step. */
void trainer_note_health(struct trainer *t, const struct step_facts *facts);
err_t trainer_publish(struct trainer *t,
                      struct error *e) MUST_CHECK; /* collects and writes the window's row; collective */
void trainer_write_rows(struct trainer *t, struct metric_row *row,
                        struct metric_row *own); /* adds the sinks' own health */
void trainer_flush_rows(struct trainer *t);      /* a failing sink is not waited for */

#endif
