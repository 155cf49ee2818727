/* SPDX-License-Identifier: MIT */
/* RMS normalisation on vectors, float32; see rmsnorm.c for the formulas and how work is cut. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

enum { COLUMNS = 32 }; /* of a range of the weight's gradient */

struct rmsnorm {
    int64_t t, d;
    double eps;
    const float *x, *weight, *dy, *rstd; /* [t, d], [d], [t, d], [t] */
    float *y, *rstd_out, *dx, *dweight;  /* [t, d], [t] or NULL, [t, d], [d] */
    bool accumulate;
};

/* The sum of a b c over d, or of a b where c is NULL. */
INLINE float dot(const float *a, const float *b, const float *c, int64_t d)
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

static void forward_rows(void *arg, int64_t begin, int64_t end)
{
    const struct rmsnorm *s = arg;

    for (int64_t t = begin; t < end; t++) {
        const float *x = s->x + t * s->d;
        float *y = s->y + t * s->d, rstd = (float)(1 / sqrt(dot(x, x, NULL, s->d) / (double)s->d + s->eps));

        for (int64_t i = 0; i < s->d; i += VEC_WIDTH) {
            int64_t n = s->d - i;

            vec_store_n(y + i, n, vec_mul(vec_mul(vec_load_n(x + i, n), vec_of(rstd)), vec_load_n(s->weight + i, n)));
        }
        if (s->rstd_out) s->rstd_out[t] = rstd;
    }
}

static void backward_rows(void *arg, int64_t begin, int64_t end)
{
    const struct rmsnorm *s = arg;

    for (int64_t t = begin; t < end; t++) {
        const float *x = s->x + t * s->d, *dy = s->dy + t * s->d;
        float *dx = s->dx + t * s->d, rstd = s->rstd[t];
        double mean = (double)dot(dy, x, s->weight, s->d) * rstd / (double)s->d; /* of dy * weight * xhat */
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
static void weight_columns(void *arg, int64_t begin, int64_t end)
{
    enum { ROWS = 32, VECTORS = COLUMNS / VEC_WIDTH };
    const struct rmsnorm *s = arg;
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

void VEC_LEVEL(rmsnorm_forward_float32)(struct kernel_context *c, int64_t t, int64_t d, double eps, const void *x,
                                        const void *weight, void *y, wide *rstd)
{
    struct rmsnorm s = {.t = t, .d = d, .eps = eps, .x = x, .weight = weight, .y = y, .rstd_out = rstd};

    cpu_for_ranges(c, t, cpu_rows_grain(d), forward_rows, &s);
}

void VEC_LEVEL(rmsnorm_backward_input_float32)(struct kernel_context *c, int64_t t, int64_t d, const void *dy,
                                               const void *x, const void *weight, const wide *rstd, bool accumulate,
                                               void *dx)
{
    struct rmsnorm s = {
        .t = t, .d = d, .dy = dy, .x = x, .weight = weight, .rstd = rstd, .accumulate = accumulate, .dx = dx};

    cpu_for_ranges(c, t, cpu_rows_grain(d), backward_rows, &s);
}

void VEC_LEVEL(rmsnorm_backward_weight_float32)(struct kernel_context *c, int64_t t, int64_t d, const void *dy,
                                                const void *x, const wide *rstd, wide *dweight)
{
    struct rmsnorm s = {.t = t, .d = d, .dy = dy, .x = x, .rstd = rstd, .dweight = dweight};

    cpu_for_ranges(c, d, COLUMNS, weight_columns, &s);
}
