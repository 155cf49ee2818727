/* SPDX-License-Identifier: MIT */
/*
 * What the CPU's kernels share: their prototypes and how loops are spread over threads.
 *
 * Chunks are fixed by the size of the problem, never by the number of threads, and each result is computed by one chunk
 * in one order: so the bits do not depend on the threads.
 */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "base/bfloat16.h"
#include "kernels/kernels.h"

/* A kernel and its wide twin are one function where the compute type is wide itself. */
#define gemm_wide_float32 gemm_float32
#define gemm_wide_float64 gemm_float64
#define gemm_wide_float32_avx2 gemm_float32_avx2
#define gemm_wide_float64_avx2 gemm_float64_avx2
#define gemm_wide_float32_avx512 gemm_float32_avx512
#define gemm_wide_float64_avx512 gemm_float64_avx512
/* A kernel that sees nothing but wide data is that of the wide type. */
#define accumulate_bfloat16 accumulate_float32
#define adamw_bfloat16 adamw_float32
#define clip_bfloat16 clip_float32
#define sum_squares_bfloat16 sum_squares_float32
#define accumulate_bfloat16_avx2 accumulate_float32_avx2
#define adamw_bfloat16_avx2 adamw_float32_avx2
#define sum_squares_bfloat16_avx2 sum_squares_float32_avx2
#define accumulate_bfloat16_avx512 accumulate_float32_avx512
#define adamw_bfloat16_avx512 adamw_float32_avx512
#define sum_squares_bfloat16_avx512 sum_squares_float32_avx512
/* One number needs no vectors. */
#define clip_float32_avx2 clip_float32
#define clip_float32_avx512 clip_float32
#define clip_bfloat16_avx2 clip_float32
#define clip_bfloat16_avx512 clip_float32

/* <kernel>_float32, _float64 and _bfloat16 are the references. _avx2 and _avx512 are the fast twins; which families
 * have them is said in kernels/kernels.c. */
#define KERNEL(name, family, arguments, help)                                                                          \
    void name##_float32 arguments;                                                                                     \
    void name##_float64 arguments;                                                                                     \
    void name##_float32_avx2 arguments;                                                                                \
    void name##_float64_avx2 arguments;                                                                                \
    void name##_bfloat16 arguments;                                                                                    \
    void name##_bfloat16_avx2 arguments;                                                                               \
    void name##_bfloat16_avx512 arguments;                                                                             \
    void name##_float32_avx512 arguments;                                                                              \
    void name##_float64_avx512 arguments;
#include "kernels/kernels.def"
#undef KERNEL

/* Bytes of workspace that the fast twins use. */
size_t gemm_workspace_float32_avx2(int threads);
size_t gemm_workspace_float64_avx2(int threads);
size_t gemm_workspace_float32_avx512(int threads);
size_t gemm_workspace_float64_avx512(int threads);
size_t gemm_workspace_bfloat16_avx2(int threads);
size_t gemm_workspace_bfloat16_avx512(int threads);
size_t attention_workspace_float32_avx2(int threads);
size_t attention_workspace_float32_avx512(int threads);
size_t attention_workspace_bfloat16_avx2(int threads);
size_t attention_workspace_bfloat16_avx512(int threads);

struct pool *cpu_pool(const struct kernel_context *c); /* NULL: one thread */

typedef void (*range_task)(void *arg, int64_t begin, int64_t end);

/* Calls task for the ranges [0, grain), [grain, 2 grain), ... that cover [0, n), in parallel. */
void cpu_for_ranges(struct kernel_context *c, int64_t n, int64_t grain, range_task task, void *arg);

/* Rows of `width` elements to a range, so that a range is worth waking a thread for. */
int64_t cpu_rows_grain(int64_t width);

/* Sums over ranges: at most SUM_RANGES partial sums, added in the order of the ranges. */
enum { SUM_RANGES = 512 };
typedef double (*range_sum)(void *arg, int64_t begin, int64_t end);
double cpu_sum_ranges(struct kernel_context *c, int64_t n, int64_t grain, range_sum task, void *arg);

/* Workers that share a counter of work items and each own a slice of the workspace, for kernels that need scratch
 * memory. Calls task(arg, item, scratch) for every item in [0, n). scratch has scratch_bytes, aligned to 64. */
typedef void (*item_task)(void *arg, int64_t item, void *scratch);
void cpu_for_items(struct pool *p, int64_t n, void *workspace, size_t scratch_bytes, item_task task, void *arg);

/* The keys [*first, *end) that query i of a sequence may see; start is document_start of the sequence or NULL. */
static inline void attention_keys(const struct attention *a, const int32_t *start, int64_t i, int64_t *first,
                                  int64_t *end)
{
    *first = start ? start[i] : 0;
    if (a->window > 0 && i - a->window + 1 > *first) *first = i - a->window + 1;
    if (*first < 0) *first = 0;
    *end = a->causal ? i + 1 : a->length;
}

#endif
