/* SPDX-License-Identifier: MIT */
/*
 * A communicator: a fixed group of ranks and the collective operations among them, behind one table.
 *
 * Backends: self (one rank), local (ranks are threads of one process), fake (any size, nothing moves: dry
 * runs), the MPI plugin (shared memory inside a host, MPI between hosts), and NCCL on the memory of GPUs.
 * Decorators implement the same table over another communicator: comm_record, comm_fault.
 *
 * Rules for callers: every rank of the group makes the same calls in the same order, with the same counts,
 * types and operators, from one thread at a time. Buffers may not overlap unless said so. A call returns when
 * its result may be used on `stream` (on the CPU: now).
 *
 * Results: sums are taken over the ranks in rank order, ((r0 + r1) + r2) + ..., element by element, in the
 * element type; so threads and MPI processes, one host and many, give the same bits. (NCCL has its own order.)
 *
 * NaN: a minimum or maximum over values with a NaN among them is NaN.
 *
 * Failures: when a rank stays away longer than the time-out, the others get ERR_TIMEOUT whose message names
 * the operation and the ranks that did not arrive; when a rank called comm_abort, they get ERR_PEER that
 * names it, and when it died without a word, ERR_COMM that does; when ranks make different calls (operation,
 * count, type, operator, root or name), they get ERR_COMM that names both. A communicator that failed once
 * fails for ever, and so do all communicators of the same job.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/str.h"

struct comm;
struct stream;
struct trace;

enum comm_operator { COMM_SUM, COMM_MIN, COMM_MAX };
const char *comm_operator_name(enum comm_operator op);

struct comm_options {
    double init_timeout_s; /* for the launch and until comm_set_timeout; <= 0: COMM_INIT_TIMEOUT_S */
};
enum { COMM_INIT_TIMEOUT_S = 300 };

/* All counts are in elements of `type`. `name` in the wrappers below says what the call is for, in reports
 * ("gather layers.3"). */
struct comm_ops {
    const char *name; /* "self", "local", "fake", "mpi", "nccl" */
    void (*destroy)(struct comm *c);
    /* Ranks with the same colour form a group, ordered by (key, rank). Every rank of c calls it. */
    err_t (*split)(struct comm *c, int colour, int key, struct comm **out, struct error *e);
    err_t (*barrier)(struct comm *c, const char *name, struct error *e);
    /* recv = [size][count]: every rank's send, in rank order. send may be recv + rank * count. */
    err_t (*all_gather)(struct comm *c, const char *name, const void *send, void *recv, size_t count, enum dtype type,
                        struct stream *stream, struct error *e);
    /* send = [size][count]; recv = [count]: the reduction of every rank's send[rank]. */
    err_t (*reduce_scatter)(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                            enum dtype type, enum comm_operator op, struct stream *stream, struct error *e);
    /* In place. Types of reductions: float32, float64, int64. */
    err_t (*all_reduce)(struct comm *c, const char *name, void *data, size_t count, enum dtype type,
                        enum comm_operator op, struct stream *stream, struct error *e);
    err_t (*broadcast)(struct comm *c, const char *name, void *data, size_t bytes, int root, struct stream *stream,
                       struct error *e);
    /* Tells the whole job that this rank has failed and why; never blocks, any thread may call it. */
    void (*abort)(struct comm *c, const char *reason);
    /* How long this rank waits for others from now on, on every communicator of the job. */
    void (*set_timeout)(struct comm *c, double seconds);
    /* Optional, for backends that cannot learn what other ranks pass to split: see comm_split_ranks. */
    err_t (*split_ranks)(struct comm *c, const int *ranks, int n, struct comm **out, struct error *e);
    /* Optional: see comm_check. */
    err_t (*check)(struct comm *c, struct str *pending, struct error *e);
};

struct comm {
    const struct comm_ops *ops;
    int rank, size;
    int world_rank;                                  /* this rank in the job, for messages */
    int local_rank, local_size, host_index, n_hosts; /* of the job: which ranks share this host */
    struct trace *trace; /* borrowed, may be NULL: where waiting is accounted; inherited by split */
};

/* Wrappers: check arguments, measure the exposed time into base/trace, call the table. Size 1 is no special
 * case for callers. */
err_t comm_split(struct comm *c, int colour, int key, struct comm **out, struct error *e) MUST_CHECK;
/* The same for callers that know their group: ranks[n] are the ranks of c in it, in its order, this rank
 * among them. Every rank of c calls it, each with its own group. The only split whose result is right on the
 * fake backend, which knows no other ranks. */
err_t comm_split_ranks(struct comm *c, const int *ranks, int n, struct comm **out, struct error *e) MUST_CHECK;
void comm_destroy(struct comm *c); /* NULL is fine; collective for backends that need it */
err_t comm_barrier(struct comm *c, const char *name, struct error *e) MUST_CHECK;
err_t comm_all_gather(struct comm *c, const char *name, const void *send, void *recv, size_t count, enum dtype type,
                      struct stream *stream, struct error *e) MUST_CHECK;
err_t comm_reduce_scatter(struct comm *c, const char *name, const void *send, void *recv, size_t count, enum dtype type,
                          enum comm_operator op, struct stream *stream, struct error *e) MUST_CHECK;
err_t comm_all_reduce(struct comm *c, const char *name, void *data, size_t count, enum dtype type,
                      enum comm_operator op, struct stream *stream, struct error *e) MUST_CHECK;
err_t comm_broadcast(struct comm *c, const char *name, void *data, size_t bytes, int root, struct stream *stream,
                     struct error *e) MUST_CHECK;
/* Has the job failed, or work that was put on a stream? Never blocks. pending (may be NULL): the first collective that
 * has not finished is appended, if there is one. */
err_t comm_check(struct comm *c, struct str *pending, struct error *e) MUST_CHECK;
void comm_abort(struct comm *c, const char *reason);
void comm_set_timeout(struct comm *c, double seconds);

#endif
