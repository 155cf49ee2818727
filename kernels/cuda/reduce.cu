/* SPDX-License-Identifier: MIT */
/*
 * Sums over whole arrays.
 *
 * Mapping: at most SUM_PARTS blocks of 256 threads, each with 16 bytes at a time of its own places; each block leaves
 * a double in the workspace, a second kernel of one block adds them. Which thread adds what depends on n alone: not on
 * the alignment, not on the device. Bound by memory: 4 bytes an element of float32, 1.2 thousand billion elements a
 * second, each one conversion to double (16 per multiprocessor and cycle: 3.7 thousand billion) and one fused
 * multiply-add.
 */
#include "kernels/cuda/sums.cuh"

constexpr int THREADS = 256;

template <class W>
static __global__ void __launch_bounds__(THREADS) sum_squares_parts(int64_t n, bool aligned, const W *x, double *parts)
{
    constexpr int N = PACK<W>;
    __shared__ double room[WARP];
    double sum = 0;

    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; i < n; i += (int64_t)gridDim.x * THREADS * N) {
        W v[N];

        if (aligned && i + N <= n) {
            load(v, x + i);
        } else {
#pragma unroll
            for (int k = 0; k < N; k++) v[k] = i + k < n ? x[i + k] : (W)0;
        }
#pragma unroll
        for (int k = 0; k < N; k++) sum = fma((double)v[k], (double)v[k], sum);
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <class W> static void sum_squares(struct kernel_context *c, int64_t n, const wide *x, double *sum)
{
    const int64_t blocks = blocks_for(n, THREADS * PACK<W>), parts = blocks < SUM_PARTS ? blocks : SUM_PARTS;
    double *room = (double *)c->workspace;

    if (n == 0 || !has_workspace(c, "sum_squares", SUM_PARTS * sizeof *room)) return;
    launch(c, "sum_squares", sum_squares_parts<W>, parts, THREADS, n, is_aligned(x), (const W *)x, room);
    launch(c, "sum_squares", add_parts, 1, SUM_PARTS, (const double *)room, (int)parts, sum);
}
LAUNCHERS_WIDE(sum_squares, (struct kernel_context * c, int64_t n, const wide *x, double *sum), (c, n, x, sum))
