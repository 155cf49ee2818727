/* SPDX-License-Identifier: MIT */
/*
 * Start and end of a job under MPI; see comm/launch.h.
 *
 * Start: MPI says who is here and who shares a host; the ranks of a host map their board; the world is then
 * split off a communicator over messages, the same way as every later group. End: all well, everybody meets
 * and finalises MPI. Otherwise a rank leaves without finalising, which makes the launcher end the job; ranks
 * that only heard of the failure wait a little first, so that the failing rank's message comes before theirs.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/launch.h"
#include "mpi/mpi.h"

enum { FOLLOWER_GRACE_MS = 500 };

/*
 * Settings of Open MPI and hwloc that make the start cheap and silent, where the user has not chosen his own.
 * On one host only shared memory is needed; among hosts Open MPI picks the network. Graphics and PCI devices
 * need not be looked for.
 */
static void set_defaults(bool is_one_host)
{
    if (is_one_host) {
        setenv("OMPI_MCA_pml", "ob1", 0);
        setenv("OMPI_MCA_btl", "self,vader", 0);
    }
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0); /* often denied in containers, with a warning */
    setenv("OMPI_MCA_btl_base_warn_component_unused", "0", 0);
    setenv("OMPI_MCA_mpi_warn_on_fork", "0", 0);
    setenv("OMPI_MCA_coll", "basic,libnbc,self", 0); /* of MPI's collectives only the start uses any */
    setenv("OMPI_MCA_osc", "sm", 0);
    setenv("OMPI_MCA_io", "^ompio,romio321", 0);
    setenv("OMPI_MCA_op", "^avx", 0);
    setenv("OMPI_MCA_mpool", "^hugepage", 0);
    setenv("HWLOC_PLUGINS_PATH", "/nonexistent", 0);
    setenv("HWLOC_COMPONENTS", "-pci,-linuxio", 0);
}

/* ---- start ---- */
static err_t start_mpi(const struct comm_launch *launch, struct mpi_job *job, struct error *e)
{
    int provided = 0;
    err_t rc;

    set_defaults(launch->size > 0 && launch->local_size == launch->size);
    if ((rc = mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread", e)))
        return rc;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &job->world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job->world_size);
    if (provided < MPI_THREAD_SERIALIZED)
        return FAIL(e, ERR_COMM, "this MPI library lacks MPI_THREAD_SERIALIZED, which ctitan needs");
    if (launch->size > 0 && job->world_size != launch->size)
        return FAIL(e, ERR_COMM,
                    "%s started %d ranks, but MPI sees %d; is it the launcher of another MPI library than the one "
                    "ctitan was built with?",
                    launch->launcher, launch->size, job->world_size);
    return ERR_NONE;
}

static bool parse_hosts(const char *text, int most, int *hosts)
{
    char *end;
    long value = strtol(text, &end, 10);

    *hosts = (int)value;
    return end != text && !*end && value >= 1 && value <= most;
}

/* The lowest world rank of this host, as MPI sees hosts; CTITAN_MPI_HOSTS=n cuts each host's ranks into n
 * hosts (tests, containers). */
static err_t find_host(const struct mpi_job *job, int *leader, int *host_size, struct error *e)
{
    const char *hook = getenv("CTITAN_MPI_HOSTS");
    int hosts = 1, size = 0, rank = 0, block, first;
    MPI_Group world, local;
    MPI_Comm host;
    err_t rc;

    rc = mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, job->world_rank, MPI_INFO_NULL, &host),
                   "MPI_Comm_split_type", e);
    if (rc) return rc;
    MPI_Comm_size(host, &size);
    MPI_Comm_rank(host, &rank);
    if (hook && *hook && !parse_hosts(hook, size, &hosts)) {
        MPI_Comm_free(&host);
        return FAIL(e, ERR_USAGE, "CTITAN_MPI_HOSTS=%s: want a number of hosts from 1 to the %d ranks of this host",
                    hook, size);
    }
    block = rank * hosts / size; /* a block holds the ranks for which this is the same; it begins at: */
    first = (block * size + hosts - 1) / hosts;
    *host_size = ((block + 1) * size + hosts - 1) / hosts - first;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(host, &local);
    MPI_Group_translate_ranks(local, 1, &first, world, leader);
    MPI_Group_free(&local);
    MPI_Group_free(&world);
    MPI_Comm_free(&host);
    return ERR_NONE;
}

static err_t number_hosts(struct mpi_job *job, const int64_t *leaders, int leader, struct error *e)
{
    job->host_of = mem_zalloc((size_t)job->world_size, sizeof *job->host_of);
    if (!job->host_of) return FAIL(e, ERR_MEMORY, "out of memory for a job of %d ranks", job->world_size);
    for (int q = 0; q < job->world_size; q++) {
        if (leaders[q] == q)
            job->host_of[q] = job->n_hosts++;
        else
            job->host_of[q] = job->host_of[leaders[q]]; /* a leader comes before its ranks */
        if (leaders[q] != leader) continue;
        if (q < job->world_rank) job->local_rank++;
        job->local_size++;
    }
    job->host_index = job->host_of[job->world_rank];
    job->outgoing_requests = mem_zalloc((size_t)job->n_hosts, sizeof *job->outgoing_requests);
    return job->outgoing_requests ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory for a job of %d hosts", job->n_hosts);
}

/* The one collective of MPI itself that is used, to learn three numbers of every rank. */
static err_t exchange(const struct comm_options *options, const int64_t own[3], int64_t *all, struct error *e)
{
    double limit_s = options->init_timeout_s > 0 ? options->init_timeout_s : COMM_INIT_TIMEOUT_S;
    int64_t start_ns = clock_ns();
    MPI_Request request;
    int is_done = 0;
    err_t rc = mpi_check(MPI_Iallgather(own, 3, MPI_INT64_T, all, 3, MPI_INT64_T, MPI_COMM_WORLD, &request),
                         "MPI_Iallgather", e);

    while (!rc && !is_done) {
        rc = mpi_check(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), "MPI_Test", e);
        if (!rc && !is_done) clock_sleep_ns(20 * 1000);
        if (!rc && !is_done && (double)(clock_ns() - start_ns) * 1e-9 > limit_s)
            rc = FAIL(e, ERR_TIMEOUT, "not all ranks said hello within %.3g s of the start", limit_s);
    }
    return rc;
}

static err_t open_board(struct mpi_job *job, const struct comm_options *options, struct error *e)
{
    size_t n = (size_t)job->world_size;
    int64_t own[3] = {0}, *all = mem_zalloc(n, sizeof own), *leaders = mem_zalloc(n, sizeof *leaders);
    struct mapping_name name = {0};
    int leader = 0, host_size = 0;
    err_t rc = all && leaders ? find_host(job, &leader, &host_size, e)
                              : FAIL(e, ERR_MEMORY, "out of memory for a job of %zu ranks", n);
    bool leads = leader == job->world_rank;

    if (!rc && leads) rc = mapping_create(&job->board_mapping, host_board_bytes(host_size), e);
    if (!rc && leads) rc = host_board_init(job->board_mapping.address, host_size, e);
    if (rc) goto out;
    if (leads) name = mapping_name_of(&job->board_mapping);
    own[0] = leader, own[1] = name.pid, own[2] = name.fd;
    if ((rc = exchange(options, own, all, e))) goto out;
    for (size_t q = 0; q < n; q++) leaders[q] = all[3 * q];
    if ((rc = number_hosts(job, leaders, leader, e))) goto out;
    name = (struct mapping_name){.pid = all[3 * leader + 1], .fd = all[3 * leader + 2]};
    if (!leads && (rc = mapping_open(&job->board_mapping, name, host_board_bytes(job->local_size), e))) goto out;
    job->board = job->board_mapping.address;
    shared_job_set_timeout(&job->board->job,
                           options->init_timeout_s > 0 ? options->init_timeout_s : COMM_INIT_TIMEOUT_S);
    rc = host_board_enter(job->board, job->local_rank, job->world_rank, e);
out:
    mem_free(all);
    mem_free(leaders);
    return rc;
}

static void job_destroy(struct mpi_job *job)
{
    mapping_release(&job->board_mapping);
    mem_free(job->host_of);
    mem_free(job->outgoing_requests);
    mem_free(job);
}

/* First a communicator over messages, then the world split off it. */
static err_t open_world(struct mpi_job *job, struct comm **world, struct error *e)
{
    int *ranks = mem_zalloc((size_t)job->world_size, sizeof *ranks);
    struct comm *messages = NULL;
    err_t rc;

    if (!ranks) return FAIL(e, ERR_MEMORY, "out of memory for a job of %d ranks", job->world_size);
    for (int q = 0; q < job->world_size; q++) ranks[q] = q;
    job->next_tag = TAG_FIRST_GROUP;
    rc = mpi_comm_between(job, ranks, job->world_size, job->world_rank, job->next_tag++, &messages, e);
    mem_free(ranks);
    if (!rc) rc = mpi_comm_split(messages, 0, 0, world, e);
    comm_destroy(messages);
    mapping_close_fd(&job->board_mapping); /* all ranks have met: everybody has the board */
    return rc;
}

static err_t plugin_open(const struct comm_options *options, const struct comm_launch *launch, struct comm **world,
                         struct error *e)
{
    struct mpi_job *job = mem_zalloc(1, sizeof *job);
    err_t rc;

    *world = NULL;
    if (!job) return FAIL(e, ERR_MEMORY, "out of memory for a job");
    job->incoming_request = MPI_REQUEST_NULL;
    job->launcher = getppid();
    /* whatever this rank is doing when its launcher is killed: a rank without a launcher has nobody to report
     * to */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((rc = start_mpi(launch, job, e))) goto out;
    if ((rc = open_board(job, options, e))) goto out;
    if (job->n_hosts > 1) mpi_job_post_notice(job);
    rc = open_world(job, world, e);
out:
    /* MPI stays as it is: the process will exit, and the launcher end the others. So does memory that the kernel, MPI
     * and other ranks know of: this rank's lock on the board, and where notices arrive */
    if (rc && !job->board) job_destroy(job);
    return rc;
}

/* ---- end ---- */
static void finalise(struct mpi_job *job)
{
    if (job->incoming_request != MPI_REQUEST_NULL) {
        MPI_Cancel(&job->incoming_request);
        MPI_Wait(&job->incoming_request, MPI_STATUS_IGNORE);
    }
    prctl(PR_SET_PDEATHSIG, 0);
    MPI_Finalize();
}

static err_t plugin_close(struct comm *world, bool has_failed, struct error *e)
{
    struct mpi_job *job = mpi_comm_job(world);
    err_t rc = has_failed ? ERR_NONE : comm_barrier(world, "end of the job", e);

    if (!rc && !has_failed) {
        comm_destroy(world);
        host_board_leave(job->board, job->local_rank);
        finalise(job);
        job_destroy(job);
        return ERR_NONE;
    }
    comm_abort(world, "it ended with an error"); /* nothing new when the job has failed already */
    mpi_job_send_notices(job);
    if (job->board->job.rank != job->world_rank) clock_sleep_ns(FOLLOWER_GRACE_MS * 1000 * 1000);
    return rc; /* memory stays mapped for the ranks that still read it; the process exits now */
}

extern const struct comm_plugin ctitan_mpi_plugin;
const struct comm_plugin ctitan_mpi_plugin = {.version = CTITAN_VERSION, .open = plugin_open, .close = plugin_close};
