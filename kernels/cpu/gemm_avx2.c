/* SPDX-License-Identifier: MIT */
/* The matrix product for AVX2 and FMA; see gemm_fast.inc. */
#if defined(__AVX2__)
#include "kernels/cpu/gemm_fast.inc"
#else
typedef int no_avx2_here; /* another architecture: nothing to compile */
#endif
