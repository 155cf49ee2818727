/* SPDX-License-Identifier: MIT */
/*
 * The folder that holds the checkpoints of a run: which of its entries are complete checkpoints, whose they
 * are, which one to load. Nothing here communicates: rank 0 asks and tells the others (the results are plain
 * memory).
 *
 * A checkpoint counts as complete when its name is exactly step-N, its manifest reads and agrees with N, and
 * every file the manifest names is there with its size.
 */
#ifndef CHECKPOINT_FOLDER_H
#define CHECKPOINT_FOLDER_H

#include "base/error.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file_ops.h"

struct checkpoint_found {
    int64_t step; /* -1: none */
    char path[CHECKPOINT_PATH_BYTES];
    char run_id[CHECKPOINT_ID_BYTES];
    char model[128];
    char saved_at[32];
    bool unhealthy;
    bool has_optimizer;
};

/*
 * Picks a checkpoint of the run `run_id` (NULL: of any run) in `folder`: the newest healthy one for load_step
 * -1, else exactly that step (ERR_MISSING, listing the steps that there are). None at all is no error for -1:
 * out->step is -1. `notes` gets a line for everything that was passed over (damaged, unhealthy, of another
 * run); may be NULL.
 */
err_t checkpoint_find(const char *folder, int64_t load_step, const char *run_id, struct checkpoint_found *out,
                      struct str *notes, struct error *e) MUST_CHECK;

/* checkpoint.initial_load_path: either a checkpoint itself or a folder of checkpoints, of any run;
 * ERR_MISSING if it holds none. */
err_t checkpoint_find_initial(const char *path, struct checkpoint_found *out, struct str *notes,
                              struct error *e) MUST_CHECK;

/* "step-12" -> 12; -1 for everything else ("step-12x", "my-step-3", "step-007"). */
int64_t checkpoint_step_of(const char *name);

/* One complete checkpoint of a folder. */
struct checkpoint_listed {
    int64_t step;
    const char *run_id;
    bool unhealthy;
};

/* All complete ones, by rising step, in the arena; damaged ones are named in `notes` (may be NULL). A missing
 * folder holds none. */
err_t checkpoint_list(const char *folder, struct arena *a, struct checkpoint_listed **out, int *n, struct str *notes,
                      struct error *e) MUST_CHECK;

/*
 * Before a new run starts in a folder that holds checkpoints of earlier runs: moves every step-N that is not
 * of `run_id` to <runs_folder>/<its run id>/checkpoint/step-N ("unknown" where the manifest does not say), so
 * that no stale one, however high its step, is ever taken for one of this run. Nothing is deleted. `notes`
 * gets a line for each; may be NULL.
 */
err_t checkpoint_set_aside(const char *folder, const char *run_id, const char *runs_folder, struct str *notes,
                           struct error *e) MUST_CHECK;

/* Moves <folder>/<name> to <target_folder>/<name>, or <name>-2, -3.. where that is taken. */
err_t checkpoint_move_aside(const struct file_ops *files, const char *folder, const char *name,
                            const char *target_folder, struct str *notes, struct error *e) MUST_CHECK;

#endif
