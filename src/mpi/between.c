/* SPDX-License-Identifier: MIT */
/*
 * Collectives of groups whose ranks are on several hosts; see job.h.
 *
 * Every call starts with everybody telling everybody what it calls, which is the meeting of shared.c done
 * with messages. Data goes straight from rank to rank: for a reduction each rank gets the others' parts of
 * its slice and adds them in rank order. That is the volume of a ring per rank, and the bits of every other
 * backend.
 */
#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "comm/reduce.h"
#include "mpi/job.h"

enum {
    CHUNK_BYTES = 4 << 20,    /* of contributions held at a time */
    MESSAGE_BYTES = 64 << 20, /* largest single message: MPI counts are int */
    EAGER_TESTS = 500,        /* rounds of looking before the first sleep */
    MIN_SLEEP_NS = 20 * 1000,
    MAX_SLEEP_NS = 1000 * 1000,
    POLL_NS = 50 * 1000 * 1000,
    MAX_NAMED = 8 /* ranks in a message */
};

err_t between_init(struct between *b, struct mpi_job *job, int rank, int size, const int *world_ranks, int tag,
                   struct error *e)
{
    size_t n = (size_t)size;

    *b = (struct between){.job = job, .rank = rank, .size = size, .world_ranks = world_ranks, .tag = tag};
    b->call.name = "";
    b->requests = mem_zalloc(2 * n, sizeof(MPI_Request));
    b->calls = mem_zalloc(n, sizeof *b->calls);
    b->sources = mem_zalloc(n, sizeof *b->sources);
    if (!b->requests || !b->calls || !b->sources) {
        between_release(b);
        return FAIL(e, ERR_MEMORY, "out of memory for a communicator of %d ranks", size);
    }
    for (size_t i = 0; i < 2 * n; i++) b->requests[i] = MPI_REQUEST_NULL;
    return ERR_NONE;
}

void between_release(struct between *b)
{
    mem_free(b->requests);
    mem_free(b->calls);
    mem_free(b->sources);
    mem_free(b->scratch);
    *b = (struct between){0};
}

static err_t need_scratch(struct between *b, size_t bytes, struct error *e)
{
    if (bytes <= b->scratch_bytes) return ERR_NONE;
    mem_free(b->scratch);
    b->scratch = mem_aligned(64, bytes);
    b->scratch_bytes = b->scratch ? bytes : 0;
    return b->scratch ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory: %zu bytes to exchange with other hosts", bytes);
}

static err_t send_to(struct between *b, int q, const void *data, size_t bytes, struct error *e)
{
    int status =
        MPI_Isend(data, (int)bytes, MPI_BYTE, b->world_ranks[q], b->tag, MPI_COMM_WORLD, &b->requests[b->size + q]);

    return mpi_check(status, "MPI_Isend", e);
}

static err_t receive_from(struct between *b, int q, void *data, size_t bytes, struct error *e)
{
    int status = MPI_Irecv(data, (int)bytes, MPI_BYTE, b->world_ranks[q], b->tag, MPI_COMM_WORLD, &b->requests[q]);

    return mpi_check(status, "MPI_Irecv", e);
}

/* ---- waiting ---- */
static void fail_timeout(struct between *b, double seconds)
{
    struct str text = {0};
    uint64_t words[CALL_WORDS];
    int missing = 0;

    call_pack(&b->call, words);
    call_print(&text, words);
    for (int q = 0; q < b->size; q++) {
        if (b->requests[q] == MPI_REQUEST_NULL && b->requests[b->size + q] == MPI_REQUEST_NULL) continue;
        missing++;
        if (missing > MAX_NAMED) continue;
        str_addf(&text, "%s%d", missing > 1 ? ", " : ": nothing came from or went to rank ", b->world_ranks[q]);
    }
    if (missing > MAX_NAMED) str_addf(&text, " and %d more", missing - MAX_NAMED);
    str_addf(&text, " within %.3g s; it did not arrive, or its host cannot be reached (this is call #%llu of rank %d)",
             seconds, (unsigned long long)b->call.sequence, b->world_ranks[b->rank]);
    shared_job_fail(&b->job->board->job, ERR_TIMEOUT, -1, str_text(&text));
    str_release(&text);
}

/* Completes all requests. A failed job's requests stay: nothing touches their buffers, because MPI is not
 * called again. */
static err_t wait_all(struct between *b, struct error *e)
{
    struct shared_job *job = &b->job->board->job;
    int64_t start_ns = clock_ns(), polled_ns = start_ns, sleep_ns = MIN_SLEEP_NS;
    int is_done = 0;
    err_t rc;

    for (long round = 0;; round++) {
        int64_t now_ns, limit_ns;

        if ((rc = mpi_check(MPI_Testall(2 * b->size, b->requests, &is_done, MPI_STATUSES_IGNORE), "MPI_Testall", e)))
            return rc;
        if (is_done) return ERR_NONE;
        if (round < EAGER_TESTS) continue;
        clock_sleep_ns(sleep_ns);
        sleep_ns = sleep_ns * 2 < MAX_SLEEP_NS ? sleep_ns * 2 : MAX_SLEEP_NS;
        now_ns = clock_ns();
        limit_ns = atomic_load(&job->timeout_ns);
        if (now_ns - polled_ns > POLL_NS) {
            mpi_job_poll(b->job);
            polled_ns = now_ns;
        }
        if (limit_ns > 0 && now_ns - start_ns > limit_ns) {
            for (int i = 0; i < 2 * b->size; i++) {
                int status = MPI_Test(&b->requests[i], &is_done, MPI_STATUS_IGNORE);

                if ((rc = mpi_check(status, "MPI_Test", e))) return rc;
            }
            fail_timeout(b, (double)limit_ns * 1e-9);
        }
        if ((rc = shared_job_check(job, e))) return rc;
    }
}

static void fail_mismatch(struct between *b, int q, const uint64_t mine[CALL_WORDS])
{
    struct str text = {0};
    int self = b->world_ranks[b->rank], other = b->world_ranks[q];

    str_addf(&text, "ranks %d and %d make different calls: rank %d calls ", self, other, self);
    call_print(&text, mine);
    str_addf(&text, ", rank %d calls ", other);
    call_print(&text, b->calls[q]);
    str_addf(&text, " (call #%llu); every rank must make the same calls in the same order",
             (unsigned long long)b->call.sequence);
    shared_job_fail(&b->job->board->job, ERR_COMM, -1, str_text(&text));
    str_release(&text);
}

static err_t meet(struct between *b, enum call_kind kind, const char *name, size_t count, enum dtype type,
                  enum comm_operator op, int root, struct error *e)
{
    uint64_t sequence = b->call.sequence + 1, *mine = b->calls[b->rank];
    err_t rc = shared_job_check(&b->job->board->job, e);

    if (rc) return rc;
    b->call = (struct call){
        .kind = kind, .name = name, .count = count, .type = type, .op = op, .root = root, .sequence = sequence};
    call_pack(&b->call, mine);
    for (int q = 0; q < b->size && !rc; q++)
        if (q != b->rank) rc = receive_from(b, q, b->calls[q], sizeof b->calls[q], e);
    for (int q = 0; q < b->size && !rc; q++)
        if (q != b->rank) rc = send_to(b, q, mine, sizeof b->calls[q], e);
    if (rc || (rc = wait_all(b, e))) return rc;
    for (int q = 0; q < b->size; q++) {
        if (memcmp(mine, b->calls[q], sizeof b->calls[q]) == 0) continue;
        fail_mismatch(b, q, mine);
        return shared_job_check(&b->job->board->job, e);
    }
    return ERR_NONE;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Whatever went wrong in a call, all ranks of the job end: they would wait for this one. */
static err_t end_call(struct between *b, err_t rc, struct error *e)
{
    if (rc) {
        shared_job_fail(&b->job->board->job, rc, b->job->world_rank, e ? e->message : "communication failed");
        mpi_job_send_notices(b->job);
    }
    return rc;
}

err_t between_barrier(struct between *b, const char *name, struct error *e)
{
    return end_call(b, meet(b, CALL_BARRIER, name, 0, 0, 0, 0, e), e);
}

/* ---- all-gather ---- */
static err_t all_gather(struct between *b, const char *send, char *recv, size_t bytes, struct error *e)
{
    err_t rc = ERR_NONE;

    for (size_t at = 0; at < bytes && !rc; at += MESSAGE_BYTES) {
        size_t m = least(MESSAGE_BYTES, bytes - at);

        for (int q = 0; q < b->size && !rc; q++)
            if (q != b->rank) rc = receive_from(b, q, recv + (size_t)q * bytes + at, m, e);
        for (int q = 0; q < b->size && !rc; q++)
            if (q != b->rank) rc = send_to(b, q, send + at, m, e);
        if (!rc) rc = wait_all(b, e);
    }
    if (!rc && bytes && send != recv + (size_t)b->rank * bytes) memcpy(recv + (size_t)b->rank * bytes, send, bytes);
    return rc;
}

err_t between_all_gather(struct between *b, const char *name, const void *send, void *recv, size_t count,
                         enum dtype type, struct error *e)
{
    err_t rc = meet(b, CALL_ALL_GATHER, name, count, type, 0, 0, e);

    return end_call(b, rc ? rc : all_gather(b, send, recv, count * dtype_bytes(type), e), e);
}

/* ---- reductions ---- */
/* Elements of which the contributions of all ranks fit into the scratch memory. */
static size_t chunk_elements(const struct between *b, size_t width)
{
    size_t elements = CHUNK_BYTES / (size_t)b->size / width;

    return elements < 64 ? 64 : elements;
}

/* What this rank holds for each rank q: part q begins stride elements after part q - 1. */
struct parts {
    char *first;
    size_t stride, each; /* elements */
    size_t total;        /* of all parts: the last ones may be short or empty */
};

static size_t count_of(const struct parts *p, int q)
{
    size_t before = (size_t)q * p->each;

    return before >= p->total ? 0 : least(p->each, p->total - before);
}

static char *at(const struct parts *p, int q, size_t width) { return p->first + (size_t)q * p->stride * width; }

/* out = the reduction of every rank's part for this rank; out may be the own part. */
static err_t exchange_and_reduce(struct between *b, const struct parts *p, void *out, enum dtype type,
                                 enum comm_operator op, struct error *e)
{
    size_t width = dtype_bytes(type), mine = count_of(p, b->rank) * width;
    err_t rc = need_scratch(b, mine * (size_t)b->size, e);

    for (int q = 0; q < b->size && !rc && mine; q++) {
        b->sources[q] = q == b->rank ? at(p, q, width) : b->scratch + (size_t)q * mine;
        if (q != b->rank) rc = receive_from(b, q, b->scratch + (size_t)q * mine, mine, e);
    }
    for (int q = 0; q < b->size && !rc; q++)
        if (q != b->rank && count_of(p, q)) rc = send_to(b, q, at(p, q, width), count_of(p, q) * width, e);
    if (!rc) rc = wait_all(b, e);
    if (!rc && mine) reduce_in_order(out, b->sources, b->size, mine / width, type, op);
    return rc;
}

/* Every rank's own part goes to all. */
static err_t share_parts(struct between *b, const struct parts *p, size_t width, struct error *e)
{
    err_t rc = ERR_NONE;

    for (int q = 0; q < b->size && !rc; q++)
        if (q != b->rank && count_of(p, q)) rc = receive_from(b, q, at(p, q, width), count_of(p, q) * width, e);
    for (int q = 0; q < b->size && !rc; q++)
        if (q != b->rank && count_of(p, b->rank))
            rc = send_to(b, q, at(p, b->rank, width), count_of(p, b->rank) * width, e);
    return rc ? rc : wait_all(b, e);
}

err_t between_reduce_scatter(struct between *b, const char *name, const void *send, void *recv, size_t count,
                             enum dtype type, enum comm_operator op, struct error *e)
{
    size_t width = dtype_bytes(type), chunk = chunk_elements(b, width);
    err_t rc = meet(b, CALL_REDUCE_SCATTER, name, count, type, op, 0, e);

    for (size_t start = 0; start < count && !rc; start += chunk) {
        size_t m = least(chunk, count - start);
        struct parts p = {
            .first = (char *)(uintptr_t)send + start * width, .stride = count, .each = m, .total = m * (size_t)b->size};

        rc = exchange_and_reduce(b, &p, (char *)recv + start * width, type, op, e);
    }
    return end_call(b, rc, e);
}

err_t between_all_reduce(struct between *b, const char *name, void *data, size_t count, enum dtype type,
                         enum comm_operator op, struct error *e)
{
    size_t width = dtype_bytes(type), chunk = chunk_elements(b, width) * (size_t)b->size;
    err_t rc = meet(b, CALL_ALL_REDUCE, name, count, type, op, 0, e);

    for (size_t start = 0; start < count && !rc; start += chunk) {
        size_t m = least(chunk, count - start), each = (m + (size_t)b->size - 1) / (size_t)b->size;
        struct parts p = {.first = (char *)data + start * width, .stride = each, .each = each, .total = m};

        rc = exchange_and_reduce(b, &p, at(&p, b->rank, width), type, op, e);
        if (!rc) rc = share_parts(b, &p, width, e);
    }
    return end_call(b, rc, e);
}

/* ---- broadcast ---- */
err_t between_broadcast(struct between *b, const char *name, void *data, size_t bytes, int root, struct error *e)
{
    err_t rc = meet(b, CALL_BROADCAST, name, bytes, DTYPE_UINT8, 0, root, e);

    for (size_t start = 0; start < bytes && !rc; start += MESSAGE_BYTES) {
        size_t m = least(MESSAGE_BYTES, bytes - start);

        if (b->rank != root) rc = receive_from(b, root, (char *)data + start, m, e);
        for (int q = 0; q < b->size && !rc && b->rank == root; q++)
            if (q != root) rc = send_to(b, q, (char *)data + start, m, e);
        if (!rc) rc = wait_all(b, e);
    }
    return end_call(b, rc, e);
}
