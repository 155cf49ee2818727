/* SPDX-License-Identifier: MIT */
/* Host allocation with a fault point for tests, and arenas; see mem.h. */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Armed by tests alone; -1 = off. The one process-wide variable of this layer, because malloc is process-wide too. */
static atomic_long fault_countdown = -1;
static atomic_int fault_fired;

static int fault_hits(void)
{
    if (atomic_load_explicit(&fault_countdown, memory_order_relaxed) < 0) return 0;
    if (atomic_fetch_sub(&fault_countdown, 1) != 0) return 0;
    atomic_store(&fault_fired, 1);
    return 1;
}

void mem_fault_arm(long n)
{
    atomic_store(&fault_fired, 0);
    atomic_store(&fault_countdown, n);
}

int mem_fault_fired(void) { return atomic_load(&fault_fired); }

void *mem_alloc(size_t bytes) { return fault_hits() ? NULL : malloc(bytes ? bytes : 1); }

void *mem_zalloc(size_t count, size_t bytes)
{
    if (fault_hits()) return NULL;
    return count && bytes ? calloc(count, bytes) : calloc(1, 1);
}

void *mem_resize(void *old, size_t count, size_t bytes)
{
    size_t total;

    if (__builtin_mul_overflow(count, bytes, &total) || fault_hits()) return NULL;
    return realloc(old, total ? total : 1);
}

void *mem_aligned(size_t alignment, size_t bytes)
{
    void *p = NULL;

    if (fault_hits()) return NULL;
    return posix_memalign(&p, alignment, bytes ? bytes : alignment) ? NULL : p;
}

char *mem_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = mem_alloc(n);

    return copy ? memcpy(copy, s, n) : NULL;
}

void mem_free(void *p) { free(p); }

/* ---- arena ---- */
enum { ARENA_ALIGN = 16, ARENA_BLOCK_BYTES = 16 << 10 };

struct arena_block {
    struct arena_block *next;
    size_t capacity, used;
    _Alignas(ARENA_ALIGN) unsigned char data[];
};

void *arena_alloc(struct arena *a, size_t bytes)
{
    struct arena_block *b = a->head;
    size_t n, capacity;
    void *p;

    if (__builtin_add_overflow(bytes, (size_t)(ARENA_ALIGN - 1), &n)) return NULL;
    n &= ~(size_t)(ARENA_ALIGN - 1);
    if (!b || b->capacity - b->used < n) {
        capacity = a->block_bytes ? a->block_bytes : ARENA_BLOCK_BYTES;
        if (capacity < n) capacity = n;
        if (capacity > SIZE_MAX - sizeof *b) return NULL;
        b = mem_alloc(sizeof *b + capacity);
        if (!b) return NULL;
        b->capacity = capacity;
        b->used = 0;
        b->next = a->head;
        a->head = b;
    }
    p = b->data + b->used;
    b->used += n;
    a->used_bytes += n;
    return memset(p, 0, n);
}

void *arena_array(struct arena *a, size_t count, size_t bytes)
{
    size_t total;

    return __builtin_mul_overflow(count, bytes, &total) ? NULL : arena_alloc(a, total);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *copy = n < SIZE_MAX ? arena_alloc(a, n + 1) : NULL;

    return copy ? memcpy(copy, s, n) : NULL;
}

char *arena_strdup(struct arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list args, again;
    char *s = NULL;
    int n;

    va_start(args, format);
    va_copy(again, args);
    n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && (s = arena_alloc(a, (size_t)n + 1))) vsnprintf(s, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    return s;
}

void arena_release(struct arena *a)
{
    struct arena_block *b, *next;

    for (b = a->head; b; b = next) {
        next = b->next;
        mem_free(b);
    }
    a->head = NULL;
    a->used_bytes = 0;
}
