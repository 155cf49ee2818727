/* SPDX-License-Identifier: MIT */
/* Sums between blocks: each block of a first kernel leaves a double in the workspace, a second kernel adds. */
#ifndef KERNELS_CUDA_SUMS_CUH
#define KERNELS_CUDA_SUMS_CUH

#include "kernels/cuda/device.cuh"

constexpr int SUM_PARTS = 1024; /* blocks of the first kernel at most, doubles in the workspace */

/* *sum += parts[0, n), by one block of SUM_PARTS threads. */
static __global__ void __launch_bounds__(SUM_PARTS) add_parts(const double *parts, int n, double *sum)
{
    __shared__ double room[WARP];
    double total = block_sum(threadIdx.x < n ? parts[threadIdx.x] : 0.0, room);

    if (threadIdx.x == 0) *sum += total;
}

#endif
