/* SPDX-License-Identifier: MIT */
/* SwiGLU on vectors, float32; see swiglu.c for the formulas. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

struct swiglu {
    const float *gate, *up, *dh; /* [n] each */
    float *h, *dgate, *dup;
};

static inline vec sigmoid(vec z)
{
    vec one = vec_of(1);

    return vec_div(one, vec_add(one, vec_exp(vec_sub(vec_zero(), z))));
}

static void forward_range(void *arg, int64_t begin, int64_t end)
{
    const struct swiglu *s = arg;

    for (int64_t i = begin; i < end; i += VEC_WIDTH) {
        vec z = vec_load_n(s->gate + i, end - i), up = vec_load_n(s->up + i, end - i);

        vec_store_n(s->h + i, end - i, vec_mul(vec_mul(z, sigmoid(z)), up));
    }
}

static void backward_range(void *arg, int64_t begin, int64_t end)
{
    const struct swiglu *s = arg;
    vec one = vec_of(1);

    for (int64_t i = begin; i < end; i += VEC_WIDTH) {
        vec z = vec_load_n(s->gate + i, end - i), up = vec_load_n(s->up + i, end - i),
            dh = vec_load_n(s->dh + i, end - i);
        vec sigma = sigmoid(z), slope = vec_mul(sigma, vec_fma(z, vec_sub(one, sigma), one));

        vec_store_n(s->dgate + i, end - i, vec_mul(vec_mul(dh, up), slope));
        vec_store_n(s->dup + i, end - i, vec_mul(dh, vec_mul(z, sigma)));
    }
}

void VEC_LEVEL(swiglu_forward_float32)(struct kernel_context *c, int64_t n, const void *gate, const void *up, void *h)
{
    struct swiglu s = {.gate = gate, .up = up, .h = h};

    cpu_for_ranges(c, n, cpu_rows_grain(1), forward_range, &s);
}

void VEC_LEVEL(swiglu_backward_float32)(struct kernel_context *c, int64_t n, const void *dh, const void *gate,
                                        const void *up, void *dgate, void *dup)
{
    struct swiglu s = {.gate = gate, .up = up, .dh = dh, .dgate = dgate, .dup = dup};

    cpu_for_ranges(c, n, cpu_rows_grain(1), backward_range, &s);
}
