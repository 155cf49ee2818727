/* SPDX-License-Identifier: MIT */
/* See order.h. */
#include "order.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GRANULE = 64, READS = 2 };

/* Operations by number, 0 none; from and to bound the bytes that were touched, by offset in the granule. */
struct granule {
    uint32_t write, read[READS];
    uint8_t write_from, write_to, read_from[READS], read_to[READS];
};
struct operation {
    const char *name;
    uint64_t position;
    int stream;
};

static struct granule *granules;
static struct operation *operations;
static uint32_t n_operations, capacity;
static const char **names;
static size_t n_names;

void order_start(void)
{
    if (!sim_options.has_data) return;
    size_t bytes = SIM_BYTES / GRANULE * sizeof *granules;
    granules = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (granules == MAP_FAILED)
        sim_die("cannot reserve address space for the order of accesses: is there a limit (ulimit -v)?");
    madvise(granules, bytes, MADV_DONTDUMP);
}

void order_join(struct order_clock *into, const struct order_clock *from)
{
    for (int i = 0; i < SIM_STREAMS; i++)
        if (from->at[i] > into->at[i]) into->at[i] = from->at[i];
}

/* The same text, once in memory. There are as many names as kernels and calls: a list will do. */
static const char *intern(const char *name)
{
    for (size_t i = n_names; i-- > 0;)
        if (!strcmp(names[i], name)) return names[i];
    names = sim_grow(names, (n_names + 1) * sizeof *names);
    char *copy = sim_alloc(strlen(name) + 1);
    strcpy(copy, name);
    return names[n_names++] = copy;
}

struct sim_access order_begin(const char *name, int stream, const struct order_clock *clock)
{
    if (n_operations + 1 >= capacity) {
        capacity = capacity ? 2 * capacity : 4096;
        operations = sim_grow(operations, capacity * sizeof *operations);
    }
    uint32_t id = ++n_operations;
    operations[id] = (struct operation){.name = intern(name), .position = clock->at[stream], .stream = stream};
    return (struct sim_access){.name = operations[id].name, .clock = clock->at, .id = id};
}

static bool is_before(uint32_t id, const uint64_t *clock)
{
    return !id || operations[id].position <= clock[operations[id].stream];
}

static void conflict(struct sim_access *access, uint32_t other, bool other_wrote, bool is_write, uint64_t address)
{
    if (other == access->id || is_before(other, access->clock) || access->reported_id == other) return;
    access->reported_id = other;
    sim_report(
        "stream hazard: %s on stream %d %s 0x%llx (%s), which %s on stream %d %s; no event and no wait of the host "
        "orders the two",
        access->name, operations[access->id].stream, is_write ? "writes" : "reads", (unsigned long long)address,
        sim_where(address).text, operations[other].name, operations[other].stream, other_wrote ? "wrote" : "read");
}

static bool overlap(uint8_t from, uint8_t to, uint8_t other_from, uint8_t other_to)
{
    return from < other_to && other_from < to;
}

static void add_write(struct sim_access *access, struct granule *g, uint64_t address, uint8_t from, uint8_t to)
{
    if (g->write == access->id) {
        g->write_from = from < g->write_from ? from : g->write_from;
        g->write_to = to > g->write_to ? to : g->write_to;
    } else {
        if (g->write && overlap(from, to, g->write_from, g->write_to)) conflict(access, g->write, true, true, address);
        g->write = access->id;
        g->write_from = from;
        g->write_to = to;
    }
    for (int i = 0; i < READS; i++)
        if (g->read[i] && g->read[i] != access->id && overlap(from, to, g->read_from[i], g->read_to[i]))
            conflict(access, g->read[i], false, true, address);
}

static void add_read(struct sim_access *access, struct granule *g, uint64_t address, uint8_t from, uint8_t to)
{
    if (g->write && g->write != access->id && overlap(from, to, g->write_from, g->write_to))
        conflict(access, g->write, true, false, address);
    /* in place of: itself, a read that comes before this one anyway, the older one */
    int slot = READS - 1;
    for (int i = 0; i < READS; i++)
        if (g->read[i] == access->id) {
            g->read_from[i] = from < g->read_from[i] ? from : g->read_from[i];
            g->read_to[i] = to > g->read_to[i] ? to : g->read_to[i];
            return;
        }
    for (int i = 0; i < READS; i++)
        if (is_before(g->read[i], access->clock)) {
            slot = i;
            break;
        }
    g->read[slot] = access->id;
    g->read_from[slot] = from;
    g->read_to[slot] = to;
}

void sim_access_add(struct sim_access *access, uint64_t address, uint64_t bytes, bool is_write)
{
    if (!access || !access->id || !granules) return;
    uint64_t offset = address - SIM_BASE, end = offset + bytes;
    while (offset < end) {
        uint64_t start = offset / GRANULE * GRANULE, stop = start + GRANULE < end ? start + GRANULE : end;
        (is_write ? add_write : add_read)(access, &granules[offset / GRANULE], SIM_BASE + offset,
                                          (uint8_t)(offset - start), (uint8_t)(stop - start));
        offset = stop;
    }
}

const char *order_user(uint64_t address, uint64_t bytes, const struct order_clock *clock)
{
    if (!granules) return NULL;
    for (uint64_t i = (address - SIM_BASE) / GRANULE; i < (address - SIM_BASE + bytes + GRANULE - 1) / GRANULE; i++) {
        const struct granule *g = &granules[i];
        uint32_t ids[] = {g->write, g->read[0], g->read[1]};
        for (int k = 0; k < 1 + READS; k++)
            if (!is_before(ids[k], clock->at)) return operations[ids[k]].name;
    }
    return NULL;
}

void order_forget(uint64_t address, uint64_t bytes)
{
    if (!granules) return;
    uint64_t from = (address - SIM_BASE) / GRANULE, to = (address - SIM_BASE + bytes + GRANULE - 1) / GRANULE;
    uintptr_t page = 4096, start = ((uintptr_t)&granules[from] + page - 1) / page * page;
    uintptr_t stop = (uintptr_t)&granules[to] / page * page;
    if (start >= stop) {
        memset(&granules[from], 0, (to - from) * sizeof *granules);
        return;
    }
    memset(&granules[from], 0, start - (uintptr_t)&granules[from]);
    madvise((void *)start, stop - start, MADV_DONTNEED);
    memset((void *)stop, 0, (uintptr_t)&granules[to] - stop);
}
