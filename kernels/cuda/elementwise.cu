/* SPDX-License-Identifier: MIT */
/*
 * Sums, rounding, scaling and zeroing of arrays.
 *
 * Mapping: a thread takes 16 bytes of compute type, blocks of 256, a grid that covers the array (`each`). All are bound
 * by memory: per element of bfloat16 (float32) add moves 6 (12) bytes, scale 4 (8), narrow 6, accumulate 12 of wide,
 * with one or two operations each, 0.3 per byte where the device has 14. All loads of a thread are issued before the
 * first is used and occupancy is full, so they should run at 90% of the memory's rate or better. zero is a memset.
 */
#include "kernels/cuda/device.cuh"

template <class T> struct add_body {
    const T *x, *y;
    T *out; /* may be x or y */

    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        wide_of<T> a[N], b[N];

        read(a, x + i);
        read(b, y + i);
#pragma unroll
        for (int k = 0; k < N; k++) a[k] += b[k];
        write(out + i, a);
    }
};

template <class T> static void add(struct kernel_context *c, int64_t n, const void *x, const void *y, void *out)
{
    launch_each<PACK<T>>(c, "add", n, are_aligned(x, y, out), add_body<T>{(const T *)x, (const T *)y, (T *)out});
}
LAUNCHERS(add, (struct kernel_context * c, int64_t n, const void *x, const void *y, void *out), (c, n, x, y, out))

template <class T> struct scale_body {
    T *x;
    wide_of<T> factor;

    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        wide_of<T> a[N];

        read(a, x + i);
#pragma unroll
        for (int k = 0; k < N; k++) a[k] *= factor;
        write(x + i, a);
    }
};

template <class T> static void scale(struct kernel_context *c, int64_t n, double factor, void *x)
{
    launch_each<PACK<T>>(c, "scale", n, are_aligned(x), scale_body<T>{(T *)x, (wide_of<T>)factor});
}
LAUNCHERS(scale, (struct kernel_context * c, int64_t n, double factor, void *x), (c, n, factor, x))

template <class T> static void zero(struct kernel_context *c, int64_t n, void *x)
{
    if (n > 0 && !c->failed) kernel_check(c, "zero", cudaMemsetAsync(x, 0, (size_t)n * sizeof(T), kernel_stream(c)));
}
LAUNCHERS(zero, (struct kernel_context * c, int64_t n, void *x), (c, n, x))

template <class T> struct narrow_body {
    const wide_of<T> *x;
    T *out;

    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        wide_of<T> a[N];

        read(a, x + i);
        write(out + i, a);
    }
};

template <class T> static void narrow(struct kernel_context *c, int64_t n, const wide *x, void *out)
{
    launch_each<PACK<T>>(c, "narrow", n, are_aligned(x, out), narrow_body<T>{(const wide_of<T> *)x, (T *)out});
}
LAUNCHERS(narrow, (struct kernel_context * c, int64_t n, const wide *x, void *out), (c, n, x, out))

template <class W> static void accumulate(struct kernel_context *c, int64_t n, const wide *x, wide *sum)
{
    launch_each<PACK<W>>(c, "accumulate", n, are_aligned(x, sum), add_body<W>{(const W *)sum, (const W *)x, (W *)sum});
}
LAUNCHERS_WIDE(accumulate, (struct kernel_context * c, int64_t n, const wide *x, wide *sum), (c, n, x, sum))
