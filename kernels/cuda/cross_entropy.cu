/* SPDX-License-Identifier: MIT */
/*
 * Cross-entropy of softmax and its gradient in place.
 *
 * Mapping: a block of 512 threads for a row, 16 bytes a thread at a time; at most SUM_PARTS blocks, which go on to
 * other rows. One pass finds the maximum and the sum of exponentials together (Milakov, Gimelshein 2018: the sum is
 * rescaled when the maximum grows), a second writes the gradient. Each block adds the losses of its rows in double and
 * leaves the sum in the workspace; a second kernel adds those.
 *
 * Bound by memory: 2 bytes an element of bfloat16 (4 of float32) for the loss alone, 6 (12) with the gradient, 4 (8)
 * as long as the rows in work stay in the second cache: 528 rows of 32k bfloat16 are 34 of its 50 MB. The exponentials
 * are two an element and one more for each 16 bytes: 1.7 thousand billion a second in bfloat16 at the memory's full
 * rate, of the 3.6 thousand billion that the special function units make.
 */
#include "kernels/cuda/sums.cuh"

constexpr int THREADS = 512;

/* Of a set of numbers: the largest, and the sum of exp(x - largest). */
template <class W> struct softmax_state {
    W most, sum;
};

/* exp(x - most), where most may be -inf because nothing but -inf was seen: then x is -inf, or a NaN which gets
 * through. */
template <class T> static __device__ __forceinline__ wide_of<T> weight_of(wide_of<T> x, wide_of<T> most)
{
    return exp_for<T>(x - (most == -CUDART_INF_F ? (wide_of<T>)0 : most));
}

template <class T>
static __device__ __forceinline__ void join(softmax_state<wide_of<T>> &a, wide_of<T> most, wide_of<T> sum)
{
    const wide_of<T> top = larger(a.most, most);

    a.sum = a.sum * weight_of<T>(a.most, top) + sum * weight_of<T>(most, top);
    a.most = top;
}

/* Joins the states of all threads; every thread gets the result. */
template <class T>
static __device__ __forceinline__ void join_block(softmax_state<wide_of<T>> &s, softmax_state<wide_of<T>> *room)
{
    typedef wide_of<T> W;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

    for (int step = 0; step < 2; step++) {
#pragma unroll
        for (int offset = WARP / 2; offset > 0; offset /= 2) {
            const W most = __shfl_xor_sync(ALL_LANES, s.most, offset), sum = __shfl_xor_sync(ALL_LANES, s.sum, offset);

            join<T>(s, most, sum);
        }
        if (step == 1) break;
        __syncthreads(); /* the last row's use of the room is over */
        if (lane == 0) room[warp] = s;
        __syncthreads();
        s.most = lane < THREADS / WARP ? room[lane].most : (W)-CUDART_INF_F;
        s.sum = lane < THREADS / WARP ? room[lane].sum : (W)0;
    }
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_rows(int64_t rows, int v, bool aligned, T *logits, const int32_t *labels, wide_of<T> scale,
                       bool with_gradient, double *parts)
{
    typedef wide_of<T> W;
    __shared__ softmax_state<W> room[WARP];
    double loss = 0; /* of thread 0 */

    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int32_t label = labels[row];
        T *x = logits + row * v;
        softmax_state<W> s = {(W)-CUDART_INF_F, 0};
        double of_label = 0;

        if (label == LABEL_IGNORED) {
            if (with_gradient)
                walk<PACK<T>>(v, aligned, threadIdx.x, THREADS, [&](auto wide, int i) {
                    W zeros[wide.n] = {};

                    write(x + i, zeros);
                });
            continue;
        }
        if (threadIdx.x == 0) of_label = (double)to_wide(x[label]);
        walk<PACK<T>>(v, aligned, threadIdx.x, THREADS, [&](auto wide, int i) {
            W a[wide.n], most, sum = 0;

            read(a, x + i);
            most = a[0];
#pragma unroll
            for (int k = 1; k < wide.n; k++) most = larger(most, a[k]);
            most = larger(s.most, most);
#pragma unroll
            for (int k = 0; k < wide.n; k++) sum += weight_of<T>(a[k], most);
            s.sum = s.sum * weight_of<T>(s.most, most) + sum;
            s.most = most;
        });
        join_block<T>(s, room);
        if (threadIdx.x == 0) loss += log((double)s.sum) + (double)s.most - of_label;
        if (!with_gradient) continue;
        s.sum = 1 / s.sum;
        walk<PACK<T>>(v, aligned, threadIdx.x, THREADS, [&](auto wide, int i) {
            W a[wide.n];

            read(a, x + i);
#pragma unroll
            for (int k = 0; k < wide.n; k++)
                a[k] = scale * (weight_of<T>(a[k], s.most) * s.sum - (W)(i + k == label ? 1 : 0));
            write(x + i, a);
        });
    }
    if (threadIdx.x == 0) parts[blockIdx.x] = loss;
}

template <class T>
static void cross_entropy(struct kernel_context *c, int64_t t, int64_t v, void *logits, const int32_t *labels,
                          double scale, bool with_gradient, double *loss_sum)
{
    const bool aligned = v % PACK<T> == 0 && is_aligned(logits);
    const int64_t blocks = t < SUM_PARTS ? t : SUM_PARTS;
    double *parts = (double *)c->workspace;

    if (t == 0 || !has_workspace(c, "cross_entropy", SUM_PARTS * sizeof *parts)) return;
    launch(c, "cross_entropy", cross_entropy_rows<T>, blocks, THREADS, t, (int)v, aligned, (T *)logits, labels,
           (wide_of<T>)scale, with_gradient, parts);
    launch(c, "cross_entropy", add_parts, 1, SUM_PARTS, (const double *)parts, (int)blocks, loss_sum);
}
LAUNCHERS(cross_entropy,
          (struct kernel_context * c, int64_t t, int64_t v, void *logits, const int32_t *labels, double scale,
           bool with_gradient, double *loss_sum),
          (c, t, v, logits, labels, scale, with_gradient, loss_sum))
