/* SPDX-License-Identifier: MIT */
/*
 * Collectives on device memory; see nccl.h.
 *
 * Communicators are opened in NCCL's non-blocking mode, where a call that has to wait for another rank says so and can
 * be given up when the time is out. The last calls are kept with an event each, so that a collective that hangs can be
 * named.
 */
#include "cuda/nccl.h"

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cuda/cuda.h"
#include "cuda/nccl_api.h"

enum { RECENT_CALLS = 64, POLL_NS = 50000, CHECK_NS = 20000000 };

struct recent {
    char what[96]; /* all_gather "layers.3" */
    struct event *done;
};

struct nccl {
    struct comm base;
    struct comm *host; /* for ids, barriers and aborts */
    bool owns_host;
    struct device *device; /* borrowed */
    struct nccl_api api;
    ncclComm_t handle; /* NULL in a group of one */
    double timeout_s;
    bool has_failed;
    struct recent recent[RECENT_CALLS];
    uint64_t n_calls; /* the n-th call is recent[(n - 1) % RECENT_CALLS] */
};

static const struct comm_ops ops;

static struct nccl *of(struct comm *c) { return (struct nccl *)c; }

static void pause_briefly(void)
{
    struct timespec t = {.tv_nsec = POLL_NS};

    nanosleep(&t, NULL);
}

/* What NCCL says of a failure: its last message has the cause, a peer that closed its connection or a bad pointer. */
static err_t nccl_error(struct nccl *n, const char *call, const char *name, ncclResult_t result, struct error *e)
{
    const char *detail = n->api.get_last_error(n->handle);

    n->has_failed = true;
    return FAIL(e, ERR_COMM, "%s \"%s\": NCCL: %s%s%s", call, name, n->api.get_error_string(result),
                detail && detail[0] ? ": " : "", detail ? detail : "");
}

/* Has a rank of the job failed, or died? What it would have sent never comes. */
static err_t check_job(struct nccl *n, struct error *e)
{
    err_t rc = comm_check(n->host, NULL, e);

    n->has_failed |= rc != ERR_NONE;
    return rc;
}

/* Brings a call to an end that NCCL says is in progress; that is so when it has to meet other ranks first. */
static err_t complete(struct nccl *n, const char *call, const char *name, ncclResult_t result, struct error *e)
{
    int64_t now = clock_ns(), checked = now, deadline = now + (int64_t)(n->timeout_s * 1e9);

    while (result == ncclInProgress) {
        ncclResult_t asked = n->api.get_async_error(n->handle, &result);

        if (asked != ncclSuccess) result = asked;
        if (result != ncclInProgress) break;
        now = clock_ns();
        if (now - checked > CHECK_NS) {
            err_t rc = check_job(n, e);

            if (rc) return rc;
            checked = now;
        }
        if (now > deadline) {
            n->has_failed = true;
            return FAIL(e, ERR_TIMEOUT, "%s \"%s\": the other ranks of this group did not arrive within %g s", call,
                        name, n->timeout_s);
        }
        pause_briefly();
    }
    return result == ncclSuccess ? ERR_NONE : nccl_error(n, call, name, result, e);
}

/* After a collective was enqueued: its end, and the record by which it can be named. */
static err_t enqueued(struct nccl *n, const char *call, const char *name, struct stream *stream, ncclResult_t result,
                      struct error *e)
{
    struct recent *r = &n->recent[n->n_calls % RECENT_CALLS];
    err_t rc = complete(n, call, name, result, e);

    if (rc) return rc;
    if (!r->done) rc = n->device->ops->event_create(n->device, &r->done, e);
    if (!rc) rc = n->device->ops->event_record(n->device, r->done, stream, e);
    if (rc) return rc;
    snprintf(r->what, sizeof r->what, "%s \"%s\"", call, name);
    n->n_calls++;
    return ERR_NONE;
}

static ncclDataType_t type_of(enum dtype type)
{
    static const ncclDataType_t types[DTYPE_COUNT] = {
        [DTYPE_FLOAT32] = ncclFloat32, [DTYPE_FLOAT64] = ncclFloat64, [DTYPE_BFLOAT16] = ncclBfloat16,
        [DTYPE_INT32] = ncclInt32,     [DTYPE_INT64] = ncclInt64,     [DTYPE_UINT8] = ncclUint8};

    return types[type];
}

static ncclRedOp_t operator_of(enum comm_operator op)
{
    return op == COMM_SUM ? ncclSum : op == COMM_MIN ? ncclMin : ncclMax;
}

static cudaStream_t stream_of(struct nccl *n, struct stream *stream) { return cuda_stream(n->device, stream); }

/* A group of one: what is sent is what is received. */
static err_t copy_own(struct nccl *n, const void *send, void *recv, size_t count, enum dtype type,
                      struct stream *stream, struct error *e)
{
    return send == recv ? ERR_NONE : device_copy(n->device, recv, send, count * dtype_bytes(type), stream, e);
}

static err_t nccl_all_gather(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                             enum dtype type, struct stream *stream, struct error *e)
{
    struct nccl *n = of(c);

    if (!n->handle) return copy_own(n, send, recv, count, type, stream, e);
    return enqueued(n, "all_gather", name, stream,
                    n->api.all_gather(send, recv, count, type_of(type), n->handle, stream_of(n, stream)), e);
}

static err_t nccl_reduce_scatter(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                                 enum dtype type, enum comm_operator op, struct stream *stream, struct error *e)
{
    struct nccl *n = of(c);

    if (!n->handle) return copy_own(n, send, recv, count, type, stream, e);
    return enqueued(
        n, "reduce_scatter", name, stream,
        n->api.reduce_scatter(send, recv, count, type_of(type), operator_of(op), n->handle, stream_of(n, stream)), e);
}

static err_t nccl_all_reduce(struct comm *c, const char *name, void *data, size_t count, enum dtype type,
                             enum comm_operator op, struct stream *stream, struct error *e)
{
    struct nccl *n = of(c);

    if (!n->handle) return ERR_NONE;
    return enqueued(
        n, "all_reduce", name, stream,
        n->api.all_reduce(data, data, count, type_of(type), operator_of(op), n->handle, stream_of(n, stream)), e);
}

static err_t nccl_broadcast(struct comm *c, const char *name, void *data, size_t bytes, int root, struct stream *stream,
                            struct error *e)
{
    struct nccl *n = of(c);

    if (!n->handle) return ERR_NONE;
    return enqueued(n, "broadcast", name, stream,
                    n->api.broadcast(data, data, bytes, ncclUint8, root, n->handle, stream_of(n, stream)), e);
}

static err_t nccl_barrier(struct comm *c, const char *name, struct error *e)
{
    return comm_barrier(of(c)->host, name, e);
}

static void nccl_abort(struct comm *c, const char *reason)
{
    of(c)->has_failed = true;
    comm_abort(of(c)->host, reason);
}

static void nccl_set_timeout(struct comm *c, double seconds) { of(c)->timeout_s = seconds; }

/* The first of the last calls that has not finished. */
static void describe_pending(struct nccl *n, struct str *pending)
{
    uint64_t first = n->n_calls > RECENT_CALLS ? n->n_calls - RECENT_CALLS : 0;

    for (uint64_t i = first; i < n->n_calls; i++) {
        const struct recent *r = &n->recent[i % RECENT_CALLS];

        if (n->device->ops->event_is_done(n->device, r->done)) continue;
        str_addf(pending, "%s (call %llu of its group of %d ranks)", r->what, (unsigned long long)i + 1, n->base.size);
        return;
    }
}

static err_t nccl_check(struct comm *c, struct str *pending, struct error *e)
{
    struct nccl *n = of(c);
    ncclResult_t state = ncclSuccess, asked;
    err_t rc = check_job(n, e);

    if (rc || !n->handle) return rc;
    asked = n->api.get_async_error(n->handle, &state);
    if (asked != ncclSuccess) state = asked;
    if (state != ncclSuccess && state != ncclInProgress) return nccl_error(n, "a collective", "unknown", state, e);
    if (pending) describe_pending(n, pending);
    return ERR_NONE;
}

/* After a failure the work on the device may never end: it is given up, not waited for. */
static void close_handle(struct nccl *n)
{
    struct error ignored;

    if (!n->handle) return;
    if (cuda_device_of(n->device)->failed || check_job(n, &ignored)) n->has_failed = true;
    if (!n->has_failed && complete(n, "finalize", "", n->api.finalize(n->handle), &ignored) == ERR_NONE)
        n->api.destroy(n->handle);
    else
        n->api.abort(n->handle);
}

static void nccl_destroy(struct comm *c)
{
    struct nccl *n = of(c);

    close_handle(n);
    for (int i = 0; i < RECENT_CALLS; i++)
        if (n->recent[i].done) n->device->ops->event_destroy(n->device, n->recent[i].done);
    if (n->owns_host) comm_destroy(n->host);
    mem_free(n);
}

static err_t nccl_split(struct comm *c, int colour, int key, struct comm **out, struct error *e)
{
    struct comm *host = NULL;
    err_t rc = comm_split(of(c)->host, colour, key, &host, e);

    if (!rc) rc = nccl_comm_open(of(c)->device, host, out, e);
    if (rc) {
        comm_destroy(host);
        return rc;
    }
    of(*out)->owns_host = true;
    return ERR_NONE;
}

static const struct comm_ops ops = {
    .name = "nccl",
    .destroy = nccl_destroy,
    .split = nccl_split,
    .barrier = nccl_barrier,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .all_reduce = nccl_all_reduce,
    .broadcast = nccl_broadcast,
    .abort = nccl_abort,
    .set_timeout = nccl_set_timeout,
    .check = nccl_check,
};

/* Whether every rank of the group has NCCL, so that all of them refuse together and none waits for another. */
static err_t agree(struct nccl *n, err_t own, struct error *e)
{
    int64_t code = own;
    err_t rc = comm_all_reduce(n->host, "open NCCL", &code, 1, DTYPE_INT64, COMM_MAX, NULL, own ? NULL : e);

    if (own) return own;
    if (!rc && code) return FAIL(e, ERR_PEER, "another rank of the group cannot use NCCL: its message says why");
    return rc;
}

static err_t connect_ranks(struct nccl *n, struct error *e)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = {{0}};
    ncclResult_t result;
    err_t rc = agree(n, nccl_api_open(&n->api, e), e);

    if (rc) return rc;
    result = n->base.rank == 0 ? n->api.get_unique_id(&id) : ncclSuccess;
    rc = agree(n, result == ncclSuccess ? ERR_NONE : nccl_error(n, "open", "", result, e), e);
    if (!rc) rc = comm_broadcast(n->host, "NCCL's id", &id, sizeof id, 0, NULL, e);
    if (rc) return rc;
    config.blocking = 0;
    result = n->api.init_rank(&n->handle, n->base.size, id, n->base.rank, &config);
    return complete(n, "open", "communicator", result, e);
}

err_t nccl_comm_open(struct device *d, struct comm *host, struct comm **out, struct error *e)
{
    struct nccl *n = mem_zalloc(1, sizeof *n);
    err_t rc;

    *out = NULL;
    if (!n) return FAIL(e, ERR_MEMORY, "out of memory for a communicator");
    n->base = *host;
    n->base.ops = &ops;
    n->host = host;
    n->device = d;
    n->timeout_s = COMM_INIT_TIMEOUT_S;
    rc = host->size > 1 ? connect_ranks(n, e) : ERR_NONE;
    if (rc) {
        n->has_failed = true;
        nccl_destroy(&n->base);
        return rc;
    }
    *out = &n->base;
    return ERR_NONE;
}
