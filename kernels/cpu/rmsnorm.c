/* SPDX-License-Identifier: MIT */
/*
 * RMS normalisation, reference twin. Rows are independent, so ranges are rows; the gradient of the weight sums over
 * rows, so there the ranges are columns.
 */
#ifndef REAL
#include <math.h>

#include "kernels/cpu/cpu.h"

#define FAMILY "kernels/cpu/rmsnorm.c"
#include "kernels/cpu/each_type.h"
#else

struct NAME(rmsnorm) {
    int64_t t, d;
    double eps;
    const REAL *x, *weight, *dy; /* [t, d], [d], [t, d] */
    REAL *y, *dx;                /* [t, d] */
    const WIDE *rstd;            /* [t] */
    WIDE *rstd_out, *dweight;    /* [t] or NULL, [d] */
    bool accumulate;
};

static void NAME(forward_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(rmsnorm) *s = arg;

    for (int64_t t = begin; t < end; t++) {
        const REAL *x = s->x + t * s->d;
        REAL *y = s->y + t * s->d;
        double squares = 0, rstd;

        for (int64_t i = 0; i < s->d; i++) squares += (double)GET(x[i]) * GET(x[i]);
        rstd = 1 / sqrt(squares / (double)s->d + s->eps);
        for (int64_t i = 0; i < s->d; i++) y[i] = PUT(GET(x[i]) * rstd * GET(s->weight[i]));
        if (s->rstd_out) s->rstd_out[t] = (WIDE)rstd;
    }
}

void NAME(rmsnorm_forward)(struct kernel_context *c, int64_t t, int64_t d, double eps, const void *x,
                           const void *weight, void *y, wide *rstd)
{
    struct NAME(rmsnorm) s = {.t = t, .d = d, .eps = eps, .x = x, .weight = weight, .y = y, .rstd_out = rstd};

    cpu_for_ranges(c, t, cpu_rows_grain(d), NAME(forward_rows), &s);
}

static void NAME(backward_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(rmsnorm) *s = arg;

    for (int64_t t = begin; t < end; t++) {
        const REAL *x = s->x + t * s->d, *dy = s->dy + t * s->d;
        REAL *dx = s->dx + t * s->d;
        double rstd = s->rstd[t], dot = 0;

        for (int64_t i = 0; i < s->d; i++) dot += (double)GET(dy[i]) * GET(s->weight[i]) * GET(x[i]);
        dot *= rstd / (double)s->d; /* mean of dy * weight * xhat */
        for (int64_t i = 0; i < s->d; i++) {
            double g = rstd * ((double)GET(dy[i]) * GET(s->weight[i]) - GET(x[i]) * rstd * dot);

            dx[i] = PUT(s->accumulate ? GET(dx[i]) + g : g);
        }
    }
}

void NAME(rmsnorm_backward_input)(struct kernel_context *c, int64_t t, int64_t d, const void *dy, const void *x,
                                  const void *weight, const wide *rstd, bool accumulate, void *dx)
{
    struct NAME(rmsnorm)
        s = {.t = t, .d = d, .dy = dy, .x = x, .weight = weight, .rstd = rstd, .accumulate = accumulate, .dx = dx};

    cpu_for_ranges(c, t, cpu_rows_grain(d), NAME(backward_rows), &s);
}

static void NAME(weight_columns)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(rmsnorm) *s = arg;
    double sum[16];

    for (int64_t i = begin; i < end; i++) sum[i - begin] = 0;
    for (int64_t t = 0; t < s->t; t++) {
        const REAL *x = s->x + t * s->d, *dy = s->dy + t * s->d;
        double rstd = s->rstd[t];

        for (int64_t i = begin; i < end; i++) sum[i - begin] += GET(dy[i]) * (GET(x[i]) * rstd);
    }
    for (int64_t i = begin; i < end; i++) s->dweight[i] = (WIDE)(s->dweight[i] + sum[i - begin]);
}

void NAME(rmsnorm_backward_weight)(struct kernel_context *c, int64_t t, int64_t d, const void *dy, const void *x,
                                   const wide *rstd, wide *dweight)
{
    struct NAME(rmsnorm) s = {.t = t, .d = d, .dy = dy, .x = x, .rstd = rstd, .dweight = dweight};

    cpu_for_ranges(c, d, 16, NAME(weight_columns), &s);
}
#endif
