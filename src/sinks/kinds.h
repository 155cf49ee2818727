/* SPDX-License-Identifier: MIT */
/* The kinds of sinks of this build, their options, and what is done with their files before a run goes on. */
#ifndef SINKS_KINDS_H
#define SINKS_KINDS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "metrics/metrics.h"
#include "sinks/sink.h"

/* ---- console: one line a row through the log; on a terminal progress and time left below ---- */
struct console_options {
    struct log *log;
    bool use_colour;     /* console_wants_colour() */
    int64_t total_steps; /* 0 = no progress line */
};
extern const struct sink_ops sink_ops_console;

/* Colours on a terminal, unless NO_COLOR is set and not empty or metrics.disable_color_printing says so. */
bool console_wants_colour(int fd, const char *no_color, bool is_disabled);

/* The two dresses of a row's line, appended; for the sink and for tests. */
void console_line(struct str *out, const struct metric_row *row, bool use_colour);
void console_progress(struct str *out, int64_t step, int64_t total_steps, double step_s, int width);

/* ---- jsonl: run.jsonl, one object a row, whole lines only ---- */
struct jsonl_options {
    const char *path;
    const char *const *tags; /* n_tags texts "name=value" that go with every row (metrics.tags) */
    int n_tags;
};
extern const struct sink_ops sink_ops_jsonl;

/* Appends one object and a newline; tags_json: an object, or NULL for none. */
void jsonl_line(struct str *out, const struct metric_row *row, const char *tags_json);

/* After a resume from a checkpoint at `step`: keeps the lines of path whose step is <= step and appends the
 * others to superseded_path, then replaces path atomically. Lines that are no JSON object with an integer
 * "step" (a torn last line) go to superseded_path too. A missing path is fine. *n_cut (may be NULL): lines
 * moved. */
err_t jsonl_rewind(const char *path, int64_t step, const char *superseded_path, int64_t *n_cut,
                   struct error *e) MUST_CHECK;

/* *out: whether a line of path has this step and the member `tag`. A missing path has none. */
err_t jsonl_has(const char *path, int64_t step, const char *tag, bool *out, struct error *e) MUST_CHECK;

/* The same on bytes: appends to kept and cut. */
void jsonl_split(const char *bytes, size_t n, int64_t step, struct str *kept, struct str *cut, int64_t *n_cut);

/* ---- tfevents: TensorBoard's event files ---- */
struct tfevents_hparam {
    const char *name; /* "optimizer.lr" */
    enum { TFEVENTS_TEXT, TFEVENTS_NUMBER, TFEVENTS_BOOL } kind;
    const char *text;
    double number; /* of NUMBER and BOOL */
};

struct tfevents_options {
    const char *folder;      /* <dump_folder>/<what tfevents_make_folder gave>[/rank_N]; made if missing; one
                                writer per folder at a time */
    const char *run;         /* id of the run: the name of its hparams session */
    int64_t first_step;      /* first step of this process life: earlier points at or after it are superseded */
    const char *config_text; /* whole configuration as YAML, shown in the text tab; NULL = none */
    const struct tfevents_hparam *hparams;
    int n_hparams; /* 0 = none */
};
extern const struct sink_ops sink_ops_tfevents;

/* Makes <dump_folder>/<tb_folder>/YYYYmmdd-HHMM[-k] (local time of `now`), a folder that no other start has:
 * -2, -3, ... where it was taken. Appends its path relative to the dump folder, to be kept in run.json for
 * the resumed run. */
err_t tfevents_make_folder(const char *dump_folder, const char *tb_folder, time_t now, struct str *out,
                           struct error *e) MUST_CHECK;

#endif
