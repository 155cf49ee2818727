/* SPDX-License-Identifier: MIT */
/* Attention for AVX-512; see attention_fast.inc. */
#if defined(__AVX512F__)
#include "kernels/cpu/attention_fast.inc"
#else
typedef int no_avx512_here; /* another architecture: nothing to compile */
#endif
