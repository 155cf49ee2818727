/* SPDX-License-Identifier: MIT */
/* RMS normalisation on vectors; see rmsnorm.c for the formulas and how work is cut. */
#ifndef REAL
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

enum { COLUMNS = 32 }; /* of a range of the weight's gradient */

#define FAMILY "kernels/cpu/rmsnorm_fast.c"
#include "kernels/cpu/each_fast_type.h"
#else

struct NAME(rmsnorm) {
    int64_t t, d;
    double eps;
    const REAL *x, *weight, *dy; /* [t, d], [d], [t, d] */
    REAL *y, *dx;                /* [t, d] */
    const float *rstd;           /* [t] */
    float *rstd_out, *dweight;   /* [t] or NULL, [d] */
    bool accumulate;
};

/* The sum of a b c over d, or of a b where c is NULL. */
INLINE float NAME(dot)(const REAL *a, const REAL *b, const REAL *c, int64_t d)
{
    vec sum[4] = {vec_zero(), vec_zero(), vec_zero(), vec_zero()};

    for (int64_t i = 0; i < d; i += 4 * VEC_WIDTH)
        for (int64_t j = 0; j < 4 && i + j * VEC_WIDTH < d; j++) {
            int64_t at = i + j * VEC_WIDTH, n = d - at;
            vec x = vec_load_n(a + at, n);

            if (c) x = vec_mul(x, vec_load_n(c + at, n));
            sum[j] = vec_fma(x, vec_load_n(b + at, n), sum[j]);
        }
    return vec_sum(vec_add(vec_add(sum[0], sum[1]), vec_add(sum[2], sum[3])));
}

static void NAME(forward_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(rmsnorm) *s = arg;

    for (int64_t t = begin; t < end; t++) {
        const REAL *x = s->x + t * s->d;
        REAL *y = s->y + t * s->d;
        float rstd = (float)(1 / sqrt(NAME(dot)(x, x, NULL, s->d) / (double)s->d + s->eps));

        for (int64_t i = 0; i < s->d; i += VEC_WIDTH) {
            int64_t n = s->d - i;

            vec_store_n(y + i, n, vec_mul(vec_mul(vec_load_n(x + i, n), vec_of(rstd)), vec_load_n(s->weight + i, n)));
        }
        if (s->rstd_out) s->rstd_out[t] = rstd;
    }
}

static void NAME(backward_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(rmsnorm) *s = arg;

    for (int64_t t = begin; t < end; t++) {
        const REAL *x = s->x + t * s->d, *dy = s->dy + t * s->d;
        REAL *dx = s->dx + t * s->d;
        float rstd = s->rstd[t];
        double mean = (double)NAME(dot)(dy, x, s->weight, s->d) * rstd / (double)s->d; /* of dy * weight * xhat */
        vec pull = vec_of((float)(mean * rstd * rstd));

        for (int64_t i = 0; i < s->d; i += VEC_WIDTH) {
            int64_t n = s->d - i;
            vec g = vec_mul(vec_mul(vec_load_n(dy + i, n), vec_load_n(s->weight + i, n)), vec_of(rstd));

            g = vec_fnma(vec_load_n(x + i, n), pull, g);
            vec_store_n(dx + i, n, s->accumulate ? vec_add(vec_load_n(dx + i, n), g) : g);
        }
    }
}

/* Floats sum few rows, then doubles take over. */
static void NAME(weight_columns)(void *arg, int64_t begin, int64_t end)
{
    enum { ROWS = 32, VECTORS = COLUMNS / VEC_WIDTH };
    const struct NAME(rmsnorm) *s = arg;
    double sum[COLUMNS] = {0};
    float part[COLUMNS];

    for (int64_t first = 0; first < s->t; first += ROWS) {
        vec column[VECTORS];

        for (int j = 0; j < VECTORS; j++) column[j] = vec_zero();
        for (int64_t t = first; t < s->t && t < first + ROWS; t++)
            for (int j = 0; j < VECTORS && begin + j * VEC_WIDTH < end; j++) {
                int64_t at = t * s->d + begin + j * VEC_WIDTH, n = end - begin - j * VEC_WIDTH;

                column[j] = vec_fma(vec_load_n(s->dy + at, n), vec_mul(vec_load_n(s->x + at, n), vec_of(s->rstd[t])),
                                    column[j]);
            }
        for (int j = 0; j < VECTORS; j++) vec_store(part + j * VEC_WIDTH, column[j]);
        for (int j = 0; j < COLUMNS; j++) sum[j] += part[j];
    }
    for (int64_t i = begin; i < end; i++) s->dweight[i] = (float)(s->dweight[i] + sum[i - begin]);
}

void NAME(rmsnorm_forward)(struct kernel_context *c, int64_t t, int64_t d, double eps, const void *x,
                           const void *weight, void *y, wide *rstd)
{
    struct NAME(rmsnorm) s = {.t = t, .d = d, .eps = eps, .x = x, .weight = weight, .y = y, .rstd_out = rstd};

    cpu_for_ranges(c, t, cpu_rows_grain(d), NAME(forward_rows), &s);
}

void NAME(rmsnorm_backward_input)(struct kernel_context *c, int64_t t, int64_t d, const void *dy, const void *x,
                                  const void *weight, const wide *rstd, bool accumulate, void *dx)
{
    struct NAME(rmsnorm)
        s = {.t = t, .d = d, .dy = dy, .x = x, .weight = weight, .rstd = rstd, .accumulate = accumulate, .dx = dx};

    cpu_for_ranges(c, t, cpu_rows_grain(d), NAME(backward_rows), &s);
}

void NAME(rmsnorm_backward_weight)(struct kernel_context *c, int64_t t, int64_t d, const void *dy, const void *x,
                                   const wide *rstd, wide *dweight)
{
    struct NAME(rmsnorm) s = {.t = t, .d = d, .dy = dy, .x = x, .rstd = rstd, .dweight = dweight};

    cpu_for_ranges(c, d, COLUMNS, NAME(weight_columns), &s);
}
#endif
