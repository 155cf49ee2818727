/* SPDX-License-Identifier: MIT */
/*
 * Moving data among ranks that share memory; see shared.h.
 *
 * Staged: a message goes in chunks. Each rank copies its part of chunk k into its window, all meet, each
 * reads the others' windows. The windows hold SHARED_BUFFERS = 3 chunks by turns, so one meeting per chunk is
 * enough: chunk k + 1 overwrites chunk k - 2, which everybody has read before the meeting that the writer has
 * just left. Chunks are small enough to stay in a cache shared by the cores. Direct (threads): the same with
 * the callers' buffers in place of windows; a last meeting gives the buffers back.
 */
#include <string.h>

#include "comm/reduce.h"
#include "comm/shared.h"

enum {
    LINE_BYTES = 64,
    SMALL_BYTES = 4 << 10, /* up to here everybody reduces everything: one meeting instead of two */
    DIRECT_CHUNK_BYTES = 256 << 10
};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static char *window(const struct shared_group *g, int q, unsigned chunk)
{
    const struct shared_region *r = g->region;
    size_t index = (size_t)q * SHARED_BUFFERS + chunk % SHARED_BUFFERS;

    return (char *)r + r->windows_at + index * r->window_bytes;
}

static const char *buffer_of(const struct shared_group *g, int q)
{
    return atomic_load_explicit(&g->region->slots[q].buffer, memory_order_relaxed);
}

static bool goes_direct(const struct shared_group *g, size_t bytes)
{
    return g->is_direct && g->size > 1 && bytes > g->region->window_bytes;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes && to != from) memcpy(to, from, bytes);
}

/* Element ranges of equal size for every rank, in whole cache lines so that no two ranks write into one. */
struct range {
    size_t from, count;
};

static struct range slice_of(int q, int size, size_t count, size_t width)
{
    size_t per_line = LINE_BYTES / width, lines = (count + per_line - 1) / per_line;
    size_t each = (lines + (size_t)size - 1) / (size_t)size * per_line, from = least((size_t)q * each, count);

    return (struct range){from, least(each, count - from)};
}

static err_t begin(struct shared_group *g, enum call_kind kind, const char *name, size_t count, enum dtype type,
                   enum comm_operator op, int root, const void *direct_buffer, struct error *e)
{
    struct call call = {.kind = kind, .name = name, .count = count, .type = type, .op = op, .root = root};

    return shared_begin(g, &call, direct_buffer, e);
}

/* The meeting of a chunk: the first one of a call also compares the calls. */
static err_t meet(struct shared_group *g, bool is_first, struct error *e)
{
    return is_first ? shared_meet(g, e) : shared_sync(g, e);
}

err_t shared_barrier(struct shared_group *g, const char *name, struct error *e)
{
    err_t rc = begin(g, CALL_BARRIER, name, 0, 0, 0, 0, NULL, e);

    return rc ? rc : shared_meet(g, e);
}

/* ---- all-gather ---- */
static err_t all_gather_direct(struct shared_group *g, const void *send, char *recv, size_t bytes, struct error *e)
{
    err_t rc = shared_meet(g, e);

    if (rc) return rc;
    for (int i = 0; i < g->size; i++) {
        int q = (g->rank + i) % g->size;

        copy(recv + (size_t)q * bytes, q == g->rank ? send : buffer_of(g, q), bytes);
    }
    return shared_sync(g, e);
}

static err_t all_gather_staged(struct shared_group *g, const char *send, char *recv, size_t bytes, struct error *e)
{
    size_t at = 0;
    err_t rc;

    do {
        size_t m = least(g->region->window_bytes, bytes - at);

        g->chunk++;
        if (g->size > 1) copy(window(g, g->rank, g->chunk), send + at, m);
        if ((rc = meet(g, at == 0, e))) return rc;
        for (int i = 0; i < g->size; i++) {
            int q = (g->rank + i) % g->size;

            copy(recv + (size_t)q * bytes + at, q == g->rank ? send + at : window(g, q, g->chunk), m);
        }
        at += m;
    } while (at < bytes);
    return ERR_NONE;
}

err_t shared_all_gather(struct shared_group *g, const char *name, const void *send, void *recv, size_t count,
                        enum dtype type, struct error *e)
{
    size_t bytes = count * dtype_bytes(type);
    bool direct = goes_direct(g, bytes);
    err_t rc = begin(g, CALL_ALL_GATHER, name, count, type, 0, 0, direct ? send : NULL, e);

    if (!rc) rc = direct ? all_gather_direct(g, send, recv, bytes, e) : all_gather_staged(g, send, recv, bytes, e);
    if (direct) shared_leave_direct(g, rc != ERR_NONE);
    return rc;
}

/* ---- reduce-scatter ---- */
static err_t reduce_scatter_direct(struct shared_group *g, const char *send, void *recv, size_t count, enum dtype type,
                                   enum comm_operator op, struct error *e)
{
    size_t mine = (size_t)g->rank * count * dtype_bytes(type);
    err_t rc = shared_meet(g, e);

    if (rc) return rc;
    for (int q = 0; q < g->size; q++) g->sources[q] = (q == g->rank ? send : buffer_of(g, q)) + mine;
    reduce_in_order(recv, g->sources, g->size, count, type, op);
    return shared_sync(g, e);
}

/* A window holds a slot for each rank that will read it. */
static err_t reduce_scatter_staged(struct shared_group *g, const char *send, char *recv, size_t count, enum dtype type,
                                   enum comm_operator op, struct error *e)
{
    size_t width = dtype_bytes(type), bytes = count * width, at = 0;
    size_t slot_bytes = g->region->window_bytes / (size_t)g->size / LINE_BYTES * LINE_BYTES;
    err_t rc;

    do {
        size_t m = least(slot_bytes, bytes - at);

        g->chunk++;
        for (int q = 0; q < g->size; q++)
            if (q != g->rank)
                copy(window(g, g->rank, g->chunk) + (size_t)q * slot_bytes, send + (size_t)q * bytes + at, m);
        if ((rc = meet(g, at == 0, e))) return rc;
        for (int q = 0; q < g->size; q++)
            g->sources[q] =
                q == g->rank ? send + (size_t)q * bytes + at : window(g, q, g->chunk) + (size_t)g->rank * slot_bytes;
        reduce_in_order(recv + at, g->sources, g->size, m / width, type, op);
        at += m;
    } while (at < bytes);
    return ERR_NONE;
}

err_t shared_reduce_scatter(struct shared_group *g, const char *name, const void *send, void *recv, size_t count,
                            enum dtype type, enum comm_operator op, struct error *e)
{
    bool direct = goes_direct(g, count * dtype_bytes(type) * (size_t)g->size);
    err_t rc = begin(g, CALL_REDUCE_SCATTER, name, count, type, op, 0, direct ? send : NULL, e);

    if (!rc)
        rc = direct ? reduce_scatter_direct(g, send, recv, count, type, op, e)
                    : reduce_scatter_staged(g, send, recv, count, type, op, e);
    if (direct) shared_leave_direct(g, rc != ERR_NONE);
    return rc;
}

/* ---- all-reduce: of each chunk every rank reduces its slice, then copies the other slices from those who
 * reduced them ---- */
static void point_at_slices(struct shared_group *g, char *data, size_t at_bytes, struct range slice, size_t width,
                            bool direct)
{
    for (int q = 0; q < g->size; q++) {
        const char *chunk = q == g->rank ? data + at_bytes
                            : direct     ? buffer_of(g, q) + at_bytes
                                         : window(g, q, g->chunk);

        g->sources[q] = chunk + slice.from * width;
    }
}

static void copy_other_slices(struct shared_group *g, char *data, size_t at_bytes, size_t m, size_t width, bool direct)
{
    for (int i = 1; i < g->size; i++) {
        int q = (g->rank + i) % g->size;
        struct range slice = slice_of(q, g->size, m, width);
        const char *chunk = direct ? buffer_of(g, q) + at_bytes : window(g, q, g->chunk);

        copy(data + at_bytes + slice.from * width, chunk + slice.from * width, slice.count * width);
    }
}

static err_t all_reduce_direct(struct shared_group *g, char *data, size_t count, enum dtype type, enum comm_operator op,
                               struct error *e)
{
    size_t width = dtype_bytes(type), chunk = DIRECT_CHUNK_BYTES / width;
    err_t rc = shared_meet(g, e);

    for (size_t at = 0; at < count && !rc; at += chunk) {
        size_t m = least(chunk, count - at);
        struct range slice = slice_of(g->rank, g->size, m, width);

        point_at_slices(g, data, at * width, slice, width, true);
        reduce_in_order(data + (at + slice.from) * width, g->sources, g->size, slice.count, type, op);
        if ((rc = shared_sync(g, e))) return rc;
        copy_other_slices(g, data, at * width, m, width, true);
    }
    return rc ? rc : shared_sync(g, e);
}

/* Puts chunk number g->chunk + 1 into the window, all but the slice that this rank reduces itself. */
static void stage_chunk(struct shared_group *g, const char *data, size_t m, size_t width)
{
    char *to = window(g, g->rank, g->chunk + 1);
    struct range slice = slice_of(g->rank, g->size, m, width);
    size_t before = slice.from * width, after = (slice.from + slice.count) * width;

    copy(to, data, before);
    copy(to + after, data + after, m * width - after);
}

static err_t all_reduce_staged(struct shared_group *g, char *data, size_t count, enum dtype type, enum comm_operator op,
                               struct error *e)
{
    size_t width = dtype_bytes(type), chunk = g->region->window_bytes / width, m = least(chunk, count);
    err_t rc;

    stage_chunk(g, data, m, width);
    if ((rc = shared_meet(g, e))) return rc;
    for (size_t at = 0; at < count; at += m) {
        struct range slice;
        char *result, *own;
        size_t next;

        m = least(chunk, count - at);
        next = least(chunk, count - at - m);
        g->chunk++;
        slice = slice_of(g->rank, g->size, m, width);
        own = data + (at + slice.from) * width;
        result = window(g, g->rank, g->chunk) + slice.from * width;
        point_at_slices(g, data, at * width, slice, width, false);
        reduce_in_order(own, g->sources, g->size, slice.count, type, op);
        copy(result, own, slice.count * width);
        if (next) stage_chunk(g, data + (at + m) * width, next, width);
        if ((rc = shared_sync(g, e))) return rc;
        copy_other_slices(g, data, at * width, m, width, false);
    }
    return ERR_NONE;
}

static err_t all_reduce_small(struct shared_group *g, void *data, size_t count, enum dtype type, enum comm_operator op,
                              struct error *e)
{
    err_t rc;

    g->chunk++;
    copy(window(g, g->rank, g->chunk), data, count * dtype_bytes(type));
    if ((rc = shared_meet(g, e))) return rc;
    for (int q = 0; q < g->size; q++) g->sources[q] = window(g, q, g->chunk);
    reduce_in_order(data, g->sources, g->size, count, type, op);
    return ERR_NONE;
}

err_t shared_all_reduce(struct shared_group *g, const char *name, void *data, size_t count, enum dtype type,
                        enum comm_operator op, struct error *e)
{
    size_t bytes = count * dtype_bytes(type);
    bool direct = goes_direct(g, bytes);
    err_t rc = begin(g, CALL_ALL_REDUCE, name, count, type, op, 0, direct ? data : NULL, e);

    if (!rc && direct)
        rc = all_reduce_direct(g, data, count, type, op, e);
    else if (!rc && bytes <= least(SMALL_BYTES, g->region->window_bytes))
        rc = all_reduce_small(g, data, count, type, op, e);
    else if (!rc)
        rc = all_reduce_staged(g, data, count, type, op, e);
    if (direct) shared_leave_direct(g, rc != ERR_NONE);
    return rc;
}

/* ---- broadcast ---- */
static err_t broadcast_direct(struct shared_group *g, void *data, size_t bytes, int root, struct error *e)
{
    err_t rc = shared_meet(g, e);

    if (rc) return rc;
    if (g->rank != root) copy(data, buffer_of(g, root), bytes);
    return shared_sync(g, e);
}

static err_t broadcast_staged(struct shared_group *g, char *data, size_t bytes, int root, struct error *e)
{
    size_t at = 0;
    err_t rc;

    do {
        size_t m = least(g->region->window_bytes, bytes - at);

        g->chunk++;
        if (g->rank == root && g->size > 1) copy(window(g, root, g->chunk), data + at, m);
        if ((rc = meet(g, at == 0, e))) return rc;
        if (g->rank != root) copy(data + at, window(g, root, g->chunk), m);
        at += m;
    } while (at < bytes);
    return ERR_NONE;
}

err_t shared_broadcast(struct shared_group *g, const char *name, void *data, size_t bytes, int root, struct error *e)
{
    bool direct = goes_direct(g, bytes);
    err_t rc = begin(g, CALL_BROADCAST, name, bytes, DTYPE_UINT8, 0, root, direct ? data : NULL, e);

    if (!rc) rc = direct ? broadcast_direct(g, data, bytes, root, e) : broadcast_staged(g, data, bytes, root, e);
    if (direct) shared_leave_direct(g, rc != ERR_NONE);
    return rc;
}
