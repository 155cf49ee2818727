/* SPDX-License-Identifier: MIT */
/* Launches a kernel of ptx_checks.cu, with its bug or without; p has 63 floats of zeros, q 64, half of them set. */
#ifndef CUDASIM_PTX_CHECKS_H
#define CUDASIM_PTX_CHECKS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C"
#endif
    void
    ptx_launch_check(const char *name, int bad, void *p, void *q, cudaStream_t stream);

#endif
