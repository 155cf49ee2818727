/* SPDX-License-Identifier: MIT */
/*
 * What launchers of kernels need of the device's host code (src/cuda): the stream to launch on, and where a failure
 * goes. For C and for C++.
 */
#ifndef KERNELS_CUDA_LAUNCH_H
#define KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_context;

/* The stream of a context: the device's main stream where the context names none. */
cudaStream_t kernel_stream(const struct kernel_context *c);

/* Keeps a failure in the context and in its device; the first one stays. what: the kernel or the call that failed. */
void kernel_fail(struct kernel_context *c, const char *what, const char *reason);
void kernel_check(struct kernel_context *c, const char *what, cudaError_t code); /* cudaSuccess: nothing happens */

#ifdef __cplusplus
}
#endif
#endif
