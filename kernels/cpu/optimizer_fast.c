/* SPDX-License-Identifier: MIT */
/* AdamW on vectors, float32; see optimizer.c. The step's factors are computed in double and rounded once. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

struct adamw {
    float gradient_scale, keep_first, take_first, keep_second, take_second; /* of the moments */
    float first_factor, second_factor, eps, lr, weight_decay;               /* of the update */
    const float *gradient;
    float *parameter, *first, *second; /* [n] each */
};

static void adamw_range(void *arg, int64_t begin, int64_t end)
{
    const struct adamw *s = arg;

    for (int64_t i = begin; i < end; i += VEC_WIDTH) {
        int64_t n = end - i;
        vec g = vec_mul(vec_load_n(s->gradient + i, n), vec_of(s->gradient_scale)), p = vec_load_n(s->parameter + i, n);
        vec first = vec_fma(vec_of(s->keep_first), vec_load_n(s->first + i, n), vec_mul(vec_of(s->take_first), g));
        vec second = vec_fma(vec_of(s->keep_second), vec_load_n(s->second + i, n),
                             vec_mul(vec_of(s->take_second), vec_mul(g, g)));
        vec size = vec_add(vec_sqrt(vec_mul(second, vec_of(s->second_factor))), vec_of(s->eps));
        vec update = vec_div(vec_mul(first, vec_of(s->first_factor)), size);

        vec_store_n(s->first + i, n, first);
        vec_store_n(s->second + i, n, second);
        vec_store_n(s->parameter + i, n, vec_fnma(vec_of(s->lr), vec_fma(vec_of(s->weight_decay), p, update), p));
    }
}

void VEC_LEVEL(adamw_float32)(struct kernel_context *c, const struct adamw_step *step, const double *gradient_scale,
                              int64_t n, const wide *gradient, wide *parameter, wide *first, wide *second)
{
    struct adamw s = {
        .gradient_scale = (float)*gradient_scale,
        .keep_first = (float)step->beta1,
        .take_first = (float)(1 - step->beta1),
        .keep_second = (float)step->beta2,
        .take_second = (float)(1 - step->beta2),
        .first_factor = (float)(1 / step->bias_correction1),
        .second_factor = (float)(1 / step->bias_correction2),
        .eps = (float)step->eps,
        .lr = (float)step->lr,
        .weight_decay = (float)step->weight_decay,
        .gradient = gradient,
        .parameter = parameter,
        .first = first,
        .second = second,
    };

    cpu_for_ranges(c, n, cpu_rows_grain(1), adamw_range, &s);
}
