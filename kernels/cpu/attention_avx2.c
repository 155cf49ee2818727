/* SPDX-License-Identifier: MIT */
/* Attention for AVX2 and FMA; see attention_fast.inc. */
#if defined(__AVX2__)
#include "kernels/cpu/attention_fast.inc"
#else
typedef int no_avx2_here; /* another architecture: nothing to compile */
#endif
