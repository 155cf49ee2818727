/* SPDX-License-Identifier: MIT */
/*
 * Embedding lookup and its gradient, reference twin. Several tokens may name one row of the table, so the gradient's
 * ranges are columns: each adds all tokens in order.
 */
#ifndef REAL
#include <string.h>

#include "kernels/cpu/cpu.h"

#define FAMILY "kernels/cpu/embedding.c"
#include "kernels/cpu/each_type.h"
#else

struct NAME(embedding) {
    int64_t t, d;
    const int32_t *tokens;  /* [t] */
    const REAL *table, *dy; /* [v, d], [t, d] */
    REAL *y;                /* [t, d] */
    WIDE *dtable;           /* [v, d] */
};

static void NAME(embedding_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(embedding) *s = arg;

    for (int64_t t = begin; t < end; t++)
        memcpy(s->y + t * s->d, s->table + s->tokens[t] * s->d, (size_t)s->d * sizeof *s->y);
}

void NAME(embedding_forward)(struct kernel_context *c, int64_t t, int64_t d, int64_t v, const int32_t *tokens,
                             const void *table, void *y)
{
    struct NAME(embedding) s = {.t = t, .d = d, .tokens = tokens, .table = table, .y = y};

    (void)v;
    cpu_for_ranges(c, t, cpu_rows_grain(d), NAME(embedding_rows), &s);
}

static void NAME(embedding_columns)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(embedding) *s = arg;

    for (int64_t t = 0; t < s->t; t++) {
        const REAL *dy = s->dy + t * s->d;
        WIDE *row = s->dtable + s->tokens[t] * s->d;

        for (int64_t i = begin; i < end; i++) row[i] += GET(dy[i]);
    }
}

void NAME(embedding_backward_weight)(struct kernel_context *c, int64_t t, int64_t d, int64_t v, const int32_t *tokens,
                                     const void *dy, wide *dtable)
{
    struct NAME(embedding) s = {.t = t, .d = d, .tokens = tokens, .dy = dy, .dtable = dtable};

    (void)v;
    cpu_for_ranges(c, d, 32, NAME(embedding_columns), &s);
}
#endif
