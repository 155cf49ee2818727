/* SPDX-License-Identifier: MIT */
/* Rotary position embedding in the half-split layout, reference twin. */
#ifndef REAL
#include "kernels/cpu/cpu.h"

#define FAMILY "kernels/cpu/rope.c"
#include "kernels/cpu/each_type.h"
#else

struct NAME(rope) {
    int64_t heads, half, ld;
    const WIDE *cos_table, *sin_table; /* [positions, half] */
    const int32_t *positions;          /* [t] */
    bool inverse;
    REAL *x; /* [t, heads * 2 * half], row stride ld */
};

static void NAME(rope_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(rope) *s = arg;

    for (int64_t t = begin; t < end; t++) {
        const WIDE *cosine = s->cos_table + s->positions[t] * s->half, *sine = s->sin_table + s->positions[t] * s->half;

        for (int64_t h = 0; h < s->heads; h++) {
            REAL *first = s->x + t * s->ld + h * 2 * s->half, *second = first + s->half;

            for (int64_t i = 0; i < s->half; i++) {
                double a = GET(first[i]), b = GET(second[i]), cos_i = cosine[i],
                       sin_i = s->inverse ? -(double)sine[i] : sine[i];

                first[i] = PUT(a * cos_i - b * sin_i);
                second[i] = PUT(b * cos_i + a * sin_i);
            }
        }
    }
}

void NAME(rope)(struct kernel_context *c, int64_t t, int64_t heads, int64_t head_dim, int64_t ld, const wide *cos_table,
                const wide *sin_table, const int32_t *positions, bool inverse, void *x)
{
    struct NAME(rope) s = {.heads = heads,
                           .half = head_dim / 2,
                           .ld = ld,
                           .cos_table = cos_table,
                           .sin_table = sin_table,
                           .positions = positions,
                           .inverse = inverse,
                           .x = x};

    cpu_for_ranges(c, t, cpu_rows_grain(heads * head_dim), NAME(rope_rows), &s);
}
#endif
