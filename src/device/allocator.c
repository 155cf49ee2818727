/* SPDX-License-Identifier: MIT */
/* Segments and blocks; see allocator.h. Blocks of a segment form a list in address order, so that neighbours merge;
 * those handed out are found by their address in a table. */
#include "device/allocator.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"

struct block {
    char *address;
    size_t bytes;           /* of the block, a multiple of ALLOCATOR_ALIGN */
    size_t requested_bytes; /* what the caller asked for; 0 when free */
    enum memory_kind kind;
    const char *label; /* borrowed */
    bool is_free, is_zero;
    struct segment *segment;
    struct block *previous, *next; /* neighbours in the segment */
    struct block *chain;           /* handed out, in the same row of the table */
};

struct segment {
    char *address;
    size_t bytes;
    bool is_small;
    struct stream *owner; /* all its blocks belong to this stream: segments with one owner are a pool */
    struct block *first;
    struct segment *next;
};

enum { TABLE_BITS = 12 };

struct allocator {
    struct device *device; /* borrowed */
    int64_t limit_bytes;
    struct segment *segments;
    struct block *table[1 << TABLE_BITS]; /* blocks handed out, by row_of their address */
    struct memory_stats stats;
    long fault_countdown; /* armed by tests alone; -1 = off */
    bool fault_fired;
};

err_t allocator_create(struct allocator **out, struct device *d, int64_t limit_bytes, struct error *e)
{
    struct allocator *a = mem_zalloc(1, sizeof *a);

    *out = a;
    if (!a) return FAIL(e, ERR_MEMORY, "out of memory while opening the device");
    a->device = d;
    a->limit_bytes = limit_bytes;
    a->fault_countdown = -1;
    return ERR_NONE;
}

void allocator_fault_arm(struct allocator *a, long n)
{
    a->fault_countdown = n;
    a->fault_fired = false;
}

bool allocator_fault_fired(const struct allocator *a) { return a->fault_fired; }

static bool fault_hits(struct allocator *a)
{
    if (a->fault_countdown < 0 || a->fault_countdown-- > 0) return false;
    return a->fault_fired = true;
}

static void release_segment(struct allocator *a, struct segment *s)
{
    struct block *b, *next;

    for (b = s->first; b; b = next) {
        next = b->next;
        mem_free(b);
    }
    a->stats.reserved_bytes -= (int64_t)s->bytes;
    a->device->ops->segment_free(a->device, s->address, s->bytes);
    mem_free(s);
}

void allocator_destroy(struct allocator *a)
{
    if (!a) return;
    for (struct segment *s = a->segments, *next; s; s = next) {
        for (struct block *b = s->first; b; b = b->next)
            if (!b->is_free)
                BUG("%zu bytes of device memory for \"%s\" were never freed", b->requested_bytes, b->label);
        next = s->next;
        release_segment(a, s);
    }
    mem_free(a);
}

int64_t allocator_trim(struct allocator *a)
{
    int64_t before = a->stats.reserved_bytes;
    struct segment **link = &a->segments, *s;

    while ((s = *link)) {
        if (s->first->is_free && !s->first->next) {
            *link = s->next;
            release_segment(a, s);
        } else {
            link = &s->next;
        }
    }
    return before - a->stats.reserved_bytes;
}

static struct block *best_fit(struct allocator *a, size_t bytes, bool is_small, const struct stream *owner)
{
    struct block *best = NULL;

    for (struct segment *s = a->segments; s; s = s->next) {
        if (s->is_small != is_small || s->owner != owner) continue;
        for (struct block *b = s->first; b; b = b->next)
            if (b->is_free && b->bytes >= bytes && (!best || b->bytes < best->bytes)) best = b;
    }
    return best;
}

static void raise_to(int64_t *highest, int64_t value)
{
    if (value > *highest) *highest = value;
}

/* false: the device has no such segment, and e says why; or *lacks_host: there is no memory for the records of one. */
static bool add_segment(struct allocator *a, size_t bytes, bool is_small, struct stream *owner, bool *lacks_host,
                        struct error *e)
{
    struct segment *s = mem_zalloc(1, sizeof *s);
    struct block *b = mem_zalloc(1, sizeof *b);
    void *address = NULL;

    *lacks_host = false;
    if (a->limit_bytes && a->stats.reserved_bytes + (int64_t)bytes > a->limit_bytes) {
        FAIL(e, ERR_MEMORY, "the limit is %.1f MiB", (double)a->limit_bytes / 0x1p20);
        goto failed;
    }
    *lacks_host = !s || !b;
    if (*lacks_host || a->device->ops->segment_alloc(a->device, bytes, &address, e)) goto failed;
    *s = (struct segment){
        .address = address, .bytes = bytes, .is_small = is_small, .owner = owner, .first = b, .next = a->segments};
    *b = (struct block){
        .address = address, .bytes = bytes, .is_free = true, .is_zero = a->device->ops->gives_zeros, .segment = s};
    a->segments = s;
    a->stats.reserved_bytes += (int64_t)bytes;
    raise_to(&a->stats.reserved_peak_bytes, a->stats.reserved_bytes);
    raise_to(&a->stats.reserved_highest_bytes, a->stats.reserved_bytes);
    return true;
failed:
    mem_free(s);
    mem_free(b);
    return false;
}

/* Cuts b to `bytes` if the rest is worth keeping; a failure to do so only wastes the rest. */
static void split(struct block *b, size_t bytes, size_t least_rest)
{
    struct block *rest;

    if (b->bytes - bytes < least_rest || !(rest = mem_zalloc(1, sizeof *rest))) return;
    *rest = (struct block){.address = b->address + bytes,
                           .bytes = b->bytes - bytes,
                           .is_free = true,
                           .is_zero = b->is_zero,
                           .segment = b->segment,
                           .previous = b,
                           .next = b->next};
    if (b->next) b->next->previous = rest;
    b->next = rest;
    b->bytes = bytes;
}

static void explain(const struct allocator *a, size_t bytes, const char *label, const char *reason, struct error *e)
{
    struct str table = {0};

    for (int k = 0; k < MEMORY_KIND_COUNT; k++)
        if (a->stats.kind_bytes[k])
            str_addf(&table, "\n  %-12s %10.1f MiB", memory_kind_name((enum memory_kind)k),
                     (double)a->stats.kind_bytes[k] / 0x1p20);
    FAIL(e, ERR_MEMORY,
         "device %s is out of memory: %.1f MiB asked for \"%s\"; %.1f MiB active, %.1f MiB reserved%s%s. Held by:%s\n"
         "  Use a smaller training.local_batch_size or training.seq_len, or more data_parallel_shard_degree",
         a->device->properties.name, (double)bytes / 0x1p20, label, (double)a->stats.active_bytes / 0x1p20,
         (double)a->stats.reserved_bytes / 0x1p20, reason[0] ? ": " : "", reason,
         table.length ? table.text : " nothing");
    str_release(&table);
}

/* ---- blocks handed out, by address ---- */
static size_t row_of(const void *p)
{
    return (size_t)(((uint64_t)(uintptr_t)p / ALLOCATOR_ALIGN * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - TABLE_BITS));
}

static void enter(struct allocator *a, struct block *b)
{
    struct block **row = &a->table[row_of(b->address)];

    b->chain = *row;
    *row = b;
}

static struct block **find(struct allocator *a, const void *p)
{
    struct block **link = &a->table[row_of(p)];

    while (*link && (*link)->address != (const char *)p) link = &(*link)->chain;
    if (!*link) BUG("%p is not a block of this device, or was freed before", p);
    return link;
}

/* A free block that fits, from the pool or the device; when the device has no more, what is cached is given back first.
 * NULL: see add_segment. */
static struct block *find_room(struct allocator *a, size_t rounded, struct stream *owner, bool *lacks_host,
                               struct error *e)
{
    bool is_small = rounded <= ALLOCATOR_SMALL;
    size_t segment = is_small ? ALLOCATOR_SMALL_SEGMENT : rounded;
    struct block *b = best_fit(a, rounded, is_small, owner);

    if (!b && add_segment(a, segment, is_small, owner, lacks_host, e)) b = best_fit(a, rounded, is_small, owner);
    if (b || *lacks_host || a->device->ops->synchronize(a->device, e) || allocator_trim(a) == 0) return b;
    if (!add_segment(a, segment, is_small, owner, lacks_host, e)) return NULL;
    a->stats.alloc_retries++;
    return best_fit(a, rounded, is_small, owner);
}

err_t allocator_alloc(struct allocator *a, size_t bytes, enum memory_kind kind, const char *label, struct stream *s,
                      void **out, bool *is_zero, struct error *e)
{
    size_t rounded = (bytes + ALLOCATOR_ALIGN - 1) & ~(size_t)(ALLOCATOR_ALIGN - 1);
    struct error reason = {0};
    bool lacks_host = false;
    struct block *b;

    *out = NULL;
    *is_zero = true;
    if (!bytes) return ERR_NONE;
    if (bytes > ALLOCATOR_MAX_BYTES)
        return FAIL(e, ERR_MEMORY,
                    "%.3g GiB for \"%s\" are more than any device has: use a smaller training.local_batch_size or "
                    "training.seq_len",
                    (double)bytes / 0x1p30, label);
    if (fault_hits(a)) {
        FAIL(&reason, ERR_MEMORY, "planted fault");
        goto failed;
    }
    b = find_room(a, rounded, a->device->properties.is_immediate ? NULL : s, &lacks_host, &reason);
    if (!b && lacks_host)
        return FAIL(e, ERR_MEMORY, "out of memory on the host, for the records of a block of the device's (\"%s\")",
                    label);
    if (!b) goto failed;
    split(b, rounded, b->segment->is_small ? ALLOCATOR_ALIGN : ALLOCATOR_SPLIT_REST);
    enter(a, b);
    *is_zero = b->is_zero;
    b->is_free = b->is_zero = false;
    b->requested_bytes = bytes;
    b->kind = kind;
    b->label = label;
    a->stats.active_bytes += (int64_t)b->bytes;
    a->stats.kind_bytes[kind] += (int64_t)b->bytes;
    raise_to(&a->stats.active_peak_bytes, a->stats.active_bytes);
    raise_to(&a->stats.active_highest_bytes, a->stats.active_bytes);
    raise_to(&a->stats.kind_highest_bytes[kind], a->stats.kind_bytes[kind]);
    *out = b->address;
    return ERR_NONE;
failed:
    a->stats.ooms++;
    explain(a, bytes, label, reason.message, e);
    return ERR_MEMORY;
}

/* Takes the right neighbour into b when both are free. */
static void merge_right(struct block *b)
{
    struct block *right = b->next;

    if (!right || !right->is_free || !b->is_free) return;
    b->bytes += right->bytes;
    b->is_zero &= right->is_zero;
    b->next = right->next;
    if (right->next) right->next->previous = b;
    mem_free(right);
}

struct stream *allocator_owner(struct allocator *a, const void *p) { return (*find(a, p))->segment->owner; }

void allocator_free(struct allocator *a, void *p)
{
    struct block **link, *b;

    if (!p) return;
    link = find(a, p);
    b = *link;
    *link = b->chain;
    a->stats.active_bytes -= (int64_t)b->bytes;
    a->stats.kind_bytes[b->kind] -= (int64_t)b->bytes;
    b->is_free = true;
    b->requested_bytes = 0;
    merge_right(b);
    if (b->previous) merge_right(b->previous);
}

void allocator_stats(const struct allocator *a, struct memory_stats *out) { *out = a->stats; }

void allocator_reset_peaks(struct allocator *a)
{
    a->stats.active_peak_bytes = a->stats.active_bytes;
    a->stats.reserved_peak_bytes = a->stats.reserved_bytes;
}
