/* SPDX-License-Identifier: MIT */
/* Sums, rounding, scaling and zeroing of arrays, reference twin. */
#ifndef REAL
#include <string.h>

#include "kernels/cpu/cpu.h"

#define FAMILY "kernels/cpu/elementwise.c"
#include "kernels/cpu/each_type.h"
#else

struct NAME(elementwise) {
    const REAL *x, *y;
    const WIDE *precise;
    REAL *out;
    double factor;
};

static void NAME(add_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(elementwise) *s = arg;

    for (int64_t i = begin; i < end; i++) s->out[i] = PUT((double)GET(s->x[i]) + GET(s->y[i]));
}

void NAME(add)(struct kernel_context *c, int64_t n, const void *x, const void *y, void *out)
{
    struct NAME(elementwise) s = {.x = x, .y = y, .out = out};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(add_range), &s);
}

static void NAME(narrow_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(elementwise) *s = arg;

    for (int64_t i = begin; i < end; i++) s->out[i] = PUT(s->precise[i]);
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

static void NAME(scale_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(elementwise) *s = arg;

    for (int64_t i = begin; i < end; i++) s->out[i] = PUT(GET(s->out[i]) * s->factor);
}

void NAME(scale)(struct kernel_context *c, int64_t n, double factor, void *x)
{
    struct NAME(elementwise) s = {.out = x, .factor = factor};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(scale_range), &s);
}

static void NAME(zero_range)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(elementwise) *s = arg;

    memset(s->out + begin, 0, (size_t)(end - begin) * sizeof *s->out);
}

void NAME(zero)(struct kernel_context *c, int64_t n, void *x)
{
    struct NAME(elementwise) s = {.out = x};

    cpu_for_ranges(c, n, cpu_rows_grain(1), NAME(zero_range), &s);
}
#endif
