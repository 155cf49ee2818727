/* SPDX-License-Identifier: MIT */
/* The calls everyone makes: arguments are checked and time is accounted here, once for all backends. */
#include "comm/comm.h"

#include <stdint.h>

#include "base/trace.h"
#include "comm/reduce.h"

const char *comm_operator_name(enum comm_operator op)
{
    return op == COMM_SUM ? "sum" : op == COMM_MIN ? "min" : op == COMM_MAX ? "max" : "unknown operator";
}

static const char *text(const char *name) { return name ? name : ""; }

/* What every rank sends and receives in all must fit into an address space, and no buffer may be missing. */
static err_t check(const struct comm *c, const char *call, const char *name, const void *send, const void *recv,
                   size_t count, enum dtype type, struct error *e)
{
    size_t bytes;

    if ((unsigned)type >= DTYPE_COUNT)
        return FAIL(e, ERR_COMM, "%s \"%s\": %d is no element type", call, text(name), (int)type);
    if (__builtin_mul_overflow(count, dtype_bytes(type), &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)c->size, &bytes) || bytes > PTRDIFF_MAX)
        return FAIL(e, ERR_COMM, "%s \"%s\": %zu elements for %d ranks are more than memory can hold", call, text(name),
                    count, c->size);
    if (count && (!send || !recv))
        return FAIL(e, ERR_COMM, "%s \"%s\": the %s buffer of %zu elements is NULL", call, text(name),
                    send ? "receive" : "send", count);
    return ERR_NONE;
}

static err_t check_reduction(const char *call, const char *name, enum dtype type, enum comm_operator op,
                             struct error *e)
{
    if ((unsigned)op > COMM_MAX) return FAIL(e, ERR_COMM, "%s \"%s\": %d is no operator", call, text(name), (int)op);
    if (!reduce_has_type(type))
        return FAIL(e, ERR_COMM, "%s \"%s\": %s cannot be reduced; use float32, float64 or int64", call, text(name),
                    dtype_name(type));
    return ERR_NONE;
}

err_t comm_split(struct comm *c, int colour, int key, struct comm **out, struct error *e)
{
    err_t rc;

    *out = NULL;
    trace_begin(c->trace, TRACE_COMMUNICATION);
    rc = c->ops->split(c, colour, key, out, e);
    trace_end(c->trace);
    if (!rc) (*out)->trace = c->trace;
    return rc;
}

err_t comm_split_ranks(struct comm *c, const int *ranks, int n, struct comm **out, struct error *e)
{
    int index = -1;
    err_t rc;

    *out = NULL;
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= c->size)
            return FAIL(e, ERR_COMM, "split of a communicator: rank %d is outside [0, %d)", ranks[i], c->size);
        if (ranks[i] == c->rank) index = i;
    }
    if (index < 0) return FAIL(e, ERR_COMM, "split of a communicator: rank %d is not in the group it gave", c->rank);
    if (!c->ops->split_ranks) {
        rc = comm_split(c, ranks[0], index, out, e);
        if (!rc && ((*out)->size != n || (*out)->rank != index)) {
            rc = FAIL(e, ERR_COMM,
                      "split of a communicator: rank %d gave a group of %d ranks, but %d ranks chose it; "
                      "every rank of a "
                      "group must give the same list",
                      c->rank, n, (*out)->size);
            comm_destroy(*out);
            *out = NULL;
        }
        return rc;
    }
    rc = c->ops->split_ranks(c, ranks, n, out, e);
    if (!rc) (*out)->trace = c->trace;
    return rc;
}

void comm_destroy(struct comm *c)
{
    if (c) c->ops->destroy(c);
}

err_t comm_barrier(struct comm *c, const char *name, struct error *e)
{
    err_t rc;

    trace_begin(c->trace, TRACE_COMMUNICATION);
    rc = c->ops->barrier(c, text(name), e);
    trace_end(c->trace);
    return rc;
}

err_t comm_all_gather(struct comm *c, const char *name, const void *send, void *recv, size_t count, enum dtype type,
                      struct stream *stream, struct error *e)
{
    err_t rc = check(c, "all_gather", name, send, recv, count, type, e);

    if (rc) return rc;
    trace_begin(c->trace, TRACE_COMMUNICATION);
    rc = c->ops->all_gather(c, text(name), send, recv, count, type, stream, e);
    trace_end(c->trace);
    return rc;
}

err_t comm_reduce_scatter(struct comm *c, const char *name, const void *send, void *recv, size_t count, enum dtype type,
                          enum comm_operator op, struct stream *stream, struct error *e)
{
    err_t rc = check(c, "reduce_scatter", name, send, recv, count, type, e);

    if (rc || (rc = check_reduction("reduce_scatter", name, type, op, e))) return rc;
    trace_begin(c->trace, TRACE_COMMUNICATION);
    rc = c->ops->reduce_scatter(c, text(name), send, recv, count, type, op, stream, e);
    trace_end(c->trace);
    return rc;
}

err_t comm_all_reduce(struct comm *c, const char *name, void *data, size_t count, enum dtype type,
                      enum comm_operator op, struct stream *stream, struct error *e)
{
    err_t rc = check(c, "all_reduce", name, data, data, count, type, e);

    if (rc || (rc = check_reduction("all_reduce", name, type, op, e))) return rc;
    trace_begin(c->trace, TRACE_COMMUNICATION);
    rc = c->ops->all_reduce(c, text(name), data, count, type, op, stream, e);
    trace_end(c->trace);
    return rc;
}

err_t comm_broadcast(struct comm *c, const char *name, void *data, size_t bytes, int root, struct stream *stream,
                     struct error *e)
{
    err_t rc = check(c, "broadcast", name, data, data, bytes, DTYPE_UINT8, e);

    if (rc) return rc;
    if (root < 0 || root >= c->size)
        return FAIL(e, ERR_COMM, "broadcast \"%s\": root %d is outside [0, %d)", text(name), root, c->size);
    trace_begin(c->trace, TRACE_COMMUNICATION);
    rc = c->ops->broadcast(c, text(name), data, bytes, root, stream, e);
    trace_end(c->trace);
    return rc;
}

err_t comm_check(struct comm *c, struct str *pending, struct error *e)
{
    return c->ops->check ? c->ops->check(c, pending, e) : ERR_NONE;
}

void comm_abort(struct comm *c, const char *reason) { c->ops->abort(c, reason ? reason : "no reason given"); }

void comm_set_timeout(struct comm *c, double seconds) { c->ops->set_timeout(c, seconds); }
