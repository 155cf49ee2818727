/* SPDX-License-Identifier: MIT */
/* Cross-entropy of softmax and its gradient in place, reference twin. The maximum is taken off first, so that no exp
 * overflows. */
#ifndef REAL
#include <math.h>

#include "kernels/cpu/cpu.h"

#define FAMILY "kernels/cpu/cross_entropy.c"
#include "kernels/cpu/each_type.h"
#else

struct NAME(cross_entropy) {
    int64_t v;
    REAL *logits;          /* [t, v] */
    const int32_t *labels; /* [t] */
    double scale;
    bool with_gradient;
};

static double NAME(cross_entropy_row)(REAL *x, int64_t v, int32_t label, double scale, bool with_gradient)
{
    double most = -INFINITY, sum = 0, loss;

    if (label == LABEL_IGNORED) {
        for (int64_t i = 0; with_gradient && i < v; i++) x[i] = PUT(0);
        return 0;
    }
    for (int64_t i = 0; i < v; i++) most = GET(x[i]) > most ? GET(x[i]) : most;
    for (int64_t i = 0; i < v; i++) sum += exp(GET(x[i]) - most);
    loss = log(sum) + most - GET(x[label]);
    for (int64_t i = 0; with_gradient && i < v; i++) x[i] = PUT(scale * (exp(GET(x[i]) - most) / sum - (i == label)));
    return loss;
}

static double NAME(cross_entropy_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(cross_entropy) *s = arg;
    double loss = 0;

    for (int64_t t = begin; t < end; t++)
        loss += NAME(cross_entropy_row)(s->logits + t * s->v, s->v, s->labels[t], s->scale, s->with_gradient);
    return loss;
}

void NAME(cross_entropy)(struct kernel_context *c, int64_t t, int64_t v, void *logits, const int32_t *labels,
                         double scale, bool with_gradient, double *loss_sum)
{
    struct NAME(cross_entropy)
        s = {.v = v, .logits = logits, .labels = labels, .scale = scale, .with_gradient = with_gradient};

    *loss_sum += cpu_sum_ranges(c, t, cpu_rows_grain(v), NAME(cross_entropy_rows), &s);
}
#endif
