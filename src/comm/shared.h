/* SPDX-License-Identifier: MIT */
/*
 * The engine of all ranks that share memory, threads or processes: collectives in which each rank reads what
 * the others put there.
 *
 * A region is the memory of one group: a line per rank with its phase counter (the only thing ranks wait for)
 * and what it is calling, then a staging window per rank. Nothing in it is a pointer that another process
 * would follow. Phases: a rank adds one to its counter and waits until everybody's counter has come as far:
 * short spin, then sleep on the counter (futex). Large messages go through the windows in chunks. Threads,
 * which see each other's buffers, skip the windows ("direct").
 *
 * A job is what all groups of one host have in common: whether and why it failed, and how long ranks wait.
 * The first failure stays.
 */
#ifndef COMM_SHARED_H
#define COMM_SHARED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/affinity.h"
#include "comm/call.h"
#include "comm/comm.h"

enum { SHARED_REASON_BYTES = 1536, SHARED_BUFFERS = 3, SHARED_WINDOW_BYTES = 128 << 10 };

/* ---- job: zeroed memory is a healthy job without a time-out ---- */
struct shared_job {
    atomic_int state; /* 0 = healthy, 1 = failure is being written, 2 = code, rank and reason are set */
    err_t code;
    int rank; /* world rank that failed; -1: none in particular, reason says it all */
    char reason[SHARED_REASON_BYTES];
    _Atomic int64_t timeout_ns;
};

/* Fails the job unless it has failed already. Any thread; never blocks. */
void shared_job_fail(struct shared_job *job, err_t code, int world_rank, const char *reason);
err_t shared_job_check(struct shared_job *job,
                       struct error *e) MUST_CHECK; /* the job's failure, ERR_NONE while healthy */
void shared_job_set_timeout(struct shared_job *job, double seconds);

/* ---- region ---- */
struct shared_slot { /* one per rank, written by that rank */
    _Alignas(64) atomic_uint phase;
    atomic_uint waiters;                               /* sleepers on phase, counted by themselves */
    atomic_uint has_left;                              /* destroyed its communicator */
    atomic_uint is_inside;                             /* direct only: may be reading other ranks' buffers */
    _Atomic(const void *) buffer;                      /* direct only */
    _Alignas(64) _Atomic uint64_t call[2][CALL_WORDS]; /* what it is calling, and the call before or after */
    struct affinity_mask cores;                        /* where it may run; set before its first phase */
};

struct shared_region {
    int size;
    size_t window_bytes;   /* of one of the SHARED_BUFFERS buffers of a rank; a multiple of 64 */
    size_t windows_at;     /* offset of the windows from the region's start */
    atomic_int references; /* for owners that count them */
    _Alignas(64) struct shared_slot slots[];
};

/* At least 64 bytes a rank are staged at a time: window_bytes is raised where it must be. */
size_t shared_region_bytes(int size, size_t window_bytes);
void shared_region_init(struct shared_region *r, int size, size_t window_bytes); /* r: zeroed, aligned to 64 bytes */

/* ---- group: one rank's handle on a region, in its own memory ---- */
struct shared_group {
    struct shared_job *job;       /* borrowed */
    struct shared_region *region; /* borrowed */
    const int *world_ranks;       /* borrowed; [size], for messages */
    const void **sources;         /* borrowed; [size], scratch */
    int rank, size;
    bool is_direct;  /* ranks are threads of one process */
    int spin_rounds; /* known after the first call: few while ranks may have to take turns on a core */
    /* Called after each nap of waiting, about twenty times a second: looks for ranks that died and fails the job if it
     * finds one. May be NULL. */
    void (*poll)(void *context);
    void *context;
    unsigned phase;   /* last one arrived at */
    unsigned chunk;   /* number of chunks staged so far */
    struct call call; /* the one under way, else the last one */
};

void shared_group_init(struct shared_group *g, struct shared_job *job, struct shared_region *region, int rank,
                       const int *world_ranks, const void **sources);
void shared_group_leave(struct shared_group *g); /* tells the others that no call will follow */

/* The operations of comm.h, for count > 0 or = 0, any size including 1. */
err_t shared_barrier(struct shared_group *g, const char *name, struct error *e) MUST_CHECK;
err_t shared_all_gather(struct shared_group *g, const char *name, const void *send, void *recv, size_t count,
                        enum dtype type, struct error *e) MUST_CHECK;
err_t shared_reduce_scatter(struct shared_group *g, const char *name, const void *send, void *recv, size_t count,
                            enum dtype type, enum comm_operator op, struct error *e) MUST_CHECK;
err_t shared_all_reduce(struct shared_group *g, const char *name, void *data, size_t count, enum dtype type,
                        enum comm_operator op, struct error *e) MUST_CHECK;
err_t shared_broadcast(struct shared_group *g, const char *name, void *data, size_t bytes, int root,
                       struct error *e) MUST_CHECK;

/* ---- between shared.c (waiting) and collectives.c (moving data) ---- */
/* Announces a call; buffer != NULL: others may read it until shared_leave_direct. */
err_t shared_begin(struct shared_group *g, const struct call *call, const void *buffer, struct error *e) MUST_CHECK;
err_t shared_meet(struct shared_group *g,
                  struct error *e) MUST_CHECK; /* first phase of a call: everybody is here, with the same call */
err_t shared_sync(struct shared_group *g, struct error *e) MUST_CHECK; /* any further phase */
/* After the last phase, or after a failure: returns when nobody reads this rank's buffer any more. */
void shared_leave_direct(struct shared_group *g, bool has_failed);

#endif
