/* SPDX-License-Identifier: MIT */
/* Embedding lookup and its gradient on vectors; see embedding.c for why the gradient is cut by columns. */
#ifndef REAL
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#define FAMILY "kernels/cpu/embedding_fast.c"
#include "kernels/cpu/each_fast_type.h"
#else

struct NAME(embedding) {
    int64_t t, d;
    const int32_t *tokens;  /* [t] */
    const REAL *table, *dy; /* [v, d], [t, d] */
    REAL *y;                /* [t, d] */
    float *dtable;          /* [v, d] */
};

static void NAME(embedding_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(embedding) *s = arg;

    for (int64_t t = begin; t < end; t++)
        memcpy(s->y + t * s->d, s->table + s->tokens[t] * s->d, (size_t)s->d * sizeof *s->y);
}

static void NAME(embedding_columns)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(embedding) *s = arg;

    for (int64_t t = 0; t < s->t; t++) {
        const REAL *dy = s->dy + t * s->d;
        float *row = s->dtable + s->tokens[t] * s->d;

        for (int64_t i = begin; i < end; i += VEC_WIDTH)
            vec_store_n(row + i, end - i, vec_add(vec_load_n(row + i, end - i), vec_load_n(dy + i, end - i)));
    }
}

void NAME(embedding_forward)(struct kernel_context *c, int64_t t, int64_t d, int64_t v, const int32_t *tokens,
                             const void *table, void *y)
{
    struct NAME(embedding) s = {.t = t, .d = d, .tokens = tokens, .table = table, .y = y};

    (void)v;
    cpu_for_ranges(c, t, cpu_rows_grain(d), NAME(embedding_rows), &s);
}

/* A column's sum is the same in any range: a range for each thread, as wide as can be. */
void NAME(embedding_backward_weight)(struct kernel_context *c, int64_t t, int64_t d, int64_t v, const int32_t *tokens,
                                     const void *dy, wide *dtable)
{
    struct NAME(embedding) s = {.t = t, .d = d, .tokens = tokens, .dy = dy, .dtable = dtable};
    int64_t lines = (d + VEC_WIDTH - 1) / VEC_WIDTH, threads = pool_threads(cpu_pool(c));

    (void)v;
    if (d == 0) return;
    cpu_for_ranges(c, d, (lines + threads - 1) / threads * VEC_WIDTH, NAME(embedding_columns), &s);
}
#endif
