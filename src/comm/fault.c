/* SPDX-License-Identifier: MIT */
/* Fault-injecting decorator; see fault.h. */
#include "comm/fault.h"

#include <signal.h>

#include "base/clock.h"
#include "base/mem.h"

struct faulty {
    struct comm base;
    struct comm *inner; /* owned */
    struct comm_fault *fault;
};

static const struct comm_ops ops;

static struct comm *inner_of(struct comm *c) { return ((struct faulty *)c)->inner; }

/* The fault, if this call is the one; an error means that the call must not take place. */
static err_t strike(struct comm *c, const char *name, struct error *e)
{
    struct comm_fault *f = ((struct faulty *)c)->fault;

    if (c->world_rank != f->world_rank || atomic_fetch_add(&f->calls, 1) + 1 != f->nth) return ERR_NONE;
    switch (f->action) {
    case COMM_FAULT_DELAY: clock_sleep_ns((int64_t)(f->delay_s * 1e9)); return ERR_NONE;
    case COMM_FAULT_KILL: raise(SIGKILL); return ERR_NONE;
    case COMM_FAULT_LEAVE:
        return FAIL(e, ERR_STOPPED, "planted fault: rank %d leaves before \"%s\"", c->world_rank, name);
    case COMM_FAULT_FAIL: break;
    }
    comm_abort(inner_of(c), "planted fault");
    return FAIL(e, ERR_COMM, "planted fault: \"%s\" fails on rank %d", name, c->world_rank);
}

static err_t fault_split(struct comm *c, int colour, int key, struct comm **out, struct error *e)
{
    struct comm *inner = NULL;
    err_t rc = inner_of(c)->ops->split(inner_of(c), colour, key, &inner, e);

    return rc ? rc : comm_fault_create(inner, ((struct faulty *)c)->fault, out, e);
}

static err_t fault_split_ranks(struct comm *c, const int *ranks, int n, struct comm **out, struct error *e)
{
    struct comm *inner = NULL;
    err_t rc = comm_split_ranks(inner_of(c), ranks, n, &inner, e);

    return rc ? rc : comm_fault_create(inner, ((struct faulty *)c)->fault, out, e);
}

static void fault_destroy(struct comm *c)
{
    comm_destroy(inner_of(c));
    mem_free(c);
}

static err_t fault_barrier(struct comm *c, const char *name, struct error *e)
{
    err_t rc = strike(c, name, e);

    return rc ? rc : inner_of(c)->ops->barrier(inner_of(c), name, e);
}

static err_t fault_all_gather(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                              enum dtype type, struct stream *stream, struct error *e)
{
    err_t rc = strike(c, name, e);

    return rc ? rc : inner_of(c)->ops->all_gather(inner_of(c), name, send, recv, count, type, stream, e);
}

static err_t fault_reduce_scatter(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                                  enum dtype type, enum comm_operator op, struct stream *stream, struct error *e)
{
    err_t rc = strike(c, name, e);

    return rc ? rc : inner_of(c)->ops->reduce_scatter(inner_of(c), name, send, recv, count, type, op, stream, e);
}

static err_t fault_all_reduce(struct comm *c, const char *name, void *data, size_t count, enum dtype type,
                              enum comm_operator op, struct stream *stream, struct error *e)
{
    err_t rc = strike(c, name, e);

    return rc ? rc : inner_of(c)->ops->all_reduce(inner_of(c), name, data, count, type, op, stream, e);
}

static err_t fault_broadcast(struct comm *c, const char *name, void *data, size_t bytes, int root,
                             struct stream *stream, struct error *e)
{
    err_t rc = strike(c, name, e);

    return rc ? rc : inner_of(c)->ops->broadcast(inner_of(c), name, data, bytes, root, stream, e);
}

static void fault_abort(struct comm *c, const char *reason) { comm_abort(inner_of(c), reason); }

static void fault_set_timeout(struct comm *c, double seconds) { comm_set_timeout(inner_of(c), seconds); }

static const struct comm_ops ops = {
    .name = "fault",
    .destroy = fault_destroy,
    .split = fault_split,
    .barrier = fault_barrier,
    .all_gather = fault_all_gather,
    .reduce_scatter = fault_reduce_scatter,
    .all_reduce = fault_all_reduce,
    .broadcast = fault_broadcast,
    .abort = fault_abort,
    .set_timeout = fault_set_timeout,
    .split_ranks = fault_split_ranks,
};

err_t comm_fault_create(struct comm *inner, struct comm_fault *fault, struct comm **out, struct error *e)
{
    struct faulty *f = mem_zalloc(1, sizeof *f);

    *out = NULL;
    if (!f) {
        comm_destroy(inner);
        return FAIL(e, ERR_MEMORY, "out of memory for a communicator");
    }
    f->base = *inner;
    f->base.ops = &ops;
    f->inner = inner;
    f->fault = fault;
    *out = &f->base;
    return ERR_NONE;
}
