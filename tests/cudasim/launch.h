/* SPDX-License-Identifier: MIT */
/* What launch.cu gives to test_launch.c. */
#ifndef CUDASIM_LAUNCH_H
#define CUDASIM_LAUNCH_H

#include <stddef.h>

struct CUstream_st;
#ifdef __cplusplus
extern "C" {
#endif
void launch_scale(float *x, int n, float add, struct CUstream_st *stream); /* x[i] = 2 x[i] + add */
void launch_reverse(float *x, int n, size_t shared, struct CUstream_st *stream);
const void *kernel_reverse(void);
const void *kernel_scale(void);
const void *variable_launches(void); /* int: how often scale ran */
#ifdef __cplusplus
}
#endif

#endif
