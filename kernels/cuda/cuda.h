/* SPDX-License-Identifier: MIT */
/* The launchers of CUDA kernels: <kernel>_<compute type>_cuda, with the arguments of kernels.def. For C and for C++. */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KERNEL(name, family, arguments, help)                                                                          \
    void name##_bfloat16_cuda arguments;                                                                               \
    void name##_float32_cuda arguments;                                                                                \
    void name##_float64_cuda arguments;
#include "kernels/kernels.def"
#undef KERNEL

#ifdef __cplusplus
}
#endif
#endif
