/* SPDX-License-Identifier: MIT */
/* Sums over whole arrays, reference twin. */
#ifndef REAL
#include "kernels/cpu/cpu.h"

#define ALL_WIDE
#define FAMILY "kernels/cpu/reduce.c"
#include "kernels/cpu/each_type.h"
#else

static double NAME(sum_squares_range)(void *arg, int64_t begin, int64_t end)
{
    const REAL *x = arg;
    double sum = 0;

    for (int64_t i = begin; i < end; i++) sum += (double)x[i] * x[i];
    return sum;
}

void NAME(sum_squares)(struct kernel_context *c, int64_t n, const wide *x, double *sum)
{
    *sum += cpu_sum_ranges(c, n, cpu_rows_grain(1), NAME(sum_squares_range), (void *)(uintptr_t)x);
}
#endif
