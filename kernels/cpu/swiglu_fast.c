/* SPDX-License-Identifier: MIT */
/* SwiGLU on vectors; see swiglu.c for the formulas. */
#ifndef REAL
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

static inline vec sigmoid(vec z)
{
    vec one = vec_of(1);

    return vec_div(one, vec_add(one, vec_exp(vec_sub(vec_zero(), z))));
}

#define FAMILY "kernels/cpu/swiglu_fast.c"
#include "kernels/cpu/each_fast_type.h"
#else

struct NAME(swiglu) {
    const REAL *gate, *up, *dh; /* [n] each */
    REAL *h, *dgate, *dup;
};

static void NAME(forward_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(swiglu) *s = arg;

    for (int64_t i = begin; i < end; i += VEC_WIDTH) {
        vec z = vec_load_n(s->gate + i, end - i), up = vec_load_n(s->up + i, end - i);

        vec_store_n(s->h + i, end - i, vec_mul(vec_mul(z, sigmoid(z)), up));
    }
}

static void NAME(backward_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(swiglu) *s = arg;
    vec one = vec_of(1);

    for (int64_t i = begin; i < end; i += VEC_WIDTH) {
        vec z = vec_load_n(s->gate + i, end - i), up = vec_load_n(s->up + i, end - i),
            dh = vec_load_n(s->dh + i, end - i);
        vec sigma = sigmoid(z), slope = vec_mul(sigma, vec_fma(z, vec_sub(one, sigma), one));

        vec_store_n(s->dgate + i, end - i, vec_mul(vec_mul(dh, up), slope));
        vec_store_n(s->dup + i, end - i, vec_mul(dh, vec_mul(z, sigma)));
    }
}

void NAME(swiglu_forward)(struct kernel_context *c, int64_t n, const void *gate, const void *up, void *h)
{
    struct NAME(swiglu) s = {.gate = gate, .up = up, .h = h};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(forward_range), &s);
}

void NAME(swiglu_backward)(struct kernel_context *c, int64_t n, const void *dh, const void *gate, const void *up,
                           void *dgate, void *dup)
{
    struct NAME(swiglu) s = {.gate = gate, .up = up, .dh = dh, .dgate = dgate, .dup = dup};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(backward_range), &s);
}
#endif
