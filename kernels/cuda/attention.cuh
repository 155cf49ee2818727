/* SPDX-License-Identifier: MIT */
/* What the two implementations of attention share: which keys a query may see, which piece of work a block is. */
#ifndef KERNELS_CUDA_ATTENTION_CUH
#define KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/device.cuh"

/* The keys [*first, *end) that query i of a sequence may see, none where i is not one. starts: document_start of the
 * sequence, or NULL. */
static __device__ __forceinline__ void visible_keys(const struct attention &a, const int32_t *starts, int64_t i,
                                                    int *first, int *end)
{
    int64_t from = starts && i < a.length ? starts[i] : 0;

    if (a.window > 0 && i - a.window + 1 > from) from = i - a.window + 1;
    *first = (int)(from > 0 ? from : 0);
    *end = (int)(i >= a.length ? 0 : a.causal ? i + 1 : a.length);
}

/* Slices of the result's columns, then tiles of rows, then heads, then sequences. */
struct place {
    int slice, tile;
    int64_t head, sequence;
};

static __device__ __forceinline__ struct place place_of(int64_t block, int slices, int tiles_n, int64_t heads)
{
    struct place p;

    p.slice = (int)(block % slices);
    p.tile =
        tiles_n - 1 - (int)(block / slices % tiles_n); /* where queries see what is before them, the longest first */
    p.head = block / slices / tiles_n % heads;
    p.sequence = block / slices / tiles_n / heads;
    return p;
}

/* Arguments of a backward pass over some sequences and heads. delta: sum of dout * out, placed like lse. */
template <class T> struct backward {
    struct attention a; /* of the sequences and heads in work */
    const T *q, *k, *v, *dout;
    const wide_of<T> *lse, *delta;
    T *dq, *dk, *dv;
};

/* On the tensor cores (attention_tensor.cu): false, and nothing done, where the shape or an alignment does not fit. */
bool attention_tensor_forward(struct kernel_context *c, const struct attention *a, const bf16 *q, const bf16 *k,
                              const bf16 *v, bf16 *out, float *lse);
bool attention_tensor_backward(struct kernel_context *c, const backward<bf16> &b); /* delta is there */

#endif
