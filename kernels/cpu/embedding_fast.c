/* SPDX-License-Identifier: MIT */
/* Embedding lookup and its gradient on vectors, float32; see embedding.c for why the gradient is cut by columns. */
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

struct embedding {
    int64_t t, d;
    const int32_t *tokens;   /* [t] */
    const float *table, *dy; /* [v, d], [t, d] */
    float *y, *dtable;       /* [t, d], [v, d] */
};

static void embedding_rows(void *arg, int64_t begin, int64_t end)
{
    const struct embedding *s = arg;

    for (int64_t t = begin; t < end; t++)
        memcpy(s->y + t * s->d, s->table + s->tokens[t] * s->d, (size_t)s->d * sizeof *s->y);
}

static void embedding_columns(void *arg, int64_t begin, int64_t end)
{
    const struct embedding *s = arg;

    for (int64_t t = 0; t < s->t; t++) {
        const float *dy = s->dy + t * s->d;
        float *row = s->dtable + s->tokens[t] * s->d;

        for (int64_t i = begin; i < end; i += VEC_WIDTH)
            vec_store_n(row + i, end - i, vec_add(vec_load_n(row + i, end - i), vec_load_n(dy + i, end - i)));
    }
}

void VEC_LEVEL(embedding_forward_float32)(struct kernel_context *c, int64_t t, int64_t d, int64_t v,
                                          const int32_t *tokens, const void *table, void *y)
{
    struct embedding s = {.t = t, .d = d, .tokens = tokens, .table = table, .y = y};

    (void)v;
    cpu_for_ranges(c, t, cpu_rows_grain(d), embedding_rows, &s);
}

/* A column's sum is the same in any range: a range for each thread, as wide as can be. */
void VEC_LEVEL(embedding_backward_weight_float32)(struct kernel_context *c, int64_t t, int64_t d, int64_t v,
                                                  const int32_t *tokens, const void *dy, wide *dtable)
{
    struct embedding s = {.t = t, .d = d, .tokens = tokens, .dy = dy, .dtable = dtable};
    int64_t lines = (d + VEC_WIDTH - 1) / VEC_WIDTH, threads = pool_threads(cpu_pool(c));

    (void)v;
    if (d == 0) return;
    cpu_for_ranges(c, d, (lines + threads - 1) / threads * VEC_WIDTH, embedding_columns, &s);
}
