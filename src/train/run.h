/* SPDX-License-Identifier: MIT */
/*
 * The identity of a run: run.json in the dump folder, and the lock that keeps two live runs out of one
 * folder. Rank 0 alone calls these.
 *
 * A start goes: run_open (takes the lock, reads what is there) -> the caller looks for checkpoints of
 * run->former.id and compares their model and configuration -> run_begin (resumes the run, or starts a new
 * one and moves the former one's records to runs/<id>/) -> run_record (status) -> run_close (drops the lock).
 *
 * The lock is flock(2) on run.lock, which the kernel drops with the process, however that ends: a stale lock
 * does not exist. The file's text (pid, host, start) is only for the message to whom it is refused.
 *
 * Checkpoints left by an earlier run are no part of a new one: see checkpoint_set_aside() in
 * checkpoint/folder.h, which the caller runs after run_begin started a new run with checkpoint.enable.
 */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/str.h"

enum { RUN_ID_LENGTH = 8, RUN_VERSION = 1 };

#define RUN_STATUSES(X)                                                                                                \
    X(RUN_RUNNING, "running") /* or killed without a word, when nobody holds the lock */                               \
    X(RUN_FINISHED, "finished")                                                                                        \
    X(RUN_STOPPED, "stopped") /* on request */                                                                         \
    X(RUN_FAILED, "failed")

enum run_status {
#define X(id, name) id,
    RUN_STATUSES(X)
#undef X
        RUN_STATUS_COUNT
};
const char *run_status_name(enum run_status status);

/* One start of the run. */
struct run_segment {
    const char *start;       /* UTC, ISO 8601 */
    const char *description; /* job.description; "" = none */
    int64_t first_step;      /* the first step this segment does */
    const char *tb_folder;   /* relative to the dump folder; "" = none */
    const char *const *hosts;
    int n_hosts;
    int world;
    const char *config_hash;
    const char *binary;
};

/* What run.json says. */
struct run_info {
    char id[RUN_ID_LENGTH + 1]; /* "" = there is no run.json */
    const char *model;
    enum run_status status;
    int64_t last_step;  /* by the last run_record; 0 before */
    const char *reason; /* of the status, "" = none */
    struct run_segment *segments;
    int n_segments;
};

struct run {
    const char *dump_folder;
    struct run_info former; /* as found by run_open */
    struct run_info info;   /* since run_begin */
    bool is_resumed;        /* since run_begin */
    const char *warning;    /* NULL, or what the user should know: this file system has no locks */
    /* private */
    struct arena arena;
    int lock_fd_plus_one;
};

/* What this start is. */
struct run_start {
    const char *model;       /* "llama3/debugmodel" */
    const char *description; /* for people; NULL = none */
    const char *config_hash;
    const char *binary;
    const char *tb_folder; /* of a new run; a resumed one keeps its first segment's unless that had none */
    const char *const *hosts;
    int n_hosts;
    int world;
    int64_t resume_step; /* >= 0: step of the checkpoint of former.id to go on from; -1: none, hence a new run */
    int64_t first_step;  /* that this start does; 0 = resume_step + 1, or 1 for a new run */
    const char *refusal; /* why that checkpoint cannot be resumed (another model, ..); NULL = it can */
};

/*
 * Makes the dump folder, takes the lock, reads run.json into former. ERR_BUSY: a live process holds the lock;
 * the message names pid, host and start. A run.json that does not read is ERR_FORMAT: it is never overwritten
 * unread. On failure nothing is held.
 */
err_t run_open(struct run *r, const char *dump_folder, struct error *e) MUST_CHECK;

/* ERR_CONFIG with start->refusal if there is one. Copies everything it keeps. */
err_t run_begin(struct run *r, const struct run_start *start, struct error *e) MUST_CHECK;

/* Rewrites run.json atomically with the new status. */
err_t run_record(struct run *r, enum run_status status, int64_t last_step, const char *reason,
                 struct error *e) MUST_CHECK;

void run_close(struct run *r); /* drops the lock, frees; zeroed: nothing happens */

/* "<dump_folder>/runs": where records and checkpoints of earlier runs go; in r's arena, NULL = out of memory.
 */
char *run_former_folder(struct run *r);

/* 8 characters of [a-z0-9] from the system's random source. */
err_t run_make_id(char out[RUN_ID_LENGTH + 1], struct error *e) MUST_CHECK;

/* The text of run.json, for other readers of it; strings live in the arena. */
err_t run_parse(struct run_info *out, struct arena *a, const char *text, size_t n, const char *path,
                struct error *e) MUST_CHECK;
void run_write(const struct run_info *info, struct str *out);

#endif
