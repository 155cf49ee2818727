/* SPDX-License-Identifier: MIT */
/* Sums, rounding, scaling and zeroing of arrays on vectors. */
#ifndef REAL
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#define FAMILY "kernels/cpu/elementwise_fast.c"
#include "kernels/cpu/each_fast_type.h"
#else

struct NAME(elementwise) {
    const REAL *x, *y;
    const float *precise;
    REAL *out;
    float factor;
};

static void NAME(add_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(elementwise) *s = arg;

    for (int64_t i = begin; i < end; i += VEC_WIDTH)
        vec_store_n(s->out + i, end - i, vec_add(vec_load_n(s->x + i, end - i), vec_load_n(s->y + i, end - i)));
}

static void NAME(scale_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(elementwise) *s = arg;

    for (int64_t i = begin; i < end; i += VEC_WIDTH)
        vec_store_n(s->out + i, end - i, vec_mul(vec_load_n(s->out + i, end - i), vec_of(s->factor)));
}

static void NAME(zero_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(elementwise) *s = arg;

    memset(s->out + begin, 0, (size_t)(end - begin) * sizeof *s->out);
}

static void NAME(narrow_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(elementwise) *s = arg;

    for (int64_t i = begin; i < end; i += VEC_WIDTH)
        vec_store_n(s->out + i, end - i, vec_load_n(s->precise + i, end - i));
}

void NAME(add)(struct kernel_context *c, int64_t n, const void *x, const void *y, void *out)
{
    struct NAME(elementwise) s = {.x = x, .y = y, .out = out};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(add_range), &s);
}

void NAME(narrow)(struct kernel_context *c, int64_t n, const wide *x, void *out)
{
    struct NAME(elementwise) s = {.precise = x, .out = out};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(narrow_range), &s);
}

#ifdef IS_WIDE
void NAME(accumulate)(struct kernel_context *c, int64_t n, const wide *x, wide *sum)
{
    struct NAME(elementwise) s = {.x = sum, .y = x, .out = sum};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(add_range), &s);
}
#endif

void NAME(scale)(struct kernel_context *c, int64_t n, double factor, void *x)
{
    struct NAME(elementwise) s = {.out = x, .factor = (float)factor};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(scale_range), &s);
}

void NAME(zero)(struct kernel_context *c, int64_t n, void *x)
{
    struct NAME(elementwise) s = {.out = x};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(zero_range), &s);
}
#endif
