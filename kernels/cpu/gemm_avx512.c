/* SPDX-License-Identifier: MIT */
/* The matrix product for AVX-512; see gemm_fast.inc. */
#if defined(__AVX512F__)
#include "kernels/cpu/gemm_fast.inc"
#else
typedef int no_avx512_here; /* another architecture: nothing to compile */
#endif
