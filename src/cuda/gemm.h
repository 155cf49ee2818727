/* SPDX-License-Identifier: MIT */
/* Products of matrices by cublasLt. */
#ifndef CUDA_GEMM_H
#define CUDA_GEMM_H

#include "kernels/kernels.h"

/*
 * out[m,n] = alpha * op(a)[m,k] op(b)[k,n], plus out where accumulate, for `batch` products whose operands are stride_*
 * elements apart. Row-major; ld* is the distance of rows in elements; op transposes when asked. Operands have the type
 * `type`, the result out_type: the same, or its wide type. Sums are in float32 or better, in an order that is the same
 * in every run.
 */
struct cuda_gemm {
    enum dtype type, out_type;
    bool transpose_a, transpose_b, accumulate;
    int64_t m, n, k, lda, ldb, ldo;
    int batch; /* 0 is 1 */
    int64_t stride_a, stride_b, stride_out;
    double alpha; /* as it is: 0 gives zeros */
};

void cuda_gemm(struct kernel_context *c, const struct cuda_gemm *g, const void *a, const void *b, void *out);

/* What a device knows of the products it has done: cublasLt's handle, and a plan for each shape. NULL is fine. */
struct gemm_plans;
void gemm_plans_destroy(struct gemm_plans *p);

#endif
