/* SPDX-License-Identifier: MIT */
/* Sums over whole arrays on vectors, float32, added in double. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

static double sum_squares_range(void *arg, int64_t begin, int64_t end)
{
    const float *x = arg;
    vecd sum[4] = {vecd_zero(), vecd_zero(), vecd_zero(), vecd_zero()};
    double rest = 0;
    int64_t i = begin;

    for (; i + 4 * VECD_WIDTH <= end; i += 4 * VECD_WIDTH)
        for (int j = 0; j < 4; j++) {
            vecd y = vecd_load_floats(x + i + j * VECD_WIDTH);

            sum[j] = vecd_fma(y, y, sum[j]);
        }
    for (; i < end; i++) rest += (double)x[i] * x[i];
    return rest + vecd_sum(vecd_add(vecd_add(sum[0], sum[1]), vecd_add(sum[2], sum[3])));
}

void VEC_LEVEL(sum_squares_float32)(struct kernel_context *c, int64_t n, const wide *x, double *sum)
{
    *sum += cpu_sum_ranges(c, n, cpu_rows_grain(1), sum_squares_range, (void *)(uintptr_t)x);
}
