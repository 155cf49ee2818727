/* SPDX-License-Identifier: MIT */
/*
 * Tests of code that runs on several ranks. An assertion that fails on one rank would leave the others
 * waiting, so a rank_check only records and prints; when the body has returned on every rank, the failures
 * are added up and the cmocka test fails on all of them.
 */
#ifndef SUPPORT_RANK_H
#define SUPPORT_RANK_H

#include <stdbool.h>

#include "comm/comm.h"

struct rank_test {
    struct comm *comm; /* the body's communicator */
    void *arg;
    int failures;
};

#define rank_check(t, condition) rank_check_at((t), (condition), __FILE__, __LINE__, "%s", #condition)
/* call: an expression that returns err_t and fills a struct error e that is in scope. */
#define rank_check_ok(t, call) rank_check_at((t), (call) == ERR_NONE, __FILE__, __LINE__, "%s: %s", #call, e.message)
bool rank_check_at(struct rank_test *t, bool ok, const char *file, int line, const char *format, ...) PRINTF_LIKE(5, 6);

typedef void (*rank_body)(struct rank_test *t);

/* Runs body on `size` threads, each a rank of a fresh local job, and fails the running cmocka test if a check
 * failed. timeout_s: of the job, 0 = the default. */
void ranks_as_threads(int size, double timeout_s, rank_body body, void *arg);

/* The same on the processes of a world: called by each of them. */
void ranks_as_processes(struct comm *world, rank_body body, void *arg);

/* Call first in a test program for MPI: sets CTITAN_PLUGIN_PATH to the build folder, two above this program's. */
void ranks_find_plugin(void);

#endif
