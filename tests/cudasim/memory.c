/* SPDX-License-Identifier: MIT */
/*
 * Device memory. Addresses are handed out upwards with a red zone behind each block and are not used again before all
 * others were, so that a freed block stays recognisable. The inner pages of a freed block go back to the system: their
 * shadow reads SIM_UNMAPPED then, and the list of blocks still knows what they were.
 *
 * How much memory the device has (CUDASIM_MEMORY) is a count of live bytes, apart from addresses.
 */
#include "sim.h"
#include "order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 256, RED_ZONE = 256, PAGE = 4096, DEAD_KEPT = 1 << 16 };

struct block {
    uint64_t base, bytes, serial;
    bool is_live, is_kept;
};

uint8_t *sim_alias, *sim_shadow;
static struct block *blocks; /* by address */
static size_t n_blocks, capacity, n_dead;
static uint64_t next_address, used_bytes, serial;

static uint8_t *map(uint64_t address, int protection, int flags)
{
    void *wanted = (void *)(uintptr_t)address;
    void *p = mmap(wanted, SIM_BYTES, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    if (p == MAP_FAILED || (wanted && p != wanted))
        sim_die("cannot reserve %llu GiB of address space: is there a limit (ulimit -v)?",
                (unsigned long long)(SIM_BYTES >> 30));
    madvise(p, SIM_BYTES, MADV_DONTDUMP);
    return p;
}

void sim_memory_start(void)
{
    map(SIM_BASE, PROT_NONE, MAP_FIXED_NOREPLACE);
    next_address = SIM_BASE + PAGE;
    if (!sim_options.has_data) return;
    sim_alias = map(0, PROT_READ | PROT_WRITE, 0);
    sim_shadow = map(0, PROT_READ | PROT_WRITE, 0);
}

/* The last block that begins at or before the address, or -1. */
static ptrdiff_t block_before(uint64_t address)
{
    size_t low = 0, high = n_blocks;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return (ptrdiff_t)low - 1;
}

uint64_t sim_allocation(uint64_t address, uint64_t *bytes)
{
    ptrdiff_t i = block_before(address);
    if (i < 0 || !blocks[i].is_live || address - blocks[i].base >= blocks[i].bytes) return 0;
    if (bytes) *bytes = blocks[i].bytes;
    return blocks[i].base;
}

struct sim_words sim_where(uint64_t address)
{
    struct sim_words words;
    ptrdiff_t i = block_before(address);
    const struct block *b = i < 0 ? NULL : &blocks[i];
    if (!sim_is_device(address))
        snprintf(words.text, sizeof words.text, "not a device address");
    else if (!b)
        snprintf(words.text, sizeof words.text, "in no allocation");
    else {
        uint64_t offset = address - b->base;
        bool is_inside = offset < b->bytes;
        snprintf(words.text, sizeof words.text, "%llu bytes %s the %sblock of %llu bytes at 0x%llx (allocation %llu)",
                 (unsigned long long)(is_inside ? offset : offset - b->bytes), is_inside ? "into" : "past",
                 b->is_live ? "" : "freed ", (unsigned long long)b->bytes, (unsigned long long)b->base,
                 (unsigned long long)b->serial);
    }
    return words;
}

/* Bytes of address space that a block takes, with what separates it from the next. */
static uint64_t span(uint64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN + RED_ZONE; }

/* Forgets the older half of the freed blocks. */
static void forget_dead(void)
{
    size_t kept = 0, dead = 0, drop = n_dead / 2;
    for (size_t i = 0; i < n_blocks; i++) {
        bool is_dropped = !blocks[i].is_live && dead++ < drop;
        if (is_dropped && sim_shadow)
            memset(sim_shadow + (blocks[i].base - SIM_BASE), SIM_UNMAPPED,
                   blocks[i].bytes < PAGE ? blocks[i].bytes : 0);
        if (!is_dropped) blocks[kept++] = blocks[i];
    }
    n_dead -= n_blocks - kept;
    n_blocks = kept;
}

/* An address for a block of so many bytes, and the index in blocks at which it goes in; 0: no gap is large enough. */
static uint64_t find_address(uint64_t bytes, size_t *index)
{
    uint64_t end = SIM_BASE + SIM_BYTES;
    if (next_address + span(bytes) <= end) {
        *index = n_blocks;
        uint64_t address = next_address;
        next_address += span(bytes);
        return address;
    }
    /* all addresses were used once: take the first gap between live blocks */
    size_t kept = 0;
    for (size_t i = 0; i < n_blocks; i++)
        if (blocks[i].is_live) blocks[kept++] = blocks[i];
    n_blocks = kept;
    n_dead = 0;
    uint64_t from = SIM_BASE + PAGE;
    for (size_t i = 0; i <= n_blocks; i++) {
        uint64_t to = i < n_blocks ? blocks[i].base : end;
        if (from + span(bytes) <= to) {
            *index = i;
            return from;
        }
        from = i < n_blocks ? blocks[i].base + span(blocks[i].bytes) : to;
    }
    return 0;
}

uint64_t sim_device_allocate(uint64_t bytes)
{
    if (bytes > sim_options.memory_bytes || used_bytes + span(bytes) > sim_options.memory_bytes + RED_ZONE) return 0;
    if (n_dead > DEAD_KEPT) forget_dead();
    size_t index;
    uint64_t address = find_address(bytes, &index);
    if (!address) return 0;
    if (n_blocks == capacity) {
        capacity = capacity ? 2 * capacity : 256;
        blocks = sim_grow(blocks, capacity * sizeof *blocks);
    }
    memmove(&blocks[index + 1], &blocks[index], (n_blocks - index) * sizeof *blocks);
    blocks[index] = (struct block){.base = address, .bytes = bytes, .serial = ++serial, .is_live = true};
    n_blocks++;
    used_bytes += span(bytes) - RED_ZONE;
    if (sim_alias) {
        memset(sim_alias + (address - SIM_BASE), 0xff, bytes);
        memset(sim_shadow + (address - SIM_BASE), SIM_UNINITIALISED, bytes);
    }
    return address;
}

/* Gives the whole pages of the block back, in data and shadow. */
static void drop_pages(uint64_t address, uint64_t bytes)
{
    uint64_t from = (address - SIM_BASE + PAGE - 1) / PAGE * PAGE, to = (address - SIM_BASE + bytes) / PAGE * PAGE;
    if (from < to) {
        madvise(sim_alias + from, to - from, MADV_DONTNEED);
        madvise(sim_shadow + from, to - from, MADV_DONTNEED);
    }
}

void sim_device_release(uint64_t address)
{
    ptrdiff_t i = block_before(address);
    if (i < 0 || blocks[i].base != address || !blocks[i].is_live)
        sim_die("cudaFree of 0x%llx, which is not the start of a live allocation: it is %s",
                (unsigned long long)address, sim_where(address).text);
    struct block *b = &blocks[i];
    b->is_live = false;
    n_dead++;
    used_bytes -= span(b->bytes) - RED_ZONE;
    order_forget(b->base, b->bytes);
    ptx_forget(b->base, b->bytes);
    if (sim_alias) {
        memset(sim_shadow + (b->base - SIM_BASE), SIM_FREED, b->bytes);
        drop_pages(b->base, b->bytes);
    }
}

uint64_t sim_device_used(void) { return used_bytes; }

void sim_device_keep(uint64_t address)
{
    ptrdiff_t i = block_before(address);
    if (i >= 0) blocks[i].is_kept = true;
}

void sim_memory_leaks(void)
{
    uint64_t n = 0, bytes = 0;
    const struct block *first = NULL;
    for (size_t i = 0; i < n_blocks; i++)
        if (blocks[i].is_live && !blocks[i].is_kept) {
            first = first ? first : &blocks[i];
            n++;
            bytes += blocks[i].bytes;
        }
    if (n)
        sim_report(
            "leak: %llu device allocations, %llu bytes, are not freed at the end; the first is allocation %llu of "
            "%llu bytes",
            (unsigned long long)n, (unsigned long long)bytes, (unsigned long long)first->serial,
            (unsigned long long)first->bytes);
}

uint64_t sim_check(const void *device_pointer, uint64_t bytes, const char *who)
{
    uint64_t address = (uint64_t)(uintptr_t)device_pointer, size, base = sim_allocation(address, &size);
    if (!base) sim_die("%s: %p is %s", who, device_pointer, sim_where(address).text);
    if (bytes > base + size - address)
        sim_die("%s: %llu bytes at %p run %llu bytes past the block of %llu bytes at 0x%llx", who,
                (unsigned long long)bytes, device_pointer, (unsigned long long)(address + bytes - base - size),
                (unsigned long long)size, (unsigned long long)base);
    return address;
}

void *sim_touch(struct sim_access *access, const void *device_pointer, uint64_t bytes, bool reads, bool writes,
                const char *who)
{
    if (!bytes) return NULL;
    uint64_t address = sim_check(device_pointer, bytes, who);
    if (!sim_alias) return NULL;
    uint8_t *shadow = sim_shadow + (address - SIM_BASE);
    const uint8_t *hole = reads ? memchr(shadow, SIM_UNINITIALISED, bytes) : NULL;
    if (hole) {
        sim_report("%s reads uninitialised device memory: byte %llu of %llu is %s", who,
                   (unsigned long long)(hole - shadow), (unsigned long long)bytes,
                   sim_where(address + (uint64_t)(hole - shadow)).text);
        memset(shadow, SIM_INITIALISED, bytes);
    }
    if (reads) sim_access_add(access, address, bytes, false);
    if (writes) {
        sim_access_add(access, address, bytes, true);
        memset(shadow, SIM_INITIALISED, bytes);
    }
    return sim_alias + (address - SIM_BASE);
}
