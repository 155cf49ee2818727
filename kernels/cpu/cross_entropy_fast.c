/* SPDX-License-Identifier: MIT */
/* Cross-entropy on vectors; see cross_entropy.c. With the gradient each exponential is computed once, where the row can
 * keep it: in bfloat16 it would be rounded twice. */
#ifndef REAL
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#define FAMILY "kernels/cpu/cross_entropy_fast.c"
#include "kernels/cpu/each_fast_type.h"
#else

struct NAME(cross_entropy) {
    int64_t v;
    REAL *logits;          /* [t, v] */
    const int32_t *labels; /* [t] */
    double scale;
    bool with_gradient;
};

static float NAME(largest)(const REAL *x, int64_t v)
{
    vec most[4];
    int64_t i = 0;
    float rest = -INFINITY;

    for (int j = 0; j < 4; j++) most[j] = vec_of(-INFINITY);
    for (; i + 4 * VEC_WIDTH <= v; i += 4 * VEC_WIDTH)
        for (int j = 0; j < 4; j++) most[j] = vec_max(most[j], vec_load(x + i + j * VEC_WIDTH));
    for (; i < v; i++) rest = GET(x[i]) > rest ? GET(x[i]) : rest;
    most[0] = vec_max(vec_max(most[0], most[1]), vec_max(most[2], most[3]));
    return fmaxf(rest, vec_largest(most[0]));
}

/* The sum of exp(x - most); with keep, x becomes exp(x - most). A float sums few terms, then doubles take over. */
static double NAME(exponentials)(REAL *x, int64_t v, float most, bool keep)
{
    enum { TERMS = 64 };
    double sum = 0;

    for (int64_t begin = 0; begin < v; begin += TERMS * VEC_WIDTH) {
        int64_t end = v - begin < TERMS * VEC_WIDTH ? v : begin + TERMS * VEC_WIDTH;
        vec part = vec_zero();

        for (int64_t i = begin; i < end; i += VEC_WIDTH) {
            vec y = vec_exp(vec_sub(vec_load_n(x + i, v - i), vec_of(most)));

            if (i + VEC_WIDTH > v) y = vec_select(vec_first(v - i), y, vec_zero());
            part = vec_add(part, y);
            if (keep) vec_store_n(x + i, v - i, y);
        }
        sum += vec_sum(part);
    }
    return sum;
}

static double NAME(cross_entropy_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(cross_entropy) *s = arg;
    const bool keeps = s->with_gradient && sizeof(REAL) == sizeof(float);
    double loss = 0;

    for (int64_t t = begin; t < end; t++) {
        REAL *x = s->logits + t * s->v;
        float most, at_label;
        int32_t label = s->labels[t];
        double sum;

        if (label == LABEL_IGNORED) {
            if (s->with_gradient) memset(x, 0, (size_t)s->v * sizeof *x);
            continue;
        }
        most = NAME(largest)(x, s->v);
        at_label = GET(x[label]);
        sum = NAME(exponentials)(x, s->v, most, keeps);
        loss += log(sum) + most - at_label;
        if (!s->with_gradient) continue;
        for (int64_t i = 0; i < s->v; i += VEC_WIDTH) {
            vec y = vec_load_n(x + i, s->v - i);

            if (!keeps) y = vec_exp(vec_sub(y, vec_of(most)));
            vec_store_n(x + i, s->v - i, vec_mul(y, vec_of((float)(s->scale / sum))));
        }
        x[label] = PUT(s->scale * (exp((double)at_label - most) / sum - 1));
    }
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
