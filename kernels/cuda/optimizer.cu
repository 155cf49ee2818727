/* SPDX-License-Identifier: MIT */
/*
 * AdamW (Loshchilov, Hutter 2019, algorithm 2) and the clipping factor.
 *
 * adamw: a thread takes 16 bytes of each of four arrays, blocks of 256, a grid that covers them (`each`). 28 bytes an
 * element of float32 (four reads, three writes): 170 billion elements a second, with some 40 instructions each (a root
 * and two divisions, exact) a quarter of what the schedulers issue. Bound by memory; four independent 16 byte loads a
 * thread keep it busy at half the occupancy.
 *
 * clip: one thread; so that the host need not wait for the norm.
 */
#include "kernels/cuda/device.cuh"

template <class W> struct adamw_body {
    const W *gradient;
    W *parameter, *first, *second;
    const double *gradient_scale;                                                            /* on the device */
    W lr, beta1, beta2, rest1, rest2, eps, weight_decay, bias_correction1, bias_correction2; /* rest: 1 - beta */

    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        const W factor = (W)*gradient_scale;
        W g[N], p[N], m[N], v[N];

        load(g, gradient + i);
        load(p, parameter + i);
        load(m, first + i);
        load(v, second + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const W x = g[k] * factor;

            m[k] = beta1 * m[k] + rest1 * x;
            v[k] = beta2 * v[k] + rest2 * x * x;
            p[k] -= lr * (m[k] / bias_correction1 / (sqrt(v[k] / bias_correction2) + eps) + weight_decay * p[k]);
        }
        store(parameter + i, p);
        store(first + i, m);
        store(second + i, v);
    }
};

template <class W>
static void adamw(struct kernel_context *c, const struct adamw_step *s, const double *gradient_scale, int64_t n,
                  const wide *gradient, wide *parameter, wide *first, wide *second)
{
    const adamw_body<W> body = {(const W *)gradient,
                                (W *)parameter,
                                (W *)first,
                                (W *)second,
                                gradient_scale,
                                (W)s->lr,
                                (W)s->beta1,
                                (W)s->beta2,
                                (W)(1 - s->beta1),
                                (W)(1 - s->beta2),
                                (W)s->eps,
                                (W)s->weight_decay,
                                (W)s->bias_correction1,
                                (W)s->bias_correction2};

    launch_each<PACK<W>>(c, "adamw", n, are_aligned(gradient, parameter, first, second), body);
}
LAUNCHERS_WIDE(adamw,
               (struct kernel_context * c, const struct adamw_step *s, const double *gradient_scale, int64_t n,
                const wide *gradient, wide *parameter, wide *first, wide *second),
               (c, s, gradient_scale, n, gradient, parameter, first, second))

static __global__ void clip_one(const double *sum_squares, double max_norm, double *norm, double *factor)
{
    const double root = sqrt(*sum_squares), most = max_norm / (root + 1e-6);

    *norm = root;
    *factor = max_norm > 0 && most < 1.0 ? most : 1.0; /* a NaN gives 1 */
}

template <class W>
static void clip(struct kernel_context *c, const double *sum_squares, double max_norm, double *norm, double *factor)
{
    launch(c, "clip", clip_one, 1, 1, sum_squares, max_norm, norm, factor);
}
LAUNCHERS_WIDE(clip,
               (struct kernel_context * c, const double *sum_squares, double max_norm, double *norm, double *factor),
               (c, sum_squares, max_norm, norm, factor))
