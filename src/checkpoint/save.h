/* SPDX-License-Identifier: MIT */
/*
 * Saving a checkpoint, all or nothing.
 *
 * Three stages: every writing rank writes its files into step-N.tmp-<run id> (no communication); rank 0
 * gathers what was written; rank 0 writes manifest.json and renames the folder to step-N. All data are
 * flushed to the disk before the rename. If any rank fails in any stage, every rank gets an error that names
 * the rank, the path and the reason, the temporary folder is removed, and earlier checkpoints are as they
 * were. Whether training goes on after that is the caller's decision.
 */
#ifndef CHECKPOINT_SAVE_H
#define CHECKPOINT_SAVE_H

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file_ops.h"
#include "comm/comm.h"

struct checkpoint_spec {
    const char *folder;      /* "<dump_folder>/checkpoint"; made if missing */
    const char *run_id;      /* 1..15 letters and digits */
    const char *model;       /* "llama3/debugmodel" */
    const char *binary;      /* version of the program */
    const char *config_json; /* one JSON value */
    const struct checkpoint_axis *axes;
    int n_axes;
    struct checkpoint_state state;
    const struct checkpoint_tensor *tensors; /* of this rank */
    int n_tensors;
    bool is_writer;               /* false on the copies of dp_replicate: they take part, but write nothing */
    bool parameters_only;         /* leave the optimizer out: seed checkpoints, last_save_model_only */
    int keep_latest_k;            /* how many complete ones of this run stay, the new one included; 0 = all */
    const struct file_ops *files; /* NULL = the system's */
    struct log *log;              /* for warnings of rank 0; may be NULL */
};

/*
 * Collective over c, whose ranks number the files. Returns the same code on every rank.
 *
 * After success keep_latest_k removes older complete checkpoints of this run; the newest healthy one always
 * stays. What is not a complete checkpoint of this run (other names, other runs, damaged ones) is never
 * counted and never removed. Checkpoints of this run with a higher step come from a line of training that was
 * given up (a resume from an earlier step): they move to <folder>/superseded/. So does anything else that
 * stands in the way under the name step-N; an earlier checkpoint of the same run and step is replaced in one
 * atomic step. Failing to tidy up is a warning, not an error.
 */
err_t checkpoint_save(const struct checkpoint_spec *spec, struct comm *c, struct error *e) MUST_CHECK;

#endif
