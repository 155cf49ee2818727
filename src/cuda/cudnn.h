/* SPDX-License-Identifier: MIT */
/*
 * Attention by cuDNN: the fast way on Hopper and newer GPUs, where cuDNN is installed. attention.c takes it where it
 * can be taken, and its own kernels elsewhere.
 *
 *     cudnn_open                      once for a device; fails where there is no cuDNN: attention goes on without it
 *     cudnn_attention_prepare         at set-up, for each shape of the run: compiles, about a second a shape
 *     cudnn_attention_workspace_bytes of the shapes that are prepared
 *     cudnn_attention_forward, _backward
 *
 * What is meant by q, k, v, out, lse and the gradients is said in kernels.def, lse included: cuDNN's statistics are the
 * same log-sum-exps, [sequences, heads, length] float32. One thing less is done: every query must see itself
 * (document_start[i] <= i), which packed documents do.
 *
 * A struct cudnn is used by one thread, that of its device.
 */
#ifndef CUDA_CUDNN_H
#define CUDA_CUDNN_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"

struct CUstream_st;
struct cudnn; /* the library's handle, and the plans of the shapes seen so far */

struct cudnn_options {
    size_t fixed_order_bytes; /* the same bits in each run, where that costs at most so much workspace
                                 (attention_graph.h); SIZE_MAX = always */
    const char *properties;   /* NULL: the GPU that this thread uses; else plans only, see cudnn_target_open */
};

/* ERR_UNSUPPORTED: libcudnn.so.9 is nowhere or too old, or the plugin was built without its headers. ERR_DEVICE: it
 * cannot use the GPU. The message is the reason alone. */
err_t cudnn_open(struct cudnn **out, const struct cudnn_options *options, struct error *e) MUST_CHECK;
void cudnn_close(struct cudnn *c); /* NULL is fine; the device must be idle */

void cudnn_version(const struct cudnn *c, char *text, size_t bytes); /* "9.19.0" */

/* Whether the shape is one that could be prepared, by rules alone: ERR_UNSUPPORTED says why not. What engines there are
 * is known to cudnn_attention_prepare. */
err_t cudnn_attention_supports(const struct attention *a, enum dtype compute, struct error *e) MUST_CHECK;

/* Plans for the shape, kept until cudnn_close; a shape that was prepared costs a look-up. The scale is no part of the
 * shape, and document_start only by being NULL or not. A refusal is kept too: it is returned again at once. */
err_t cudnn_attention_prepare(struct cudnn *c, const struct attention *a, enum dtype compute, bool with_backward,
                              struct error *e) MUST_CHECK;

/* Device memory that forward or backward wants for this shape, 0 if it is not prepared. */
size_t cudnn_attention_workspace_bytes(const struct cudnn *c, const struct attention *a, bool is_backward);

/*
 * The kernels of kernels.def, given to `stream`. Shapes that are not prepared are prepared now, at the cost of a pause.
 * workspace: device memory of at least cudnn_attention_workspace_bytes; it is free again when the
 * stream has come past this. Arrays must be aligned to 16 bytes.
 * ERR_RANGE: the workspace is too small. ERR_UNSUPPORTED: as prepare. ERR_DEVICE: cuDNN failed.
 */
err_t cudnn_attention_forward(struct cudnn *c, const struct attention *a, const void *q, const void *k, const void *v,
                              void *out, void *lse, void *workspace, size_t workspace_bytes, struct CUstream_st *stream,
                              struct error *e) MUST_CHECK;
err_t cudnn_attention_backward(struct cudnn *c, const struct attention *a, const void *q, const void *k, const void *v,
                               const void *out, const void *lse, const void *dout, void *dq, void *dk, void *dv,
                               void *workspace, size_t workspace_bytes, struct CUstream_st *stream,
                               struct error *e) MUST_CHECK;

#endif
