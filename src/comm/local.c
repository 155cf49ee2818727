/* SPDX-License-Identifier: MIT */
/* Ranks as threads: the shared engine over ordinary memory; see local.h. Groups and the job are freed by the
 * last rank that leaves. */
#include "comm/local.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "comm/shared.h"
#include "comm/split.h"

enum { LOCAL_WINDOW_BYTES = 16 << 10 }; /* small messages only: larger ones are read where they lie */

struct local_job {
    struct shared_job job;
    atomic_int references; /* communicators */
    pthread_mutex_t lock;  /* of groups */
    struct local_group *groups;
};

/* What all ranks of a group share. */
struct local_group {
    struct local_group *next; /* in the job, which frees those that a rank failed to join */
    atomic_int references;    /* ranks */
    struct shared_region *region;
    int *world_ranks;
};

struct local {
    struct comm base;
    struct local_job *job;
    struct local_group *group;
    const void **sources;
    struct shared_group shared;
};

static const struct comm_ops ops;

static struct local *local_of(struct comm *c) { return (struct local *)c; }

static void group_free(struct local_group *group)
{
    mem_free(group->region);
    mem_free(group->world_ranks);
    mem_free(group);
}

static void group_release(struct local_job *job, struct local_group *group)
{
    struct local_group **at = &job->groups;

    if (atomic_fetch_sub(&group->references, 1) != 1) return;
    pthread_mutex_lock(&job->lock);
    while (*at != group) at = &(*at)->next;
    *at = group->next;
    pthread_mutex_unlock(&job->lock);
    group_free(group);
}

static void job_release(struct local_job *job)
{
    if (atomic_fetch_sub(&job->references, 1) != 1) return;
    for (struct local_group *group = job->groups, *next; group; group = next) {
        next = group->next;
        group_free(group);
    }
    pthread_mutex_destroy(&job->lock);
    mem_free(job);
}

/* Members are ranks of the group whose world_ranks are given. Each of them will release it once. NULL = out
 * of memory. */
static struct local_group *group_create(struct local_job *job, int size, const int *members, const int *world_ranks)
{
    struct local_group *group = mem_zalloc(1, sizeof *group);
    size_t bytes = shared_region_bytes(size, LOCAL_WINDOW_BYTES);

    if (!group) return NULL;
    group->region = mem_aligned(64, bytes);
    group->world_ranks = mem_zalloc((size_t)size, sizeof *group->world_ranks);
    if (!group->region || !group->world_ranks) {
        group_free(group);
        return NULL;
    }
    memset(group->region, 0, shared_region_bytes(size, 0));
    shared_region_init(group->region, size, LOCAL_WINDOW_BYTES);
    for (int i = 0; i < size; i++) group->world_ranks[i] = world_ranks[members[i]];
    atomic_store(&group->references, size);
    pthread_mutex_lock(&job->lock);
    group->next = job->groups;
    job->groups = group;
    pthread_mutex_unlock(&job->lock);
    return group;
}

/* Takes over one reference to the group, also on error. */
static err_t attach(struct local_job *job, struct local_group *group, int rank, int world_size, struct comm **out,
                    struct error *e)
{
    struct local *l = mem_zalloc(1, sizeof *l);
    int size = group->region->size;

    if (!l || !(l->sources = mem_zalloc((size_t)size, sizeof *l->sources))) {
        mem_free(l);
        group_release(job, group);
        return FAIL(e, ERR_MEMORY, "out of memory for a communicator of %d ranks", size);
    }
    l->base =
        (struct comm){.ops = &ops, .rank = rank, .size = size, .world_rank = group->world_ranks[rank], .n_hosts = 1};
    l->base.local_rank = l->base.world_rank;
    l->base.local_size = world_size;
    l->job = job;
    l->group = group;
    atomic_fetch_add(&job->references, 1);
    shared_group_init(&l->shared, &job->job, group->region, rank, group->world_ranks, l->sources);
    l->shared.is_direct = true;
    *out = &l->base;
    return ERR_NONE;
}

static void local_destroy(struct comm *c)
{
    struct local *l = local_of(c);

    shared_group_leave(&l->shared);
    group_release(l->job, l->group);
    job_release(l->job);
    mem_free(l->sources);
    mem_free(l);
}

static void local_abort(struct comm *c, const char *reason)
{
    char text[SHARED_REASON_BYTES];

    snprintf(text, sizeof text, "rank %d failed: %s", c->world_rank, reason);
    shared_job_fail(&local_of(c)->job->job, ERR_PEER, c->world_rank, text);
}

/* The first member of each new group makes its memory; its address goes round as a number. */
static err_t split_with(struct local *l, struct split_choice *choices, int64_t *addresses, int *members,
                        struct split_choice own, struct comm **out, struct error *e)
{
    struct shared_group *g = &l->shared;
    int64_t address = 0;
    int n, rank = 0;
    err_t rc;

    if ((rc = shared_all_gather(g, "split", &own, choices, 2, DTYPE_INT64, e))) return rc;
    n = split_members(choices, g->size, own.colour, members);
    while (members[rank] != g->rank) rank++;
    if (rank == 0) address = (int64_t)(intptr_t)group_create(l->job, n, members, g->world_ranks);
    rc = shared_all_gather(g, "split", &address, addresses, 1, DTYPE_INT64, e);
    if (rc) return rc; /* others may have the group: the job will free it */
    address = addresses[members[0]];
    if (!address) return FAIL(e, ERR_MEMORY, "out of memory for a communicator of %d ranks", n);
    return attach(l->job, (struct local_group *)(intptr_t)address, rank, l->base.local_size, out, e);
}

static err_t local_split(struct comm *c, int colour, int key, struct comm **out, struct error *e)
{
    struct local *l = local_of(c);
    struct split_choice own = {.colour = colour, .key = key}, *choices = mem_zalloc((size_t)c->size, sizeof *choices);
    int64_t *addresses = mem_zalloc((size_t)c->size, sizeof *addresses);
    int *members = mem_zalloc((size_t)c->size, sizeof *members);
    err_t rc;

    if (choices && addresses && members)
        rc = split_with(l, choices, addresses, members, own, out, e);
    else
        rc = FAIL(e, ERR_MEMORY, "out of memory while splitting a communicator of %d ranks", c->size);
    if (rc)
        local_abort(c, e ? e->message
                         : "cannot split a communicator"); /* the others hold groups that wait for this rank */
    mem_free(choices);
    mem_free(addresses);
    mem_free(members);
    return rc;
}

static err_t local_barrier(struct comm *c, const char *name, struct error *e)
{
    return shared_barrier(&local_of(c)->shared, name, e);
}

static err_t local_all_gather(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                              enum dtype type, struct stream *stream, struct error *e)
{
    (void)stream;
    return shared_all_gather(&local_of(c)->shared, name, send, recv, count, type, e);
}

static err_t local_reduce_scatter(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                                  enum dtype type, enum comm_operator op, struct stream *stream, struct error *e)
{
    (void)stream;
    return shared_reduce_scatter(&local_of(c)->shared, name, send, recv, count, type, op, e);
}

static err_t local_all_reduce(struct comm *c, const char *name, void *data, size_t count, enum dtype type,
                              enum comm_operator op, struct stream *stream, struct error *e)
{
    (void)stream;
    return shared_all_reduce(&local_of(c)->shared, name, data, count, type, op, e);
}

static err_t local_broadcast(struct comm *c, const char *name, void *data, size_t bytes, int root,
                             struct stream *stream, struct error *e)
{
    (void)stream;
    return shared_broadcast(&local_of(c)->shared, name, data, bytes, root, e);
}

static void local_set_timeout(struct comm *c, double seconds)
{
    shared_job_set_timeout(&local_of(c)->job->job, seconds);
}

static err_t local_check(struct comm *c, struct str *pending, struct error *e)
{
    (void)pending; /* calls are done when they return */
    return shared_job_check(&local_of(c)->job->job, e);
}

static const struct comm_ops ops = {
    .name = "local",
    .destroy = local_destroy,
    .split = local_split,
    .barrier = local_barrier,
    .all_gather = local_all_gather,
    .reduce_scatter = local_reduce_scatter,
    .all_reduce = local_all_reduce,
    .broadcast = local_broadcast,
    .abort = local_abort,
    .set_timeout = local_set_timeout,
    .check = local_check,
};

err_t comm_local_create(int size, const struct comm_options *options, struct comm **out, struct error *e)
{
    double seconds = options && options->init_timeout_s > 0 ? options->init_timeout_s : COMM_INIT_TIMEOUT_S;
    struct local_group *group = NULL;
    struct local_job *job = NULL;
    int *ranks = NULL;
    err_t rc = ERR_NONE;

    if (size < 1 || size > COMM_LOCAL_MAX_RANKS)
        return FAIL(e, ERR_COMM, "a job of threads has 1 to %d ranks, not %d", COMM_LOCAL_MAX_RANKS, size);
    for (int i = 0; i < size; i++) out[i] = NULL;
    ranks = mem_zalloc((size_t)size, sizeof *ranks);
    job = mem_zalloc(1, sizeof *job);
    for (int i = 0; ranks && i < size; i++) ranks[i] = i;
    if (job) pthread_mutex_init(&job->lock, NULL);
    if (job) atomic_store(&job->references, 1); /* ours, until all ranks hold theirs */
    if (ranks && job) group = group_create(job, size, ranks, ranks);
    mem_free(ranks);
    if (!group) {
        if (job) job_release(job);
        return FAIL(e, ERR_MEMORY, "out of memory for a job of %d ranks", size);
    }
    shared_job_set_timeout(&job->job, seconds);
    for (int i = 0; i < size; i++) {
        if (!rc)
            rc = attach(job, group, i, size, &out[i], e);
        else
            group_release(job, group);
    }
    for (int i = 0; i < size && rc; i++) {
        comm_destroy(out[i]);
        out[i] = NULL;
    }
    job_release(job);
    return rc;
}
