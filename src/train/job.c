/* SPDX-License-Identifier: MIT */
/* Running the ranks of this process; see job.h. */
#include "train/job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "comm/fake.h"
#include "comm/launch.h"
#include "comm/local.h"
#include "comm/self.h"
#include "sinks/kinds.h"
#include "train/trainer.h"

/* One rank of this process. */
struct rank {
    const struct job *job;
    const struct config *cfg;
    struct comm *world;
    const struct signals *signals;
    const char *stamp;
    bool is_dry;
    bool is_alone; /* in its process: stdout and stderr are its own, and the caller closes the world */
    err_t rc;
    bool has_failed; /* by itself: the other ranks end because of it */
    struct log log;
    bool has_left_sinks; /* they may come back and use the log */
};

bool job_is_first(void)
{
    struct comm_launch launch;

    comm_launch_detect(&launch);
    return launch.rank <= 0;
}

static int environment_number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    char *end;
    long value = text ? strtol(text, &end, 10) : -1;

    return text && end != text && !*end && value >= 0 && value < 1000000 ? (int)value : otherwise;
}

/* "<dump_folder>/logs/<start>/rank_N.log"; a rank that is not shown sends stray output of libraries there too. */
static err_t open_log(struct log *log, struct rank *r, bool is_shown, struct error *e)
{
    struct arena a = {0};
    char *folder = arena_printf(&a, "%s/logs/%s", r->cfg->job.dump_folder, r->stamp);
    char *path = arena_printf(&a, "%s/rank_%d.log", folder ? folder : "", r->world->rank);
    err_t rc = folder && path ? io_make_folders(folder, e) : FAIL(e, ERR_MEMORY, "out of memory for the log");

    if (!rc) rc = log_open_file(log, path, e);
    if (!rc && !is_shown && r->is_alone) {
        dup2(log->file_fd, STDOUT_FILENO);
        dup2(log->file_fd, STDERR_FILENO);
    }
    arena_release(&a);
    return rc;
}

/* Ended by all ranks together, by themselves or on request. */
static bool is_orderly(err_t rc) { return rc == ERR_NONE || rc == ERR_STOPPED || rc == ERR_INTERRUPTED; }

/* A failure that began in this rank is told on the terminal whether it is shown or not; one that came from elsewhere
 * only in the log. */
static void tell(struct log *log, const struct rank *r, err_t rc, const struct error *e, int terminal_fd)
{
    struct log own; /* the rank's log itself stays as it is: its sinks still write lines from threads of theirs */

    if (is_orderly(rc)) {
        log_info(log, "%s", e->message);
        return;
    }
    log_status(log, "");
    log_init(&own,
             rc == ERR_PEER         ? -1
             : log->terminal_fd < 0 ? terminal_fd
                                    : log->terminal_fd,
             r->world->size == 1 ? -1 : log->rank);
    own.file_fd = log->file_fd;
    log_error(&own, "%s", e->message);
    own.file_fd = -1; /* the rank's log closes it */
    log_release(&own);
}

/* The last line of a run that ended well, below the rows of its last step. */
static void tell_end(const struct trainer *t, err_t rc, const struct error *e)
{
    if (rc)
        log_info(t->spec.log, "%s", e->message);
    else if (!t->cfg->checkpoint.create_seed_checkpoint)
        log_info(t->spec.log, "done: step %lld of %lld", (long long)t->step, (long long)t->cfg->training.steps);
}

static void record(struct trainer *t, err_t rc, const struct error *e)
{
    enum run_status status = rc == ERR_NONE ? RUN_FINISHED : is_orderly(rc) ? RUN_STOPPED : RUN_FAILED;
    struct error own = {0};

    if (t->spec.is_dry || !t->run.info.id[0]) return;
    if (run_record(&t->run, status, t->step, rc ? e->message : "", &own)) log_warning(t->spec.log, "%s", own.message);
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    const char *log_rank = getenv("LOG_RANK");
    bool is_shown = metrics_rank_is_shown(log_rank, r->world->rank),
         is_terminal = environment_number("CTITAN_TERMINAL", isatty(STDOUT_FILENO));
    int terminal_fd = r->is_alone ? dup(STDERR_FILENO) : STDERR_FILENO;
    struct trainer_spec spec = {.cfg = r->cfg,
                                .world = r->world,
                                .signals = r->signals,
                                .log_rank = log_rank,
                                .n_arguments = r->job->n_arguments,
                                .arguments = r->job->arguments,
                                .is_dry = r->is_dry,
                                .started_ns = r->job->started_ns};
    struct trainer *t = mem_zalloc(1, sizeof *t);
    struct log *log = &r->log;
    bool is_open;
    struct error e = {0};
    err_t rc = t ? ERR_NONE : FAIL(&e, ERR_MEMORY, "out of memory");

    log_init(log, is_shown ? STDOUT_FILENO : -1, r->world->rank);
    log->use_colour = is_shown && is_terminal && console_wants_colour(STDOUT_FILENO, getenv("NO_COLOR"), false);
    log->can_redraw = is_shown && is_terminal;
    spec.is_terminal = is_terminal;
    spec.log = log;
    if (!rc && !r->is_dry) rc = open_log(log, r, is_shown, &e);
    if (!rc) rc = trainer_open(t, &spec, &e);
    is_open = !rc;
    if (!rc) rc = train_run(t, &e);
    r->has_failed = !is_orderly(rc) || !is_open;
    if (r->has_failed) {
        tell(log, r, rc, &e, terminal_fd);
        comm_abort(r->world, e.message);
    }
    if (t) {
        struct error late = {0};

        r->has_left_sinks = !trainer_close_sinks(t); /* every rank has delivered before any rank leaves */
        if (!r->has_failed) tell_end(t, rc, &e);
        if (r->world->rank == 0) record(t, rc, &e);
        if (!r->has_failed && comm_barrier(r->world, "leave together", &late))
            tell(log, r, ERR_PEER, &late, terminal_fd);
        trainer_close(t);
    }
    mem_free(t);
    if (!r->is_alone) comm_destroy(r->world);
    if (!r->has_left_sinks) log_release(log);
    if (r->is_alone) close(terminal_fd);
    r->rc = rc;
    return NULL;
}

static err_t resolve(struct config *cfg, int world_size, struct error *e)
{
    struct config_problems problems = {0};
    err_t rc;

    config_resolve(cfg, world_size, &problems);
    rc = config_problems_check(&problems, e);
    config_problems_release(&problems);
    return rc;
}

/* The worst of the ranks' codes: a rank's own failure before those it caused in others. */
static err_t worst(const struct rank *ranks, int n)
{
    err_t rc = ERR_NONE;

    for (int i = 0; i < n; i++)
        if (ranks[i].rc && (rc == ERR_PEER || is_orderly(rc))) rc = ranks[i].rc;
    return rc;
}

static err_t run_threads(struct rank *ranks, int n, struct error *e)
{
    pthread_t *threads = mem_zalloc((size_t)n, sizeof *threads);
    int started = 0;
    err_t rc = threads ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory for %d ranks", n);

    for (; started < n && !rc; started++) {
        int status = pthread_create(&threads[started], NULL, rank_main, &ranks[started]);

        if (status) {
            rc = FAIL(e, ERR_MEMORY, "cannot start rank %d as a thread: %s", started, strerror(status));
            break;
        }
    }
    for (int i = started; i < n; i++) { /* those that started wait for these */
        comm_abort(ranks[i].world, e->message);
        comm_destroy(ranks[i].world);
    }
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    mem_free(threads);
    return rc ? rc : worst(ranks, n);
}

/* The job's ranks are threads of this process. */
static err_t run_local(struct job *j, struct rank *ranks, int n, const struct comm_options *options, struct error *e)
{
    struct comm **worlds = mem_zalloc((size_t)n, sizeof *worlds);
    err_t rc = worlds ? comm_local_create(n, options, worlds, e) : FAIL(e, ERR_MEMORY, "out of memory for %d ranks", n);

    if (!rc) {
        rc = resolve(j->cfg, n, e);
        for (int i = 0; i < n; i++) {
            ranks[i].world = worlds[i];
            if (rc) comm_destroy(worlds[i]);
        }
    }
    mem_free(worlds);
    return rc ? rc : run_threads(ranks, n, e);
}

/* One rank runs here: of an MPI job, alone, or of a job that does not exist. */
static err_t run_one(struct job *j, struct rank *rank, const struct comm_options *options, struct error *e)
{
    struct comm_world world = {0};
    struct error late = {0};
    err_t rc;

    if (rank->is_dry)
        rc = comm_fake_create(environment_number("NGPU", 1), environment_number("RANK", 0), &world.comm, e);
    else
        rc = comm_world_open(&world, options, e);
    if (rc) return rc;
    rank->world = world.comm;
    rc = resolve(j->cfg, world.comm->size, e);
    if (rc && world.comm->rank > 0) e->message[0] = '\0'; /* every rank has found the same: rank 0 says it */
    if (!rc) {
        rank_main(rank);
        rc = rank->rc;
    }
    if (rank->is_dry)
        comm_destroy(world.comm);
    else if (comm_world_close(&world, rank->has_failed || !is_orderly(rc), &late) && !rc)
        rc = FAIL(e, late.code, "%s", late.message);
    return rc;
}

err_t job_run(struct job *j, struct error *e)
{
    bool is_local = j->cfg->comm.mode == CONFIG_COMM_LOCAL;
    int n = is_local ? environment_number("NGPU", 2) : 1;
    struct comm_options options = {.init_timeout_s = (double)j->cfg->comm.init_timeout_seconds};
    struct rank *ranks = mem_zalloc((size_t)(n ? n : 1), sizeof *ranks);
    const char *given = getenv("CTITAN_START_STAMP");
    struct signals signals = {0};
    bool has_left_sinks = false;
    char stamp[64];
    time_t now = time(NULL);
    struct tm tm;
    err_t rc = ranks ? signals_install(&signals, e) : FAIL(e, ERR_MEMORY, "out of memory for %d ranks", n);

    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
    for (int i = 0; i < n && !rc; i++)
        ranks[i] = (struct rank){.job = j,
                                 .cfg = j->cfg,
                                 .signals = &signals,
                                 .stamp = given && given[0] ? given : stamp,
                                 .is_dry = j->cfg->comm.mode == CONFIG_COMM_FAKE,
                                 .is_alone = !is_local};
    if (!rc) rc = is_local ? run_local(j, ranks, n, &options, e) : run_one(j, ranks, &options, e);
    signals_restore(&signals);
    for (int i = 0; i < n && ranks; i++) has_left_sinks |= ranks[i].has_left_sinks;
    if (!has_left_sinks) mem_free(ranks);
    return rc;
}
