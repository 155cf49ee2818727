/* SPDX-License-Identifier: MIT */
/*
 * What the CUDA kernels share: types, loads of 16 bytes, sums over warps and blocks, loops, and the launch.
 *
 * Every family is a template of the compute type T and the wide type W (kernels.def): values are read as T or W,
 * computed in W, and rounded once when they are stored. Loops over elements come in two widths: PACK elements of 16
 * bytes of T where all arrays are aligned and the length allows it, else one by one; both give the same numbers.
 *
 * Nothing here depends on how many multiprocessors a device has or on the order in which blocks run: sums between
 * blocks go through partial results in the workspace that a second kernel adds in a fixed order. There are no atomics.
 *
 * Rates that the comments of kernels speak of are those of an H200: 4.8 TB/s of memory, 67 TFLOP/s of float32, 132
 * multiprocessors. 16 bytes in flight for each of 2048 threads are 32 KB for each multiprocessor; about 22 KB hide the
 * memory's latency at full rate. So a kernel that reads 16 bytes a thread and whose registers allow full occupancy is
 * bound by memory.
 */
#ifndef KERNELS_CUDA_DEVICE_CUH
#define KERNELS_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.h"

typedef __nv_bfloat16 bf16;

template <class T> struct wide_type {
    typedef T type;
};
template <> struct wide_type<bf16> {
    typedef float type;
};
template <class T> using wide_of = typename wide_type<T>::type;

/* Elements of T in 16 bytes. */
template <class T> constexpr int PACK = 16 / (int)sizeof(T);

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;
constexpr int64_t MOST_BLOCKS = 1 << 20; /* of a launch whose blocks loop */

/* ---- numbers ---- */

__device__ __forceinline__ float to_wide(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_wide(float x) { return x; }
__device__ __forceinline__ double to_wide(double x) { return x; }

template <class T, class W> __device__ __forceinline__ T narrowed(W x) { return (T)x; }
template <> __device__ __forceinline__ bf16 narrowed<bf16, float>(float x) { return __float2bfloat16_rn(x); }

/* Functions for results stored as T: the units' approximations are good to 2^-21, enough for bfloat16 alone. */
template <class T> __device__ __forceinline__ wide_of<T> exp_for(wide_of<T> x) { return exp(x); }
template <> __device__ __forceinline__ float exp_for<float>(float x) { return expf(x); }
template <> __device__ __forceinline__ float exp_for<bf16>(float x) { return __expf(x); }

template <class T> __device__ __forceinline__ wide_of<T> quotient_for(wide_of<T> x, wide_of<T> y) { return x / y; }
template <> __device__ __forceinline__ float quotient_for<bf16>(float x, float y) { return __fdividef(x, y); }

template <class W> __device__ __forceinline__ W larger(W x, W y) { return x > y ? x : y; }
template <> __device__ __forceinline__ float larger<float>(float x, float y) { return fmaxf(x, y); }
template <> __device__ __forceinline__ double larger<double>(double x, double y) { return fmax(x, y); }

/* ---- N elements at once: 16 byte accesses where they make whole ones; then the address must be aligned to 16 ---- */

template <int N, class E> __device__ __forceinline__ void load(E (&to)[N], const E *from)
{
    constexpr int BYTES = N * (int)sizeof(E);

    static_assert(N == 1 || BYTES == 8 || (sizeof(E) >= 4 && BYTES % 16 == 0),
                  "one element, half a vector, or whole ones");
    if constexpr (N == 1) {
        to[0] = from[0];
    } else if constexpr (BYTES == 8) {
        const uint2 bits = *reinterpret_cast<const uint2 *>(from);

        memcpy(to, &bits, 8);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += PACK<E>) {
            const uint4 bits = *reinterpret_cast<const uint4 *>(from + i);

            memcpy(&to[i], &bits, 16);
        }
    }
}

template <int N, class E> __device__ __forceinline__ void store(E *to, const E (&from)[N])
{
    static_assert(N == 1 || (sizeof(E) >= 4 && N * sizeof(E) % 16 == 0), "one element or whole vectors");
    if constexpr (N == 1) {
        to[0] = from[0];
    } else {
#pragma unroll
        for (int i = 0; i < N; i += PACK<E>) {
            uint4 bits;

            memcpy(&bits, &from[i], 16);
            *reinterpret_cast<uint4 *>(to + i) = bits;
        }
    }
}

/* The same with the numbers in the wide type. Two bfloat16 are one word, the first in its lower half; a bfloat16 is the
 * upper half of the float that it means. */
template <int N, class W> __device__ __forceinline__ void read(W (&to)[N], const W *from) { load(to, from); }
template <int N> __device__ __forceinline__ void read(float (&to)[N], const bf16 *from)
{
    if constexpr (N == 1) {
        to[0] = to_wide(*from);
    } else {
        unsigned words[N / 2];

        load(words, reinterpret_cast<const unsigned *>(from));
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            to[2 * i] = __uint_as_float(words[i] << 16);
            to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
    }
}

template <int N, class W> __device__ __forceinline__ void write(W *to, const W (&from)[N]) { store(to, from); }
template <int N> __device__ __forceinline__ void write(bf16 *to, const float (&from)[N])
{
    if constexpr (N == 1) {
        *to = narrowed<bf16>(from[0]);
    } else {
        unsigned words[N / 2];

#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const __nv_bfloat162 two = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);

            memcpy(&words[i], &two, 4);
        }
        store(reinterpret_cast<unsigned *>(to), words);
    }
}

inline bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }
template <class... P> bool are_aligned(const P *...p) { return (is_aligned(p) && ...); }

/* ---- loops ---- */

template <int N> struct width {
    enum { n = N }; /* elements */
};

/* body(width, i) for i in [0, n) of a row, N elements at a time where `aligned`, which n must be a multiple of N for;
 * by `lanes` threads of which this one is `lane`. */
template <int N, class Body> __device__ __forceinline__ void walk(int n, bool aligned, int lane, int lanes, Body body)
{
    if (aligned)
        for (int i = lane * N; i < n; i += lanes * N) body(width<N>{}, i);
    else
        for (int i = lane; i < n; i += lanes) body(width<1>{}, i);
}

constexpr int EACH_THREADS = 256;

/* body.template at<N>(i) for [0, vectors * N), body.template at<1>(i) for the rest of [0, n). */
template <int N, class Body>
static __global__ void __launch_bounds__(EACH_THREADS) each(int64_t n, int64_t vectors, Body body)
{
    const int64_t first = (int64_t)blockIdx.x * EACH_THREADS + threadIdx.x, step = (int64_t)gridDim.x * EACH_THREADS;

    for (int64_t i = first; i < vectors; i += step) body.template at<N>(i * N);
    for (int64_t i = vectors * N + first; i < n; i += step) body.template at<1>(i);
}

/* ---- sums over a warp and a block; every thread gets the result, the order is always the same ---- */

template <class W> __device__ __forceinline__ W warp_sum(W x)
{
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

/* All threads of a block of whole warps must call it; `room` has a place for each warp. */
template <class W> __device__ __forceinline__ W block_sum(W x, W *room)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;

    x = warp_sum(x);
    __syncthreads(); /* the last use of the room is over */
    if (lane == 0) room[warp] = x;
    __syncthreads();
    return warp_sum(lane < warps ? room[lane] : (W)0);
}

/* ---- launches ---- */

inline int64_t blocks_for(int64_t items, int64_t items_of_block)
{
    int64_t blocks = (items + items_of_block - 1) / items_of_block;

    return blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
}

/* name: for the message of a failure. Nothing is launched after one, nor for no blocks. */
template <class... P, class... A>
void launch(struct kernel_context *c, const char *name, void (*kernel)(P...), int64_t blocks, int threads,
            A... arguments)
{
    if (c->failed || blocks == 0) return;
    kernel<<<dim3((unsigned)blocks), dim3((unsigned)threads), 0, kernel_stream(c)>>>(arguments...);
    kernel_check(c, name, cudaGetLastError());
}

template <int N, class Body>
void launch_each(struct kernel_context *c, const char *name, int64_t n, bool aligned, const Body &body)
{
    launch(c, name, each<N, Body>, blocks_for(n, aligned ? EACH_THREADS * N : EACH_THREADS), EACH_THREADS, n,
           aligned ? n / N : (int64_t)0, body);
}

/* A workspace that is too small is a mistake of the device's host code: it is told like a failure. */
inline bool has_workspace(struct kernel_context *c, const char *name, size_t bytes)
{
    if (c->failed || bytes <= c->workspace_bytes) return !c->failed;
    kernel_fail(c, name, "the kernel workspace is too small");
    return false;
}

/* Defines the launchers of one kernel for all compute types: `name` is a template of T with the kernel's arguments. */
#define LAUNCHERS(name, parameters, arguments)                                                                         \
    extern "C" void name##_bfloat16_cuda parameters { name<bf16> arguments; }                                          \
    extern "C" void name##_float32_cuda parameters { name<float> arguments; }                                          \
    extern "C" void name##_float64_cuda parameters { name<double> arguments; }
/* The same for a kernel all of whose arrays are wide. */
#define LAUNCHERS_WIDE(name, parameters, arguments)                                                                    \
    extern "C" void name##_bfloat16_cuda parameters { name<float> arguments; }                                         \
    extern "C" void name##_float32_cuda parameters { name<float> arguments; }                                          \
    extern "C" void name##_float64_cuda parameters { name<double> arguments; }

#endif
