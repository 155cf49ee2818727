/* SPDX-License-Identifier: MIT */
/* One rank; see self.h. What is sent to oneself is copied; an abort is remembered, so that later calls fail
 * as on every backend. */
#include "comm/self.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Shared by a communicator and all that were split from it. */
struct self_job {
    atomic_int references;
    atomic_int failed; /* 0, 1 = reason is being written, 2 = it is there */
    char reason[ERROR_MESSAGE_BYTES / 2];
};

struct self {
    struct comm base;
    struct self_job *job;
};

static const struct comm_ops ops;

static struct self_job *job_of(struct comm *c) { return ((struct self *)c)->job; }

static err_t failed(struct comm *c, struct error *e)
{
    if (atomic_load(&job_of(c)->failed) < 2) return ERR_NONE;
    return FAIL(e, ERR_PEER, "rank 0 failed: %s", job_of(c)->reason);
}

static void self_destroy(struct comm *c)
{
    if (atomic_fetch_sub(&job_of(c)->references, 1) == 1) mem_free(job_of(c));
    mem_free(c);
}

static err_t create(struct self_job *job, struct comm **out, struct error *e)
{
    struct self *s = mem_zalloc(1, sizeof *s);

    if (!s) return FAIL(e, ERR_MEMORY, "out of memory for a communicator");
    s->base = (struct comm){.ops = &ops, .size = 1, .local_size = 1, .n_hosts = 1};
    s->job = job;
    atomic_fetch_add(&job->references, 1);
    *out = &s->base;
    return ERR_NONE;
}

static err_t self_split(struct comm *c, int colour, int key, struct comm **out, struct error *e)
{
    err_t rc = failed(c, e);

    (void)colour, (void)key;
    return rc ? rc : create(job_of(c), out, e);
}

static err_t self_barrier(struct comm *c, const char *name, struct error *e)
{
    (void)name;
    return failed(c, e);
}

static err_t self_all_gather(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                             enum dtype type, struct stream *stream, struct error *e)
{
    (void)name, (void)stream;
    if (count && send != recv) memcpy(recv, send, count * dtype_bytes(type));
    return failed(c, e);
}

static err_t self_reduce_scatter(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                                 enum dtype type, enum comm_operator op, struct stream *stream, struct error *e)
{
    (void)op;
    return self_all_gather(c, name, send, recv, count, type, stream, e);
}

static err_t self_all_reduce(struct comm *c, const char *name, void *data, size_t count, enum dtype type,
                             enum comm_operator op, struct stream *stream, struct error *e)
{
    (void)name, (void)data, (void)count, (void)type, (void)op, (void)stream;
    return failed(c, e);
}

static err_t self_broadcast(struct comm *c, const char *name, void *data, size_t bytes, int root, struct stream *stream,
                            struct error *e)
{
    (void)name, (void)data, (void)bytes, (void)root, (void)stream;
    return failed(c, e);
}

static void self_abort(struct comm *c, const char *reason)
{
    int none = 0;

    if (!atomic_compare_exchange_strong(&job_of(c)->failed, &none, 1)) return;
    snprintf(job_of(c)->reason, sizeof job_of(c)->reason, "%s", reason);
    atomic_store(&job_of(c)->failed, 2);
}

static void self_set_timeout(struct comm *c, double seconds) { (void)c, (void)seconds; }

static const struct comm_ops ops = {
    .name = "self",
    .destroy = self_destroy,
    .split = self_split,
    .barrier = self_barrier,
    .all_gather = self_all_gather,
    .reduce_scatter = self_reduce_scatter,
    .all_reduce = self_all_reduce,
    .broadcast = self_broadcast,
    .abort = self_abort,
    .set_timeout = self_set_timeout,
};

err_t comm_self_create(struct comm **out, struct error *e)
{
    struct self_job *job = mem_zalloc(1, sizeof *job);
    err_t rc;

    *out = NULL;
    if (!job) return FAIL(e, ERR_MEMORY, "out of memory for a communicator");
    rc = create(job, out, e);
    if (rc) mem_free(job);
    return rc;
}
