/* SPDX-License-Identifier: MIT */
/* Launchers' variables and the search for the MPI plugin; see launch.h. */
#include "comm/launch.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/plugin.h"
#include "base/str.h"
#include "comm/self.h"

/* -1: unset or not a number that a rank or size could be. */
static int number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long value;

    if (!text || !*text) return -1;
    errno = 0;
    value = strtol(text, &end, 10);
    return errno || *end || value < 0 || value > INT_MAX ? -1 : (int)value;
}

static int first_of(int a, int b) { return a >= 0 ? a : b; }

void comm_launch_detect(struct comm_launch *out)
{
    /* only steps that srun started have it; a batch script has SLURM_PROCID too, and is no rank */
    int step_size = number("SLURM_STEP_NUM_TASKS");

    *out = (struct comm_launch){.rank = 0, .size = 1, .local_rank = 0, .local_size = 1};
    if (number("OMPI_COMM_WORLD_RANK") >= 0 && number("OMPI_COMM_WORLD_SIZE") >= 1) {
        out->launcher = "mpirun";
        out->rank = number("OMPI_COMM_WORLD_RANK");
        out->size = number("OMPI_COMM_WORLD_SIZE");
        out->local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK");
        out->local_size = number("OMPI_COMM_WORLD_LOCAL_SIZE");
    } else if (number("PMIX_RANK") >= 0) {
        out->launcher = step_size >= 0 ? "srun --mpi=pmix" : "a PMIx launcher";
        out->rank = number("PMIX_RANK");
        out->size = step_size;
        out->local_rank = number("SLURM_LOCALID");
        out->local_size = -1;
    } else if (number("PMI_RANK") >= 0) {
        out->launcher = step_size >= 0 ? "srun --mpi=pmi2" : "a PMI launcher";
        out->rank = number("PMI_RANK");
        out->size = first_of(number("PMI_SIZE"), step_size);
        out->local_rank = first_of(number("MPI_LOCALRANKID"), number("SLURM_LOCALID"));
        out->local_size = number("MPI_LOCALNRANKS");
    } else if (step_size > 1 && number("SLURM_PROCID") >= 0) {
        out->launcher = "srun";
        out->rank = number("SLURM_PROCID");
        out->size = step_size;
        out->local_rank = number("SLURM_LOCALID");
        out->local_size = -1;
        out->lacks_mpi = true;
    }
}

/* ---- the plugin's file ---- */
static err_t find_plugin(const struct comm_launch *launch, struct str *path, struct error *e)
{
    struct str tried = {0};
    err_t rc = ERR_NONE;

    if (!plugin_find(COMM_MPI_PLUGIN_FILE, path, &tried))
        rc = FAIL(e, ERR_MISSING,
                  "this is rank %d of a job started by %s, but " COMM_MPI_PLUGIN_FILE
                  " is in none of %s; install Open MPI "
                  "(apt-get install libopenmpi-dev openmpi-bin) and run make, or set CTITAN_PLUGIN_PATH to "
                  "its folder",
                  launch->rank, launch->launcher, str_text(&tried));
    str_release(&tried);
    return rc ? rc : str_ok(path, e);
}

static err_t load_plugin(struct comm_world *w, const struct comm_launch *launch, struct error *e)
{
    struct str path = {0};
    err_t rc = find_plugin(launch, &path, e);

    if (rc) goto out;
    /* global: Open MPI's own plugins look for its symbols */
    w->library = dlopen(str_text(&path), RTLD_NOW | RTLD_GLOBAL);
    if (!w->library) {
        rc =
            FAIL(e, ERR_MISSING, "cannot load %s: %s; install Open MPI (apt-get install libopenmpi3) or run make again",
                 str_text(&path), dlerror());
        goto out;
    }
    w->plugin = dlsym(w->library, COMM_MPI_PLUGIN_SYMBOL);
    if (!w->plugin)
        rc = FAIL(e, ERR_MISSING, "%s is no plugin of ctitan: it lacks " COMM_MPI_PLUGIN_SYMBOL, str_text(&path));
    else if (strcmp(w->plugin->version, CTITAN_VERSION) != 0)
        rc = FAIL(e, ERR_UNSUPPORTED, "%s was built for ctitan %s, this is ctitan %s; run make (or make install) again",
                  str_text(&path), w->plugin->version, CTITAN_VERSION);
out:
    str_release(&path);
    return rc;
}

err_t comm_world_open(struct comm_world *w, const struct comm_options *options, struct error *e)
{
    struct comm_options defaults = {0};
    struct comm_launch launch;
    err_t rc;

    *w = (struct comm_world){0};
    comm_launch_detect(&launch);
    if (!launch.launcher || launch.size == 1) return comm_self_create(&w->comm, e);
    if (launch.lacks_mpi)
        return FAIL(e, ERR_USAGE, "srun started %d ranks without MPI; start them with srun --mpi=pmix", launch.size);
    rc = load_plugin(w, &launch, e);
    if (!rc) rc = w->plugin->open(options ? options : &defaults, &launch, &w->comm, e);
    if (rc) w->plugin = NULL;
    return rc; /* the library stays loaded: MPI leaves threads and handlers behind */
}

err_t comm_world_close(struct comm_world *w, bool has_failed, struct error *e)
{
    err_t rc = ERR_NONE;

    if (!w->comm) return ERR_NONE;
    if (w->plugin)
        rc = w->plugin->close(w->comm, has_failed, e);
    else
        comm_destroy(w->comm);
    w->comm = NULL;
    return rc;
}
