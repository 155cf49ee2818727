/* SPDX-License-Identifier: MIT */
/*
 * The parts of the MPI backend. MPI launches the ranks, lets them find each other and carries data between
 * hosts; inside a host ranks share memory and use the engine in comm/shared.h.
 *
 * A job is this process's view of all ranks. Its board is memory that all ranks of this host share: the
 * failure word and, per rank, a lock that the kernel gives up for a process that dies, which is how the
 * others notice within a nap. Only the thread that opened the job speaks MPI (MPI_THREAD_SERIALIZED), and
 * after the start only with nonblocking calls that mpi_wait completes. Messages go over MPI_COMM_WORLD; a tag
 * of its own keeps each group's apart.
 */
#ifndef MPI_JOB_H
#define MPI_JOB_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "comm/call.h"
#include "comm/comm.h"
#include "comm/shared.h"

/* ---- memory shared with other processes of this host (host.c) ---- */
struct mapping {
    void *address;
    size_t bytes;
    int fd; /* -1: closed */
};

/* What another process needs to map it; numbers, to be exchanged. */
struct mapping_name {
    int64_t pid, fd;
};

err_t mapping_create(struct mapping *m, size_t bytes, struct error *e) MUST_CHECK; /* zeroed */
struct mapping_name mapping_name_of(const struct mapping *m);
err_t mapping_open(struct mapping *m, struct mapping_name name, size_t bytes, struct error *e) MUST_CHECK;
void mapping_close_fd(struct mapping *m); /* once everybody has mapped it */
void mapping_release(struct mapping *m);

/* ---- board (host.c) ---- */
enum host_state { HOST_ABSENT, HOST_RUNNING, HOST_CLOSED };

struct host_rank {
    pthread_mutex_t alive; /* robust, held by the rank as long as it runs */
    atomic_int state;
    int pid, world_rank;
};

struct host_board {
    struct shared_job job;
    int size;
    struct host_rank ranks[];
};

size_t host_board_bytes(int size);
err_t host_board_init(struct host_board *b, int size, struct error *e) MUST_CHECK; /* by one rank */
err_t host_board_enter(struct host_board *b, int local_rank, int world_rank, struct error *e) MUST_CHECK;
void host_board_leave(struct host_board *b, int local_rank);
void host_board_find_dead(struct host_board *b, int local_rank); /* fails the job if a rank of this host has died */

/* ---- job (job.c) ---- */
enum { TAG_NOTICE = 1, TAG_FIRST_GROUP = 2 };

struct mpi_notice { /* sent to other hosts when the job fails */
    int32_t code, rank;
    char reason[SHARED_REASON_BYTES];
};

struct mpi_job {
    int world_rank, world_size;
    int local_rank, local_size, host_index, n_hosts;
    int *host_of; /* [world_size] */
    struct mapping board_mapping;
    struct host_board *board;
    int next_tag;
    pid_t launcher; /* parent process at the start */
    struct mpi_notice incoming, outgoing;
    MPI_Request incoming_request;   /* always posted while n_hosts > 1 */
    MPI_Request *outgoing_requests; /* [n_hosts] */
    bool has_sent_notices;
};

/* Looks for dead ranks of this host, failures told by other hosts, and a launcher that is gone. Context: the
 * job. */
void mpi_job_poll(void *context);
void mpi_job_post_notice(struct mpi_job *job);
/* Tells other hosts why the job failed, once; returns at once. */
void mpi_job_send_notices(struct mpi_job *job);
err_t mpi_check(int status, const char *what, struct error *e) MUST_CHECK; /* an MPI return value as an error */

/* ---- groups whose ranks are on several hosts (between.c) ---- */
struct between {
    struct mpi_job *job;
    int rank, size, tag;
    const int *world_ranks;        /* borrowed */
    MPI_Request *requests;         /* [2 * size]: receives by rank, then sends by rank */
    uint64_t (*calls)[CALL_WORDS]; /* [size]: what everybody calls */
    struct call call;
    const void **sources; /* [size] */
    char *scratch;        /* others' contributions */
    size_t scratch_bytes;
};

err_t between_init(struct between *b, struct mpi_job *job, int rank, int size, const int *world_ranks, int tag,
                   struct error *e) MUST_CHECK;
void between_release(struct between *b);

/* The operations of comm.h. */
err_t between_barrier(struct between *b, const char *name, struct error *e) MUST_CHECK;
err_t between_all_gather(struct between *b, const char *name, const void *send, void *recv, size_t count,
                         enum dtype type, struct error *e) MUST_CHECK;
err_t between_reduce_scatter(struct between *b, const char *name, const void *send, void *recv, size_t count,
                             enum dtype type, enum comm_operator op, struct error *e) MUST_CHECK;
err_t between_all_reduce(struct between *b, const char *name, void *data, size_t count, enum dtype type,
                         enum comm_operator op, struct error *e) MUST_CHECK;
err_t between_broadcast(struct between *b, const char *name, void *data, size_t bytes, int root,
                        struct error *e) MUST_CHECK;

#endif
