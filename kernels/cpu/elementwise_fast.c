/* SPDX-License-Identifier: MIT */
/* Sums, rounding, scaling and zeroing of arrays on vectors, float32. */
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

struct elementwise {
    const float *x, *y;
    float *out;
    float factor;
};

static void add_range(void *arg, int64_t begin, int64_t end)
{
    const struct elementwise *s = arg;

    for (int64_t i = begin; i < end; i += VEC_WIDTH)
        vec_store_n(s->out + i, end - i, vec_add(vec_load_n(s->x + i, end - i), vec_load_n(s->y + i, end - i)));
}

static void scale_range(void *arg, int64_t begin, int64_t end)
{
    const struct elementwise *s = arg;

    for (int64_t i = begin; i < end; i += VEC_WIDTH)
        vec_store_n(s->out + i, end - i, vec_mul(vec_load_n(s->out + i, end - i), vec_of(s->factor)));
}

static void zero_range(void *arg, int64_t begin, int64_t end)
{
    const struct elementwise *s = arg;

    memset(s->out + begin, 0, (size_t)(end - begin) * sizeof *s->out);
}

static void narrow_range(void *arg, int64_t begin, int64_t end)
{
    const struct elementwise *s = arg;

    memcpy(s->out + begin, s->x + begin, (size_t)(end - begin) * sizeof *s->out);
}

void VEC_LEVEL(add_float32)(struct kernel_context *c, int64_t n, const void *x, const void *y, void *out)
{
    struct elementwise s = {.x = x, .y = y, .out = out};

    cpu_for_ranges(c, n, cpu_rows_grain(1), add_range, &s);
}

void VEC_LEVEL(narrow_float32)(struct kernel_context *c, int64_t n, const wide *x, void *out)
{
    struct elementwise s = {.x = x, .out = out};

    cpu_for_ranges(c, n, cpu_rows_grain(1), narrow_range, &s);
}

void VEC_LEVEL(accumulate_float32)(struct kernel_context *c, int64_t n, const wide *x, wide *sum)
{
    struct elementwise s = {.x = sum, .y = x, .out = sum};

    cpu_for_ranges(c, n, cpu_rows_grain(1), add_range, &s);
}

void VEC_LEVEL(scale_float32)(struct kernel_context *c, int64_t n, double factor, void *x)
{
    struct elementwise s = {.out = x, .factor = (float)factor};

    cpu_for_ranges(c, n, cpu_rows_grain(1), scale_range, &s);
}

void VEC_LEVEL(zero_float32)(struct kernel_context *c, int64_t n, void *x)
{
    struct elementwise s = {.out = x};

    cpu_for_ranges(c, n, cpu_rows_grain(1), zero_range, &s);
}
