/* SPDX-License-Identifier: MIT */
/* A job of one real rank; see fake.h. */
#include "comm/fake.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

static err_t create(const struct comm *like, int size, int rank, struct comm **out, struct error *e)
{
    struct comm *c = mem_zalloc(1, sizeof *c);

    if (!c) return FAIL(e, ERR_MEMORY, "out of memory for a communicator");
    *c = *like;
    c->size = size;
    c->rank = rank;
    *out = c;
    return ERR_NONE;
}

static void fake_destroy(struct comm *c) { mem_free(c); }

static err_t fake_split(struct comm *c, int colour, int key, struct comm **out, struct error *e)
{
    (void)colour, (void)key;
    return create(c, c->size, c->rank, out, e);
}

static err_t fake_split_ranks(struct comm *c, const int *ranks, int n, struct comm **out, struct error *e)
{
    int index = 0;

    while (ranks[index] != c->rank) index++;
    return create(c, n, index, out, e);
}

static err_t fake_barrier(struct comm *c, const char *name, struct error *e)
{
    (void)c, (void)name, (void)e;
    return ERR_NONE;
}

static err_t fake_all_gather(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                             enum dtype type, struct stream *stream, struct error *e)
{
    size_t bytes = count * dtype_bytes(type);

    (void)name, (void)stream, (void)e;
    for (int q = 0; q < c->size && bytes; q++) {
        char *slot = (char *)recv + (size_t)q * bytes;

        if (slot != send) memcpy(slot, send, bytes);
    }
    return ERR_NONE;
}

static err_t fake_all_reduce(struct comm *c, const char *name, void *data, size_t count, enum dtype type,
                             enum comm_operator op, struct stream *stream, struct error *e)
{
    (void)name, (void)stream, (void)e;
    if (op != COMM_SUM || c->size == 1) return ERR_NONE;
    for (size_t i = 0; i < count; i++) {
        if (type == DTYPE_FLOAT32) ((float *)data)[i] *= (float)c->size;
        if (type == DTYPE_FLOAT64) ((double *)data)[i] *= c->size;
        if (type == DTYPE_INT64) ((int64_t *)data)[i] = (int64_t)((uint64_t)((int64_t *)data)[i] * (uint64_t)c->size);
    }
    return ERR_NONE;
}

static err_t fake_reduce_scatter(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                                 enum dtype type, enum comm_operator op, struct stream *stream, struct error *e)
{
    size_t bytes = count * dtype_bytes(type);

    if (bytes) memcpy(recv, (const char *)send + (size_t)c->rank * bytes, bytes);
    return fake_all_reduce(c, name, recv, count, type, op, stream, e);
}

static err_t fake_broadcast(struct comm *c, const char *name, void *data, size_t bytes, int root, struct stream *stream,
                            struct error *e)
{
    (void)c, (void)name, (void)data, (void)bytes, (void)root, (void)stream, (void)e;
    return ERR_NONE;
}

/* There is nobody to tell: the failing call's error ends the dry run. */
static void fake_abort(struct comm *c, const char *reason) { (void)c, (void)reason; }

static void fake_set_timeout(struct comm *c, double seconds) { (void)c, (void)seconds; }

static err_t dry_all_gather(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                            enum dtype type, struct stream *stream, struct error *e)
{
    (void)c, (void)name, (void)send, (void)recv, (void)count, (void)type, (void)stream, (void)e;
    return ERR_NONE;
}

static err_t dry_reduce_scatter(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                                enum dtype type, enum comm_operator op, struct stream *stream, struct error *e)
{
    (void)c, (void)name, (void)send, (void)recv, (void)count, (void)type, (void)op, (void)stream, (void)e;
    return ERR_NONE;
}

static err_t dry_all_reduce(struct comm *c, const char *name, void *data, size_t count, enum dtype type,
                            enum comm_operator op, struct stream *stream, struct error *e)
{
    (void)c, (void)name, (void)data, (void)count, (void)type, (void)op, (void)stream, (void)e;
    return ERR_NONE;
}

static const struct comm_ops fake_ops = {
    .name = "fake",
    .destroy = fake_destroy,
    .split = fake_split,
    .barrier = fake_barrier,
    .all_gather = fake_all_gather,
    .reduce_scatter = fake_reduce_scatter,
    .all_reduce = fake_all_reduce,
    .broadcast = fake_broadcast,
    .abort = fake_abort,
    .set_timeout = fake_set_timeout,
    .split_ranks = fake_split_ranks,
};

static const struct comm_ops dry_ops = {
    .name = "dry",
    .destroy = fake_destroy,
    .split = fake_split,
    .barrier = fake_barrier,
    .all_gather = dry_all_gather,
    .reduce_scatter = dry_reduce_scatter,
    .all_reduce = dry_all_reduce,
    .broadcast = fake_broadcast,
    .abort = fake_abort,
    .set_timeout = fake_set_timeout,
    .split_ranks = fake_split_ranks,
};

static err_t create_world(const struct comm_ops *ops, int size, int rank, struct comm **out, struct error *e)
{
    struct comm like = {.ops = ops, .world_rank = rank, .local_size = 1, .n_hosts = 1};

    *out = NULL;
    if (size < 1 || rank < 0 || rank >= size)
        return FAIL(e, ERR_COMM, "the %s communicator cannot be rank %d of %d; the rank must be in [0, size)",
                    ops->name, rank, size);
    return create(&like, size, rank, out, e);
}

err_t comm_fake_create(int size, int rank, struct comm **out, struct error *e)
{
    return create_world(&fake_ops, size, rank, out, e);
}

err_t comm_dry_create(int size, int rank, struct comm **out, struct error *e)
{
    return create_world(&dry_ops, size, rank, out, e);
}
