/* SPDX-License-Identifier: MIT */
/*
 * A job as this process sees it: which of its ranks run here, their logs, and how it ends.
 *
 *   MPI            one rank in this process, the others in others (the plugin is opened)
 *   local_tensor   all ranks, as threads
 *   fake_backend   one rank of a job that does not exist: a dry run
 *   alone          one rank
 */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"

struct job {
    struct config *cfg; /* not resolved yet: the job knows the world's size */
    int n_arguments;
    const char *const *arguments; /* of the command, for messages */
    int64_t started_ns;
};

/* Runs the whole job; returns when this process's ranks have ended. Failures have been told by then (each rank's own,
 * once, on the terminal and in its log), so e is empty after them; it is filled for what happened before any rank had a
 * log. */
err_t job_run(struct job *j, struct error *e) MUST_CHECK;

/* Is this process the one that talks before there is a world? (rank 0 by the launcher's environment, or alone) */
bool job_is_first(void);

#endif
