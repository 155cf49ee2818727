/* SPDX-License-Identifier: MIT */
/* Kernels for test_launch.c. */
#include "launch.h"

__constant__ float factors[4] = {1, 2, 3, 4};
__device__ int launches;

/* x[i] = factors[1] * x[i] + add */
__global__ void scale(float *x, int n, float add)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = factors[1] * x[i] + add;
    if (i == 0) atomicAdd(&launches, 1);
}

template <typename T> __global__ void reverse(T *x)
{
    extern __shared__ char memory[];
    T *held = (T *)memory;
    held[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

extern "C" void launch_scale(float *x, int n, float add, cudaStream_t stream)
{
    scale<<<(n + 63) / 64, 64, 0, stream>>>(x, n, add);
}

extern "C" void launch_reverse(float *x, int n, size_t shared, cudaStream_t stream)
{
    reverse<float><<<1, n, shared, stream>>>(x);
}

extern "C" const void *kernel_reverse(void) { return (const void *)reverse<float>; }

extern "C" const void *kernel_scale(void) { return (const void *)scale; }

extern "C" const void *variable_launches(void) { return &launches; }
