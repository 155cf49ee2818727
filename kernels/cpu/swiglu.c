/* SPDX-License-Identifier: MIT */
/* SwiGLU, reference twin. silu(z) = z * sigma(z), silu'(z) = sigma(z) * (1 + z * (1 - sigma(z))). */
#ifndef REAL
#include <math.h>

#include "kernels/cpu/cpu.h"

static inline double sigmoid(double z) { return 1 / (1 + exp(-z)); }

#define FAMILY "kernels/cpu/swiglu.c"
#include "kernels/cpu/each_type.h"
#else

struct NAME(swiglu) {
    const REAL *gate, *up, *dh; /* [n] each */
    REAL *h, *dgate, *dup;
};

static void NAME(swiglu_forward_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(swiglu) *s = arg;

    for (int64_t i = begin; i < end; i++) s->h[i] = PUT(GET(s->gate[i]) * sigmoid(GET(s->gate[i])) * GET(s->up[i]));
}

void NAME(swiglu_forward)(struct kernel_context *c, int64_t n, const void *gate, const void *up, void *h)
{
    struct NAME(swiglu) s = {.gate = gate, .up = up, .h = h};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(swiglu_forward_range), &s);
}

static void NAME(swiglu_backward_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(swiglu) *s = arg;

    for (int64_t i = begin; i < end; i++) {
        double z = GET(s->gate[i]), sigma = sigmoid(z), dh = GET(s->dh[i]), up = GET(s->up[i]);

        s->dgate[i] = PUT(dh * up * sigma * (1 + z * (1 - sigma)));
        s->dup[i] = PUT(dh * z * sigma);
    }
}

void NAME(swiglu_backward)(struct kernel_context *c, int64_t n, const void *dh, const void *gate, const void *up,
                           void *dgate, void *dup)
{
    struct NAME(swiglu) s = {.gate = gate, .up = up, .dh = dh, .dgate = dgate, .dup = dup};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(swiglu_backward_range), &s);
}
#endif
