/* SPDX-License-Identifier: MIT */
/* Rotary position embedding on vectors. */
#ifndef REAL
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#define FAMILY "kernels/cpu/rope_fast.c"
#include "kernels/cpu/each_fast_type.h"
#else

struct NAME(rope) {
    int64_t heads, half, ld;
    const float *cos_table, *sin_table; /* [positions, half] */
    const int32_t *positions;           /* [t] */
    bool inverse;
    REAL *x; /* [t, heads * 2 * half], row stride ld */
};

static void NAME(rope_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(rope) *s = arg;

    for (int64_t t = begin; t < end; t++)
        for (int64_t i = 0; i < s->half; i += VEC_WIDTH) {
            int64_t n = s->half - i, at = s->positions[t] * s->half + i;
            vec cosine = vec_load_n(s->cos_table + at, n), sine = vec_load_n(s->sin_table + at, n);

            if (s->inverse) sine = vec_sub(vec_zero(), sine);
            for (int64_t h = 0; h < s->heads; h++) {
                REAL *first = s->x + t * s->ld + h * 2 * s->half + i, *second = first + s->half;
                vec a = vec_load_n(first, n), b = vec_load_n(second, n);

                vec_store_n(first, n, vec_fnma(b, sine, vec_mul(a, cosine)));
                vec_store_n(second, n, vec_fma(a, sine, vec_mul(b, cosine)));
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
