/* SPDX-License-Identifier: MIT */
/* Recording decorator; see record.h. */
#include "comm/record.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct recording {
    struct comm base;
    struct comm *inner; /* owned */
    struct comm_record *record;
};

static const struct comm_ops ops;

static struct recording *of(struct comm *c) { return (struct recording *)c; }

void comm_record_clear(struct comm_record *r) { r->n = 0; }

void comm_record_release(struct comm_record *r)
{
    mem_free(r->entries);
    *r = (struct comm_record){0};
}

static bool matches(const struct comm_record_entry *entry, enum call_kind kind, const char *prefix)
{
    return entry->kind == kind && str_starts(entry->name, prefix);
}

int comm_record_count(const struct comm_record *r, enum call_kind kind, const char *prefix)
{
    int n = 0;

    for (int i = 0; i < r->n; i++) n += matches(&r->entries[i], kind, prefix);
    return n;
}

size_t comm_record_bytes(const struct comm_record *r, enum call_kind kind, const char *prefix)
{
    size_t bytes = 0;

    for (int i = 0; i < r->n; i++)
        if (matches(&r->entries[i], kind, prefix)) bytes += r->entries[i].bytes;
    return bytes;
}

static void add(struct comm *c, struct comm_record_entry entry, const char *name)
{
    struct comm_record *r = of(c)->record;

    if (r->n == r->capacity) {
        int capacity = r->capacity ? 2 * r->capacity : 64;
        struct comm_record_entry *grown = mem_resize(r->entries, (size_t)capacity, sizeof *grown);

        if (!grown) return; /* the list is for tests: a missing entry fails them */
        r->entries = grown;
        r->capacity = capacity;
    }
    entry.size = c->size;
    snprintf(entry.name, sizeof entry.name, "%s", name);
    r->entries[r->n++] = entry;
}

static err_t wrap(struct comm *parent, err_t rc, struct comm *inner, struct comm **out, struct error *e)
{
    if (!rc) rc = comm_record_create(inner, of(parent)->record, out, e);
    if (!rc) add(*out, (struct comm_record_entry){.kind = CALL_NONE}, "split");
    return rc;
}

static err_t record_split(struct comm *c, int colour, int key, struct comm **out, struct error *e)
{
    struct comm *inner = NULL;
    err_t rc = of(c)->inner->ops->split(of(c)->inner, colour, key, &inner, e);

    return wrap(c, rc, inner, out, e);
}

static err_t record_split_ranks(struct comm *c, const int *ranks, int n, struct comm **out, struct error *e)
{
    struct comm *inner = NULL;
    err_t rc = comm_split_ranks(of(c)->inner, ranks, n, &inner, e);

    return wrap(c, rc, inner, out, e);
}

static void record_destroy(struct comm *c)
{
    comm_destroy(of(c)->inner);
    mem_free(c);
}

static err_t record_barrier(struct comm *c, const char *name, struct error *e)
{
    err_t rc = of(c)->inner->ops->barrier(of(c)->inner, name, e);

    add(c, (struct comm_record_entry){.kind = CALL_BARRIER, .result = rc}, name);
    return rc;
}

static err_t record_all_gather(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                               enum dtype type, struct stream *stream, struct error *e)
{
    err_t rc = of(c)->inner->ops->all_gather(of(c)->inner, name, send, recv, count, type, stream, e);
    size_t bytes = count * dtype_bytes(type) * (size_t)(c->size - 1);

    add(c,
        (struct comm_record_entry){.kind = CALL_ALL_GATHER, .count = count, .type = type, .bytes = bytes, .result = rc},
        name);
    return rc;
}

static err_t record_reduce_scatter(struct comm *c, const char *name, const void *send, void *recv, size_t count,
                                   enum dtype type, enum comm_operator op, struct stream *stream, struct error *e)
{
    err_t rc = of(c)->inner->ops->reduce_scatter(of(c)->inner, name, send, recv, count, type, op, stream, e);
    struct comm_record_entry entry = {
        .kind = CALL_REDUCE_SCATTER, .count = count, .type = type, .op = op, .result = rc};

    entry.bytes = count * dtype_bytes(type) * (size_t)(c->size - 1);
    add(c, entry, name);
    return rc;
}

static err_t record_all_reduce(struct comm *c, const char *name, void *data, size_t count, enum dtype type,
                               enum comm_operator op, struct stream *stream, struct error *e)
{
    err_t rc = of(c)->inner->ops->all_reduce(of(c)->inner, name, data, count, type, op, stream, e);
    struct comm_record_entry entry = {.kind = CALL_ALL_REDUCE, .count = count, .type = type, .op = op, .result = rc};

    entry.bytes = 2 * count * dtype_bytes(type) * (size_t)(c->size - 1) / (size_t)c->size;
    add(c, entry, name);
    return rc;
}

static err_t record_broadcast(struct comm *c, const char *name, void *data, size_t bytes, int root,
                              struct stream *stream, struct error *e)
{
    err_t rc = of(c)->inner->ops->broadcast(of(c)->inner, name, data, bytes, root, stream, e);
    struct comm_record_entry entry = {
        .kind = CALL_BROADCAST, .count = bytes, .type = DTYPE_UINT8, .root = root, .result = rc};

    entry.bytes = c->rank == root && c->size > 1 ? bytes : 0;
    add(c, entry, name);
    return rc;
}

static void record_abort(struct comm *c, const char *reason) { comm_abort(of(c)->inner, reason); }

static void record_set_timeout(struct comm *c, double seconds) { comm_set_timeout(of(c)->inner, seconds); }

static const struct comm_ops ops = {
    .name = "record",
    .destroy = record_destroy,
    .split = record_split,
    .barrier = record_barrier,
    .all_gather = record_all_gather,
    .reduce_scatter = record_reduce_scatter,
    .all_reduce = record_all_reduce,
    .broadcast = record_broadcast,
    .abort = record_abort,
    .set_timeout = record_set_timeout,
    .split_ranks = record_split_ranks,
};

err_t comm_record_create(struct comm *inner, struct comm_record *record, struct comm **out, struct error *e)
{
    struct recording *r = mem_zalloc(1, sizeof *r);

    *out = NULL;
    if (!r) {
        comm_destroy(inner);
        return FAIL(e, ERR_MEMORY, "out of memory for a communicator");
    }
    r->base = *inner;
    r->base.ops = &ops;
    r->inner = inner;
    r->record = record;
    *out = &r->base;
    return ERR_NONE;
}
