/* SPDX-License-Identifier: MIT */
/* Communicators of the MPI backend, for the plugin's start (plugin.c). */
#ifndef MPI_MPI_H
#define MPI_MPI_H

#include "mpi/job.h"

/* A communicator over messages, also among ranks of one host; not collective. */
err_t mpi_comm_between(struct mpi_job *job, const int *world_ranks, int n, int rank, int tag, struct comm **out,
                       struct error *e) MUST_CHECK;
err_t mpi_comm_split(struct comm *c, int colour, int key, struct comm **out, struct error *e) MUST_CHECK;
struct mpi_job *mpi_comm_job(struct comm *c);

#endif
