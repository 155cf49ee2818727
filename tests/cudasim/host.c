/* SPDX-License-Identifier: MIT */
/* See host.h. */
#include "host.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

struct pinned {
    uint64_t base, bytes, device_writes;
    bool is_ours, is_live;
};

static struct pinned *pinned;
static size_t n_pinned;

static uint64_t mapped_bytes(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE + PAGE; }

static struct pinned *live_at(uint64_t address)
{
    for (size_t i = n_pinned; i-- > 0;)
        if (pinned[i].is_live && address - pinned[i].base < pinned[i].bytes) return &pinned[i];
    return NULL;
}

static void add(struct pinned block)
{
    /* the freed ones are kept for reports as long as they are few */
    for (size_t i = 0; i < n_pinned && n_pinned > 4096; i++)
        if (!pinned[i].is_live) {
            if (pinned[i].is_ours) munmap((void *)(uintptr_t)pinned[i].base, mapped_bytes(pinned[i].bytes));
            pinned[i] = block;
            return;
        }
    pinned = sim_grow(pinned, (n_pinned + 1) * sizeof *pinned);
    pinned[n_pinned++] = block;
}

void *host_allocate(uint64_t bytes)
{
    uint64_t whole = mapped_bytes(bytes);
    uint8_t *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (sim_options.has_data) memset(p, 0xff, bytes);
    mprotect(p + whole - PAGE, PAGE, PROT_NONE);
    add((struct pinned){.base = (uint64_t)(uintptr_t)p, .bytes = bytes, .is_ours = true, .is_live = true});
    return p;
}

bool host_release(void *p)
{
    struct pinned *block = live_at((uint64_t)(uintptr_t)p);
    if (!block || !block->is_ours || block->base != (uint64_t)(uintptr_t)p) return false;
    block->is_live = false;
    uint64_t whole = mapped_bytes(block->bytes);
    /* pages without memory, so that a touch is seen */
    mmap(p, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return true;
}

bool host_register(void *p, uint64_t bytes)
{
    uint64_t from = (uint64_t)(uintptr_t)p;
    for (size_t i = 0; i < n_pinned; i++)
        if (pinned[i].is_live && pinned[i].base < from + bytes && from < pinned[i].base + pinned[i].bytes) return false;
    add((struct pinned){.base = from, .bytes = bytes, .is_live = true});
    return true;
}

bool host_unregister(void *p)
{
    struct pinned *block = live_at((uint64_t)(uintptr_t)p);
    if (!block || block->is_ours || block->base != (uint64_t)(uintptr_t)p) return false;
    *block = pinned[--n_pinned];
    return true;
}

bool host_is_pinned(const void *p, uint64_t bytes)
{
    const struct pinned *block = live_at((uint64_t)(uintptr_t)p);
    return block && (uint64_t)(uintptr_t)p + bytes <= block->base + block->bytes;
}

uint64_t host_bytes(const void *p)
{
    const struct pinned *block = live_at((uint64_t)(uintptr_t)p);
    return block && block->base == (uint64_t)(uintptr_t)p ? block->bytes : 0;
}

bool host_where(uint64_t address, struct sim_words *words)
{
    for (size_t i = n_pinned; i-- > 0;) {
        const struct pinned *b = &pinned[i];
        uint64_t offset = address - b->base;
        if (!b->is_ours || offset >= mapped_bytes(b->bytes)) continue;
        snprintf(words->text, sizeof words->text, "%llu bytes %s the %spinned block of %llu bytes at 0x%llx",
                 (unsigned long long)(offset < b->bytes ? offset : offset - b->bytes),
                 offset < b->bytes ? "into" : "past", b->is_live ? "" : "freed ", (unsigned long long)b->bytes,
                 (unsigned long long)b->base);
        return true;
    }
    return false;
}

void host_leaks(void)
{
    uint64_t n = 0, bytes = 0;
    for (size_t i = 0; i < n_pinned; i++)
        if (pinned[i].is_live) {
            n++;
            bytes += pinned[i].bytes;
        }
    if (n)
        sim_report("leak: %llu blocks of pinned host memory, %llu bytes, are not freed at the end",
                   (unsigned long long)n, (unsigned long long)bytes);
}

uint64_t host_device_writes(const void *p)
{
    const struct pinned *block = live_at((uint64_t)(uintptr_t)p);
    return block ? block->device_writes : 0;
}

void host_device_wrote(const void *p)
{
    struct pinned *block = live_at((uint64_t)(uintptr_t)p);
    if (block) block->device_writes++;
}

uint64_t host_hash(uint64_t before, const void *p, uint64_t bytes)
{
    const uint8_t *data = p;
    uint64_t hash = before ^ bytes, word = 0, i = 0;
    for (; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, data + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    word = 0;
    memcpy(&word, data + i, bytes - i);
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}
