/* SPDX-License-Identifier: MIT */
/* What a rank looks after while it waits: the launcher, failures on other hosts, dead neighbours; see job.h.
 */
#include "mpi/job.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

err_t mpi_check(int status, const char *what, struct error *e)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;

    if (status == MPI_SUCCESS) return ERR_NONE;
    MPI_Error_string(status, text, &n);
    return FAIL(e, ERR_COMM, "%s failed: %s", what, text);
}

void mpi_job_post_notice(struct mpi_job *job)
{
    int status = MPI_Irecv(&job->incoming, (int)sizeof job->incoming, MPI_BYTE, MPI_ANY_SOURCE, TAG_NOTICE,
                           MPI_COMM_WORLD, &job->incoming_request);

    if (status != MPI_SUCCESS) job->incoming_request = MPI_REQUEST_NULL; /* failures elsewhere then show as time-outs */
}

/* A notice is taken over as this host's own failure; the first one wins everywhere, so it need not be passed
 * on. */
static void look_for_notice(struct mpi_job *job)
{
    int has_come = 0;

    if (job->incoming_request == MPI_REQUEST_NULL) return;
    if (MPI_Test(&job->incoming_request, &has_come, MPI_STATUS_IGNORE) != MPI_SUCCESS || !has_come) return;
    job->incoming.reason[sizeof job->incoming.reason - 1] = '\0';
    shared_job_fail(&job->board->job, job->incoming.code, job->incoming.rank, job->incoming.reason);
}

void mpi_job_poll(void *context)
{
    struct mpi_job *job = context;

    host_board_find_dead(job->board, job->local_rank);
    if (getppid() != job->launcher)
        shared_job_fail(&job->board->job, ERR_PEER, -1,
                        "the launcher (mpirun or its daemon on this host) has ended; this job ends with it");
    look_for_notice(job);
}

/* One rank of each other host is told; the ranks of a host share the telling, so that one deaf receiver does
 * not matter. */
void mpi_job_send_notices(struct mpi_job *job)
{
    struct shared_job *failure = &job->board->job;

    if (job->n_hosts == 1 || job->has_sent_notices || atomic_load(&failure->state) != 2) return;
    job->has_sent_notices = true;
    job->outgoing = (struct mpi_notice){.code = failure->code, .rank = failure->rank};
    snprintf(job->outgoing.reason, sizeof job->outgoing.reason, "%s", failure->reason);
    for (int host = 0; host < job->n_hosts; host++) {
        int size = 0, chosen = 0, is_done = 0;

        for (int q = 0; q < job->world_size; q++) size += job->host_of[q] == host;
        for (int q = 0, nth = 0; q < job->world_size; q++)
            if (job->host_of[q] == host && nth++ == job->local_rank % size) chosen = q;
        job->outgoing_requests[host] = MPI_REQUEST_NULL;
        if (host == job->host_index) continue;
        /* a notice that cannot be sent shows there as a time-out */
        MPI_Isend(&job->outgoing, (int)sizeof job->outgoing, MPI_BYTE, chosen, TAG_NOTICE, MPI_COMM_WORLD,
                  &job->outgoing_requests[host]);
        MPI_Test(&job->outgoing_requests[host], &is_done, MPI_STATUS_IGNORE);
    }
}
