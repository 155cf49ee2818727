/* SPDX-License-Identifier: MIT */
/*
 * Host memory: the only place that calls malloc and free (make lint checks it), and arenas.
 *
 * mem_* functions return NULL only when memory is out or a test's fault fires; sizes are checked for overflow.
 * An arena hands out memory of one lifetime and releases it all at once; nothing in it is freed singly.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

void *mem_alloc(size_t bytes);                /* not zeroed; mem_alloc(0) gives a valid pointer */
void *mem_zalloc(size_t count, size_t bytes); /* zeroed, count * bytes with overflow check */
void *mem_resize(void *old, size_t count, size_t bytes);
void *mem_aligned(size_t alignment, size_t bytes); /* alignment: a power of two; free with mem_free */
char *mem_strdup(const char *s);
void mem_free(void *p); /* NULL is fine */

/* Tests only: the n-th allocation from now (0 = the next one) in any thread returns NULL, once. Negative disarms.
 * mem_fault_fired() says whether it did. */
void mem_fault_arm(long n);
int mem_fault_fired(void);

/* ---- arena ---- */
struct arena_block;
struct arena {
    struct arena_block *head; /* newest block */
    size_t block_bytes;       /* size of the next ordinary block; 0 = default (16 KiB) */
    size_t used_bytes;        /* sum handed out, for reports */
};

/* A zeroed struct arena is ready for use. All results are zeroed and aligned to 16 bytes; NULL = out of memory. */
void *arena_alloc(struct arena *a, size_t bytes);
void *arena_array(struct arena *a, size_t count, size_t bytes);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *format, ...) PRINTF_LIKE(2, 3);
void arena_release(struct arena *a); /* frees everything; the arena is ready for use again */

#endif
