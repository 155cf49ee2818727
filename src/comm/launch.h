/* SPDX-License-Identifier: MIT */
/*
 * How this process was started and the world of ranks it belongs to.
 *
 * Environment variables of launchers serve only before the world is open (whether there is one, and the name
 * of the first log file); afterwards rank, size and hosts come from MPI itself. A process started by a
 * launcher with other ranks never falls back to running alone: without the MPI plugin it fails and says what
 * to install.
 */
#ifndef COMM_LAUNCH_H
#define COMM_LAUNCH_H

#include <stdbool.h>

#include "comm/comm.h"

struct comm_launch {
    const char *launcher;       /* "mpirun", "srun --mpi=pmix", ...; NULL: started alone */
    int rank, size;             /* size -1: the launcher did not say; 0 of 1 when alone */
    int local_rank, local_size; /* on this host; -1: not said */
    bool lacks_mpi;             /* srun started several ranks without a way for MPI to meet */
};

/* In the order Open MPI, PMIx, PMI, Slurm: inside a batch job Slurm's own variables describe the launcher's
 * daemons. */
void comm_launch_detect(struct comm_launch *out);

struct comm_world {
    struct comm *comm;                /* all ranks */
    const struct comm_plugin *plugin; /* NULL: alone */
    void *library;
};

/* Opens the world through the MPI plugin when a launcher started this process, else alone. options NULL: the
 * defaults. */
err_t comm_world_open(struct comm_world *w, const struct comm_options *options, struct error *e) MUST_CHECK;

/*
 * Ends the world; collective when all is well: every rank meets here, whatever must be flushed is flushed
 * before. An error means that another rank failed meanwhile. With has_failed the job is told that this rank
 * failed and is not waited for: print the rank's message first; the process then has to exit, upon which the
 * launcher ends the others.
 */
err_t comm_world_close(struct comm_world *w, bool has_failed, struct error *e) MUST_CHECK;

/* ---- the plugin's side ---- */
struct comm_plugin {
    const char *version; /* CTITAN_VERSION it was built with */
    err_t (*open)(const struct comm_options *options, const struct comm_launch *launch, struct comm **world,
                  struct error *e);
    err_t (*close)(struct comm *world, bool has_failed, struct error *e);
};
#define COMM_MPI_PLUGIN_FILE "libctitan_mpi.so"
#define COMM_MPI_PLUGIN_SYMBOL "ctitan_mpi_plugin"

#endif
