/* SPDX-License-Identifier: MIT */
/* The communicators of the MPI backend: the table of comm.h over shared memory or messages, and splitting;
 * see job.h. */
#include "mpi/mpi.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "comm/split.h"

struct mpi_comm {
    struct comm base;
    struct mpi_job *job; /* borrowed: outlives all communicators */
    int *world_ranks;    /* [size] */
    bool is_shared;      /* all ranks on this host: `shared` is in use, else `between` */
    struct mapping mapping;
    const void **sources;
    struct shared_group shared;
    struct between between;
};

static const struct comm_ops ops;

static struct mpi_comm *mpi_of(struct comm *c) { return (struct mpi_comm *)c; }

static void mpi_destroy(struct comm *c)
{
    struct mpi_comm *m = mpi_of(c);

    if (m->shared.region) shared_group_leave(&m->shared);
    mapping_release(&m->mapping);
    between_release(&m->between);
    mem_free(m->sources);
    mem_free(m->world_ranks);
    mem_free(m);
}

static void fail_job(struct mpi_comm *m, const char *reason)
{
    char text[SHARED_REASON_BYTES];

    snprintf(text, sizeof text, "rank %d failed: %s", m->base.world_rank, reason);
    shared_job_fail(&m->job->board->job, ERR_PEER, m->base.world_rank, text);
}

/* Any thread: speaks no MPI. Ranks of this host see the board; other hosts are told by the next of their MPI
 * threads that sees it. */
static void mpi_abort(struct comm *c, const char *reason) { fail_job(mpi_of(c), reason); }

/* A communicator that cannot talk yet: rank `rank` of the n whose world ranks are given. */
static err_t create(struct mpi_job *job, const int *world_ranks, int n, int rank, struct mpi_comm **out,
                    struct error *e)
{
    struct mpi_comm *m = mem_zalloc(1, sizeof *m);

    *out = NULL;
    if (m) m->world_ranks = mem_zalloc((size_t)n, sizeof *m->world_ranks);
    if (m) m->sources = mem_zalloc((size_t)n, sizeof *m->sources);
    if (!m || !m->world_ranks || !m->sources) {
        if (m) mpi_destroy(&m->base);
        return FAIL(e, ERR_MEMORY, "out of memory for a communicator of %d ranks", n);
    }
    memcpy(m->world_ranks, world_ranks, (size_t)n * sizeof *world_ranks);
    m->base = (struct comm){.ops = &ops, .rank = rank, .size = n, .world_rank = job->world_rank};
    m->base.local_rank = job->local_rank;
    m->base.local_size = job->local_size;
    m->base.host_index = job->host_index;
    m->base.n_hosts = job->n_hosts;
    m->job = job;
    *out = m;
    return ERR_NONE;
}

err_t mpi_comm_between(struct mpi_job *job, const int *world_ranks, int n, int rank, int tag, struct comm **out,
                       struct error *e)
{
    struct mpi_comm *m;
    err_t rc = create(job, world_ranks, n, rank, &m, e);

    *out = NULL;
    if (!rc) rc = between_init(&m->between, job, rank, n, m->world_ranks, tag, e);
    if (rc && m) mpi_destroy(&m->base);
    if (!rc) *out = &m->base;
    return rc;
}

/* ---- splitting ---- */
struct split_memory {             /* of one split call, for all ranks of the parent */
    struct split_choice *choices; /* [size] */
    int64_t *tags;                /* [size]: the next tag each rank would take */
    struct mapping_name *names;   /* [size]: of the memory each leader made */
    int *members;                 /* [size], then their world ranks */
    int n, rank;                  /* of the new group */
};

static err_t split_memory_init(struct split_memory *s, int size, struct error *e)
{
    *s = (struct split_memory){0};
    s->choices = mem_zalloc((size_t)size, sizeof *s->choices);
    s->tags = mem_zalloc((size_t)size, sizeof *s->tags);
    s->names = mem_zalloc((size_t)size, sizeof *s->names);
    s->members = mem_zalloc((size_t)size, sizeof *s->members);
    if (s->choices && s->tags && s->names && s->members) return ERR_NONE;
    return FAIL(e, ERR_MEMORY, "out of memory while splitting a communicator of %d ranks", size);
}

static void split_memory_release(struct split_memory *s)
{
    mem_free(s->choices);
    mem_free(s->tags);
    mem_free(s->names);
    mem_free(s->members);
}

static void init_shared(struct mpi_comm *m)
{
    shared_group_init(&m->shared, &m->job->board->job, m->mapping.address, m->base.rank, m->world_ranks, m->sources);
    m->shared.poll = mpi_job_poll;
    m->shared.context = m->job;
    m->is_shared = true;
}

/* The first member makes the memory and tells its name; nobody returns before all have mapped it. */
static err_t share_memory(struct comm *parent, struct mpi_comm *m, struct split_memory *s, bool is_shared,
                          struct error *e)
{
    size_t bytes = shared_region_bytes(s->n, SHARED_WINDOW_BYTES);
    struct mapping_name own = {.fd = -1};
    bool leads = is_shared && s->rank == 0;
    int leader = s->members[0];
    err_t rc;

    if (leads) {
        if ((rc = mapping_create(&m->mapping, bytes, e))) return rc;
        shared_region_init(m->mapping.address, s->n, SHARED_WINDOW_BYTES);
        own = mapping_name_of(&m->mapping);
    }
    if ((rc = parent->ops->all_gather(parent, "split: memory", &own, s->names, 2, DTYPE_INT64, NULL, e))) return rc;
    if (!is_shared) return ERR_NONE;
    if (!leads && (rc = mapping_open(&m->mapping, s->names[leader], bytes, e))) return rc;
    init_shared(m);
    rc = shared_barrier(&m->shared, "split: memory is there", e);
    mapping_close_fd(&m->mapping);
    return rc;
}

static err_t split_with(struct comm *parent, struct split_choice own, struct split_memory *s, struct mpi_comm **out,
                        struct error *e)
{
    struct mpi_comm *p = mpi_of(parent);
    struct mpi_job *job = p->job;
    int64_t tag = job->next_tag;
    bool is_shared = true;
    int *world_ranks;
    err_t rc;

    if ((rc = parent->ops->all_gather(parent, "split", &own, s->choices, 2, DTYPE_INT64, NULL, e))) return rc;
    if ((rc = parent->ops->all_gather(parent, "split: tag", &tag, s->tags, 1, DTYPE_INT64, NULL, e))) return rc;
    for (int q = 0; q < parent->size; q++) tag = s->tags[q] > tag ? s->tags[q] : tag;
    job->next_tag = (int)tag + 1; /* no two groups with two ranks in common have one tag */
    s->n = split_members(s->choices, parent->size, own.colour, s->members);
    while (s->members[s->rank] != parent->rank) s->rank++;
    if (!(world_ranks = mem_zalloc((size_t)s->n, sizeof *world_ranks)))
        return FAIL(e, ERR_MEMORY, "out of memory for a communicator of %d ranks", s->n);
    for (int i = 0; i < s->n; i++) {
        world_ranks[i] = p->world_ranks[s->members[i]];
        if (job->host_of[world_ranks[i]] != job->host_index) is_shared = false;
    }
    rc = create(job, world_ranks, s->n, s->rank, out, e);
    mem_free(world_ranks);
    if (!rc && !is_shared) rc = between_init(&(*out)->between, job, s->rank, s->n, (*out)->world_ranks, (int)tag, e);
    return rc ? rc : share_memory(parent, *out, s, is_shared, e);
}

err_t mpi_comm_split(struct comm *c, int colour, int key, struct comm **out, struct error *e)
{
    struct split_choice own = {.colour = colour, .key = key};
    struct mpi_comm *m = NULL;
    struct split_memory s;
    err_t rc = split_memory_init(&s, c->size, e);

    *out = NULL;
    if (!rc) rc = split_with(c, own, &s, &m, e);
    split_memory_release(&s);
    if (rc) {
        fail_job(mpi_of(c), e ? e->message : "cannot split a communicator"); /* the others wait in the new groups */
        mpi_job_send_notices(mpi_of(c)->job);
        if (m) mpi_destroy(&m->base);
        return rc;
    }
    *out = &m->base;
    return ERR_NONE;
}

/* ---- the table ---- */
/* A failure that this host's board brought is passed on to the other hosts by whoever meets it. */
static err_t end_call(struct mpi_comm *m, err_t rc)
{
    if (rc) mpi_job_send_notices(m->job);
    return rc;
}

static err_t mpi_barrier(struct comm *c, const char *name, struct error *e)
{
    struct mpi_comm *m = mpi_of(c);

    return end_call(m, m->is_shared ? shared_barrier(&m->shared, name, e) : between_barrier(&m->between, name, e));
}

static err_t mpi_all_gather(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                            enum dtype type, struct stream *stream, struct error *e)
{
    struct mpi_comm *m = mpi_of(c);

    (void)stream;
    return end_call(m, m->is_shared ? shared_all_gather(&m->shared, name, send, recv, count, type, e)
                                    : between_all_gather(&m->between, name, send, recv, count, type, e));
}

static err_t mpi_reduce_scatter(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                                enum dtype type, enum comm_operator op, struct stream *stream, struct error *e)
{
    struct mpi_comm *m = mpi_of(c);

    (void)stream;
    return end_call(m, m->is_shared ? shared_reduce_scatter(&m->shared, name, send, recv, count, type, op, e)
                                    : between_reduce_scatter(&m->between, name, send, recv, count, type, op, e));
}

static err_t mpi_all_reduce(struct comm *c, const char *name, void *data, size_t count, enum dtype type,
                            enum comm_operator op, struct stream *stream, struct error *e)
{
    struct mpi_comm *m = mpi_of(c);

    (void)stream;
    return end_call(m, m->is_shared ? shared_all_reduce(&m->shared, name, data, count, type, op, e)
                                    : between_all_reduce(&m->between, name, data, count, type, op, e));
}

static err_t mpi_broadcast(struct comm *c, const char *name, void *data, size_t bytes, int root, struct stream *stream,
                           struct error *e)
{
    struct mpi_comm *m = mpi_of(c);

    (void)stream;
    return end_call(m, m->is_shared ? shared_broadcast(&m->shared, name, data, bytes, root, e)
                                    : between_broadcast(&m->between, name, data, bytes, root, e));
}

static void mpi_set_timeout(struct comm *c, double seconds)
{
    shared_job_set_timeout(&mpi_of(c)->job->board->job, seconds);
}

struct mpi_job *mpi_comm_job(struct comm *c) { return mpi_of(c)->job; }

/* Sees ranks that died, too. */
static err_t mpi_comm_check(struct comm *c, struct str *pending, struct error *e)
{
    struct mpi_job *job = mpi_of(c)->job;

    (void)pending; /* calls are done when they return */
    mpi_job_poll(job);
    return shared_job_check(&job->board->job, e);
}

static const struct comm_ops ops = {
    .name = "mpi",
    .destroy = mpi_destroy,
    .split = mpi_comm_split,
    .barrier = mpi_barrier,
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .all_reduce = mpi_all_reduce,
    .broadcast = mpi_broadcast,
    .abort = mpi_abort,
    .set_timeout = mpi_set_timeout,
    .check = mpi_comm_check,
};
