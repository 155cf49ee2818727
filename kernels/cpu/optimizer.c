/* SPDX-License-Identifier: MIT */
/* AdamW (Loshchilov, Hutter 2019, algorithm 2) and the clipping factor, reference twins. */
#ifndef REAL
#include <math.h>

#include "kernels/cpu/cpu.h"

#define ALL_WIDE
#define FAMILY "kernels/cpu/optimizer.c"
#include "kernels/cpu/each_type.h"
#else

struct NAME(adamw) {
    const struct adamw_step *step;
    double gradient_scale;
    const REAL *gradient;
    REAL *parameter, *first, *second; /* [n] each; the moments */
};

static void NAME(adamw_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(adamw) *s = arg;
    const struct adamw_step *a = s->step;

    for (int64_t i = begin; i < end; i++) {
        double g = s->gradient[i] * s->gradient_scale;
        double first = a->beta1 * s->first[i] + (1 - a->beta1) * g;
        double second = a->beta2 * s->second[i] + (1 - a->beta2) * g * g;
        double update = first / a->bias_correction1 / (sqrt(second / a->bias_correction2) + a->eps);

        s->first[i] = (REAL)first;
        s->second[i] = (REAL)second;
        s->parameter[i] = (REAL)(s->parameter[i] - a->lr * (update + a->weight_decay * s->parameter[i]));
    }
}

void NAME(adamw)(struct kernel_context *c, const struct adamw_step *step, const double *gradient_scale, int64_t n,
                 const wide *gradient, wide *parameter, wide *first, wide *second)
{
    struct NAME(adamw) s = {.step = step,
                            .gradient_scale = *gradient_scale,
                            .gradient = gradient,
                            .parameter = parameter,
                            .first = first,
                            .second = second};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(adamw_range), &s);
}

void NAME(clip)(struct kernel_context *c, const double *sum_squares, double max_norm, double *norm, double *factor)
{
    double most;

    (void)c;
    *norm = sqrt(*sum_squares);
    most = max_norm / (*norm + 1e-6);
    *factor = max_norm > 0 && most < 1.0 ? most : 1.0;
}
#endif
