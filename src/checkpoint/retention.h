/* SPDX-License-Identifier: MIT */
/*
 * Which checkpoints of a run stay. Everything here acts on complete checkpoints of the given run alone, or on
 * the temporary names that this run's saves use; other names, other runs and damaged checkpoints are neither
 * counted nor touched. Rank 0 calls it.
 */
#ifndef CHECKPOINT_RETENTION_H
#define CHECKPOINT_RETENTION_H

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/file_ops.h"

/* What killed saves of this run left: step-N.tmp-<run id> goes; step-N.old-<run id> gets its name back if
 * step-N is missing, else goes. */
err_t checkpoint_remove_leftovers(const struct file_ops *files, const char *folder, const char *run_id,
                                  struct error *e) MUST_CHECK;

/* Moves this run's checkpoints with a step above `step` to <folder>/superseded/; `notes` gets a line for
 * each. */
err_t checkpoint_supersede(const struct file_ops *files, const char *folder, const char *run_id, int64_t step,
                           struct str *notes, struct error *e) MUST_CHECK;
char *checkpoint_superseded_folder(struct arena *a, const char *folder); /* NULL = out of memory */

/* Keeps the newest `keep` (0 = all), the one of step `saved`, and the newest healthy one; removes the others.
 * Each first loses its name, so that a half-removed one is never taken for a checkpoint. Failures are
 * warnings. */
void checkpoint_apply_retention(const struct file_ops *files, const char *folder, const char *run_id, int64_t saved,
                                int keep, struct log *log);

#endif
