/* SPDX-License-Identifier: MIT */
/*
 * Rotary position embedding in the half-split layout (Su et al. 2021), in place.
 *
 * Mapping: a block goes over the pairs of one token, a thread over 16 bytes of first halves and the 16 of second
 * halves that belong to them; blocks loop over tokens. Bound by memory: 4 bytes an element of bfloat16 (8 of float32),
 * read and written once. The tables, 4 bytes for each 2 elements, are shared by all heads of a token and come out of
 * the first cache: twice the bytes of x at most, where that cache has six times the memory's rate.
 */
#include "kernels/cuda/device.cuh"

constexpr int MOST_THREADS = 256;

template <class T, int N>
static __global__ void __launch_bounds__(MOST_THREADS)
    rotate(int64_t tokens, int vectors, int vectors_of_head, int64_t ld, const wide_of<T> *cos_table,
           const wide_of<T> *sin_table, const int32_t *positions, wide_of<T> sign, T *x)
{
    typedef wide_of<T> W;
    const int64_t half = (int64_t)vectors_of_head * N;

    for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
        const int64_t row = positions[token] * half;

        for (int vector = threadIdx.x; vector < vectors; vector += blockDim.x) {
            const int head = vector / vectors_of_head, at = (vector - head * vectors_of_head) * N;
            T *first = x + token * ld + head * 2 * half + at, *second = first + half;
            W a[N], b[N], cosine[N], sine[N], out[N];

            read(a, first);
            read(b, second);
            load(cosine, cos_table + row + at);
            load(sine, sin_table + row + at);
#pragma unroll
            for (int k = 0; k < N; k++) {
                out[k] = a[k] * cosine[k] - b[k] * (sign * sine[k]);
                b[k] = b[k] * cosine[k] + a[k] * (sign * sine[k]);
            }
            write(first, out);
            write(second, b);
        }
    }
}

template <class T>
static void rope(struct kernel_context *c, int64_t t, int64_t heads, int64_t head_dim, int64_t ld,
                 const wide *cos_table, const wide *sin_table, const int32_t *positions, bool inverse, void *x)
{
    typedef wide_of<T> W;
    const int64_t half = head_dim / 2;
    const bool aligned = half % PACK<T> == 0 && ld % PACK<T> == 0 && are_aligned(cos_table, sin_table, x);
    const int64_t of_head = aligned ? half / PACK<T> : half, vectors = heads * of_head;
    const int64_t warps = (vectors + WARP - 1) / WARP,
                  threads = warps * WARP < MOST_THREADS ? warps * WARP : MOST_THREADS;

    if (vectors == 0) return;
    launch(c, "rope", aligned ? rotate<T, PACK<T>> : rotate<T, 1>, blocks_for(t, 1), (int)threads, t, (int)vectors,
           (int)of_head, ld, (const W *)cos_table, (const W *)sin_table, positions, (W)(inverse ? -1 : 1), (T *)x);
}
LAUNCHERS(rope,
          (struct kernel_context * c, int64_t t, int64_t heads, int64_t head_dim, int64_t ld, const wide *cos_table,
           const wide *sin_table, const int32_t *positions, bool inverse, void *x),
          (c, t, heads, head_dim, ld, cos_table, sin_table, positions, inverse, x))
