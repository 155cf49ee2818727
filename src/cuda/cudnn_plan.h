/* SPDX-License-Identifier: MIT */
/* One attention graph as a plan of cuDNN: built once for each shape, run many times. */
#ifndef CUDA_CUDNN_PLAN_H
#define CUDA_CUDNN_PLAN_H

#include <cudnn.h>

#include "cuda/attention_graph.h"

#define CUDNN_FUNCTIONS(X)                                                                                             \
    X(cudnnGetVersion)                                                                                                 \
    X(cudnnGetErrorString)                                                                                             \
    X(cudnnGetLastErrorString)                                                                                         \
    X(cudnnCreate)                                                                                                     \
    X(cudnnDestroy)                                                                                                    \
    X(cudnnSetStream)                                                                                                  \
    X(cudnnBackendCreateDescriptor)                                                                                    \
    X(cudnnBackendDestroyDescriptor)                                                                                   \
    X(cudnnBackendSetAttribute)                                                                                        \
    X(cudnnBackendGetAttribute)                                                                                        \
    X(cudnnBackendFinalize)                                                                                            \
    X(cudnnBackendExecute)

/* The library, and the GPU that plans are for. */
struct cudnn_target {
#define X(fn) __typeof__(&fn) fn;
    CUDNN_FUNCTIONS(X)
#undef X
    cudnnHandle_t handle;            /* owned; NULL: only plans, for the GPU that `properties` describes */
    cudnnBackendDescriptor_t device; /* owned; NULL: the handle's GPU */
};

enum { CUDNN_MOST_DESCRIPTORS = GRAPH_MOST_TENSORS + 2 * GRAPH_MOST_OPS + 16 };

struct cudnn_plan {
    struct attention_graph graph;
    cudnnBackendDescriptor_t plan;
    size_t workspace_bytes; /* that cuDNN itself wants */
    cudnnBackendDescriptor_t owned[CUDNN_MOST_DESCRIPTORS];
    int n_owned;
};

/*
 * Opens libcudnn.so.9. properties: NULL for the GPU that this thread uses; else a description of a GPU (cuDNN's JSON),
 * for which plans can be built where there is none.
 * ERR_UNSUPPORTED: the library is missing, or too old. ERR_DEVICE: it cannot use the GPU.
 */
err_t cudnn_target_open(struct cudnn_target *t, const char *properties, struct error *e) MUST_CHECK;
void cudnn_target_close(struct cudnn_target *t);

/* Fills what is missing of p, whose graph is set; the rest is zero. Takes about a second: cuDNN compiles a kernel.
 * ERR_UNSUPPORTED: it made none; the message has cuDNN's reason. */
err_t cudnn_plan_build(struct cudnn_plan *p, const struct cudnn_target *t, struct error *e) MUST_CHECK;
void cudnn_plan_release(struct cudnn_plan *p, const struct cudnn_target *t);

/* Gives the plan to the handle's stream. data: by role, device memory, but host memory for single numbers; NULL for
 * what the graph has not. workspace: device memory of workspace_bytes, aligned to 256 bytes. */
err_t cudnn_plan_run(const struct cudnn_plan *p, const struct cudnn_target *t, const void *const data[GRAPH_ROLES],
                     void *workspace, struct error *e) MUST_CHECK;

#endif
