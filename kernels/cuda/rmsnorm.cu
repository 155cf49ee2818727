/* SPDX-License-Identifier: MIT */
/*
 * RMS normalisation (Zhang, Sennrich 2019).
 *
 * rmsnorm_forward, rmsnorm_backward_input: a row is one warp's where it is short (eight rows a block), else one
 * block's; a lane takes 16 bytes at a time. A row is gone over twice, once for its sum and once for the result; the
 * second time it comes out of the first cache (a row of 8192 bfloat16 is 16 KB of 256), and so does the weight, which
 * all rows share. From memory: 4 bytes an element of bfloat16 (8 of float32) forward, 6 (12) backward, 8 (16) where dx
 * is added to; about 2 operations a byte. Bound by memory.
 *
 * rmsnorm_backward_weight: sums over rows for each column. A block takes a strip of 32 * PACK columns (512 bytes of
 * each row, in whole sectors) and a part of the rows, each warp every eighth row of it; the warps' sums are added in
 * shared memory, the parts' by a second kernel. Parts are as many as give 1024 blocks, which fill the device; their
 * sums are 1 MB or so beside 4 bytes an element of x and dy. Bound by memory.
 */
#include "kernels/cuda/device.cuh"

constexpr int THREADS = 256, WARPS = THREADS / WARP;
constexpr int64_t SHORT_ROW_BYTES = 2048; /* of compute type: four vectors a lane */

/* The sum over the threads that share a row. LANES: WARP or THREADS. */
template <int LANES, class W> static __device__ __forceinline__ W row_sum(W x, W *room)
{
    if constexpr (LANES == WARP) return warp_sum(x);
    return block_sum(x, room);
}

template <class T, int LANES>
static __global__ void __launch_bounds__(THREADS)
    forward_rows(int64_t rows, int d, bool aligned, wide_of<T> eps, const T *x, const T *weight, T *y, wide_of<T> *rstd)
{
    typedef wide_of<T> W;
    constexpr int ROWS = THREADS / LANES;
    const int lane = threadIdx.x % LANES;
    __shared__ W room[WARP];

    for (int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / LANES; row < rows; row += (int64_t)gridDim.x * ROWS) {
        const T *from = x + row * d;
        T *to = y + row * d;
        W squares = 0, r;

        walk<PACK<T>>(d, aligned, lane, LANES, [&](auto wide, int i) {
            W v[wide.n];

            read(v, from + i);
#pragma unroll
            for (int k = 0; k < wide.n; k++) squares += v[k] * v[k];
        });
        r = 1 / sqrt(row_sum<LANES>(squares, room) / (W)d + eps);
        walk<PACK<T>>(d, aligned, lane, LANES, [&](auto wide, int i) {
            W v[wide.n], w[wide.n];

            read(v, from + i);
            read(w, weight + i);
#pragma unroll
            for (int k = 0; k < wide.n; k++) v[k] = v[k] * r * w[k];
            write(to + i, v);
        });
        if (rstd && lane == 0) rstd[row] = r;
    }
}

template <class T>
static void rmsnorm_forward(struct kernel_context *c, int64_t t, int64_t d, double eps, const void *x,
                            const void *weight, void *y, wide *rstd)
{
    const bool is_short = d * (int64_t)sizeof(T) <= SHORT_ROW_BYTES;
    const bool aligned = d % PACK<T> == 0 && are_aligned(x, weight, y);

    launch(c, "rmsnorm_forward", is_short ? forward_rows<T, WARP> : forward_rows<T, THREADS>,
           blocks_for(t, is_short ? WARPS : 1), THREADS, t, (int)d, aligned, (wide_of<T>)eps, (const T *)x,
           (const T *)weight, (T *)y, (wide_of<T> *)rstd);
}
LAUNCHERS(rmsnorm_forward,
          (struct kernel_context * c, int64_t t, int64_t d, double eps, const void *x, const void *weight, void *y,
           wide *rstd),
          (c, t, d, eps, x, weight, y, rstd))

template <class T, int LANES>
static __global__ void __launch_bounds__(THREADS)
    backward_rows(int64_t rows, int d, bool aligned, const T *dy, const T *x, const T *weight, const wide_of<T> *rstd,
                  bool accumulate, T *dx)
{
    typedef wide_of<T> W;
    constexpr int ROWS = THREADS / LANES;
    const int lane = threadIdx.x % LANES;
    __shared__ W room[WARP];

    for (int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / LANES; row < rows; row += (int64_t)gridDim.x * ROWS) {
        const T *x_row = x + row * d, *dy_row = dy + row * d;
        T *to = dx + row * d;
        const W r = rstd[row];
        W dot = 0;

        walk<PACK<T>>(d, aligned, lane, LANES, [&](auto wide, int i) {
            W v[wide.n], g[wide.n], w[wide.n];

            read(v, x_row + i);
            read(g, dy_row + i);
            read(w, weight + i);
#pragma unroll
            for (int k = 0; k < wide.n; k++) dot += g[k] * w[k] * v[k];
        });
        dot = row_sum<LANES>(dot, room) * r / (W)d; /* mean of dy * weight * xhat */
        walk<PACK<T>>(d, aligned, lane, LANES, [&](auto wide, int i) {
            W v[wide.n], g[wide.n], w[wide.n], sum[wide.n];

            read(v, x_row + i);
            read(g, dy_row + i);
            read(w, weight + i);
            if (accumulate) read(sum, to + i);
#pragma unroll
            for (int k = 0; k < wide.n; k++) {
                const W gradient = r * (g[k] * w[k] - v[k] * r * dot);

                sum[k] = accumulate ? sum[k] + gradient : gradient;
            }
            write(to + i, sum);
        });
    }
}

template <class T>
static void rmsnorm_backward_input(struct kernel_context *c, int64_t t, int64_t d, const void *dy, const void *x,
                                   const void *weight, const wide *rstd, bool accumulate, void *dx)
{
    const bool is_short = d * (int64_t)sizeof(T) <= SHORT_ROW_BYTES;
    const bool aligned = d % PACK<T> == 0 && are_aligned(dy, x, weight, dx);

    launch(c, "rmsnorm_backward_input", is_short ? backward_rows<T, WARP> : backward_rows<T, THREADS>,
           blocks_for(t, is_short ? WARPS : 1), THREADS, t, (int)d, aligned, (const T *)dy, (const T *)x,
           (const T *)weight, (const wide_of<T> *)rstd, accumulate, (T *)dx);
}
LAUNCHERS(rmsnorm_backward_input,
          (struct kernel_context * c, int64_t t, int64_t d, const void *dy, const void *x, const void *weight,
           const wide *rstd, bool accumulate, void *dx),
          (c, t, d, dy, x, weight, rstd, accumulate, dx))

/* Block (strip of columns, part of the rows): sums of its columns over its rows, into parts[part][d], or added to
 * dweight where there is one part. N columns a lane, side by side. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    weight_parts(int64_t rows, int64_t d, int strips, int64_t rows_of_part, const T *dy, const T *x,
                 const wide_of<T> *rstd, wide_of<T> *parts, wide_of<T> *dweight)
{
    typedef wide_of<T> W;
    __shared__ W sums[WARPS][WARP * N + 1];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t strip = blockIdx.x % strips, part = blockIdx.x / strips;
    const int64_t column = (strip * WARP + lane) * N;
    const int64_t end = (part + 1) * rows_of_part < rows ? (part + 1) * rows_of_part : rows;
    W sum[N] = {};

    if (column < d) /* with N > 1, d is a multiple of N */
        for (int64_t row = part * rows_of_part + warp; row < end; row += WARPS) {
            const W r = rstd[row];
            W v[N], g[N];

            read(v, x + row * d + column);
            read(g, dy + row * d + column);
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += g[k] * (v[k] * r);
        }
#pragma unroll
    for (int k = 0; k < N; k++) sums[warp][lane * N + k] = sum[k];
    __syncthreads();
    for (int i = threadIdx.x; i < WARP * N; i += THREADS) {
        const int64_t at = strip * WARP * N + i;
        W total = 0;

        if (at >= d) break;
        for (int w = 0; w < WARPS; w++) total += sums[w][i];
        if (parts)
            parts[part * d + at] = total;
        else
            dweight[at] += total;
    }
}

template <class W>
static __global__ void __launch_bounds__(THREADS) add_weight_parts(int64_t d, int n, const W *parts, W *dweight)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    W total = 0;

    if (at >= d) return;
    for (int i = 0; i < n; i++) total += parts[i * d + at];
    dweight[at] += total;
}

template <class T, int N>
static void backward_weight(struct kernel_context *c, int64_t t, int64_t d, const T *dy, const T *x,
                            const wide_of<T> *rstd, wide_of<T> *dweight)
{
    constexpr int64_t BLOCKS = 1024, LEAST_ROWS = 4 * WARPS;
    const int64_t strips = blocks_for(d, WARP * N),
                  room = (int64_t)(c->workspace_bytes / ((size_t)d * sizeof *dweight));
    int64_t parts = (t + LEAST_ROWS - 1) / LEAST_ROWS, rows_of_part;

    if (parts > BLOCKS / strips) parts = BLOCKS / strips;
    if (parts > room) parts = room;
    if (parts < 1) parts = 1;
    rows_of_part = (t + parts - 1) / parts;
    launch(c, "rmsnorm_backward_weight", weight_parts<T, N>, strips * parts, THREADS, t, d, (int)strips, rows_of_part,
           dy, x, rstd, parts > 1 ? (wide_of<T> *)c->workspace : (wide_of<T> *)nullptr, dweight);
    if (parts > 1)
        launch(c, "rmsnorm_backward_weight", add_weight_parts<wide_of<T>>, blocks_for(d, THREADS), THREADS, d,
               (int)parts, (const wide_of<T> *)c->workspace, dweight);
}

template <class T>
static void rmsnorm_backward_weight(struct kernel_context *c, int64_t t, int64_t d, const void *dy, const void *x,
                                    const wide *rstd, wide *dweight)
{
    typedef wide_of<T> W;

    if (t == 0 || d == 0) return;
    if (d % PACK<T> == 0 && are_aligned(dy, x))
        backward_weight<T, PACK<T>>(c, t, d, (const T *)dy, (const T *)x, (const W *)rstd, (W *)dweight);
    else
        backward_weight<T, 1>(c, t, d, (const T *)dy, (const T *)x, (const W *)rstd, (W *)dweight);
}
LAUNCHERS(rmsnorm_backward_weight,
          (struct kernel_context * c, int64_t t, int64_t d, const void *dy, const void *x, const wide *rstd,
           wide *dweight),
          (c, t, d, dy, x, rstd, dweight))
