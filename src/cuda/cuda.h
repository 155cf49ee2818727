/* SPDX-License-Identifier: MIT */
/*
 * What the files of the CUDA plugin share: the device behind struct device, its streams, and how failures are kept.
 *
 * One thread uses a device: the one that opened it, whose current device it is. No work goes to the legacy default
 * stream; streams do not wait for it either.
 */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "device/device.h"
#include "kernels/cuda/launch.h" /* kernel_stream, kernel_fail, kernel_check: in device.c */
#include "kernels/kernels.h"

struct cuda_device {
    struct device base; /* first */
    int index;          /* among the GPUs that the process sees */
    cudaStream_t main;
    struct gemm_plans *gemm_plans;    /* owned; NULL before the first product */
    struct cuda_attention *attention; /* owned; NULL before kernels of bfloat16 were asked for */
    struct nvml *nvml;                /* owned; NULL where there are no sensors */
    err_t failed;                     /* sticky: the first failure, which every later call returns */
    struct error error;
};

struct stream {
    cudaStream_t handle;
};

struct event {
    cudaEvent_t handle;
};

/* Makes a device of the plugin; see device/plugin.h. */
err_t cuda_device_create(struct device **out, const struct device_options *options, struct error *e) MUST_CHECK;

static inline struct cuda_device *cuda_device_of(struct device *d) { return (struct cuda_device *)d; }

static inline cudaStream_t cuda_stream(struct device *d, const struct stream *s)
{
    return s ? s->handle : cuda_device_of(d)->main;
}

/* Keeps a failure in the device, for this call and all later ones. what: the call that told of it,
 * "cudaMemcpyAsync". */
err_t cuda_fail(struct device *d, const char *what, const char *reason, struct error *e);

/* ERR_NONE for cudaSuccess. Of a device that has failed: its failure. */
err_t cuda_check(struct device *d, const char *what, cudaError_t code, struct error *e) MUST_CHECK;

#endif
