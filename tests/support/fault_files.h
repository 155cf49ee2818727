/* SPDX-License-Identifier: MIT */
/* A decorator of struct file_ops that lets the n-th call fail, or ends the process there. */
#ifndef SUPPORT_FAULT_FILES_H
#define SUPPORT_FAULT_FILES_H

#include <stdbool.h>

#include "checkpoint/file_ops.h"

struct fault_files {
    struct file_ops ops; /* give its address as the spec's files */
    long countdown;      /* calls until the fault; negative: none */
    int error;           /* errno of the failing call; a failing write first writes half */
    bool kill;           /* instead of failing: SIGKILL to this process */
    bool fired;
    const char *call; /* the one that failed: "rename" */
    bool no_sync;     /* flushing is counted, but not done: for tests that do not pull the plug */
    bool no_exchange; /* a file system that cannot swap two names */
    bool half_written;
};

void fault_files_init(struct fault_files *f, long countdown, int error);

#endif
