/* SPDX-License-Identifier: MIT */
/*
 * libcublasLt: products of matrices. lt.c holds descriptors and the rules, lt_product.c computes.
 * The types are numbers of cudaDataType_t and cublasComputeType_t.
 */
#ifndef CUDASIM_LT_H
#define CUDASIM_LT_H

#include "stream.h"

struct lt_layout {
    uint32_t magic;
    int type;
    uint64_t rows, columns;
    int64_t ld, batch_stride;
    int32_t order, batch; /* order: CUBLASLT_ORDER_COL or _ROW */
};

enum lt_operand { LT_A, LT_B, LT_C, LT_D, LT_OPERANDS };

struct lt_product {
    uint32_t magic;
    int compute_type, scale_type;
    int32_t transpose_a, transpose_b, pointer_mode, epilogue, bias_type;
    int32_t scale_mode[LT_OPERANDS];
    int8_t fast_accumulation;
    const void *bias, *scale[LT_OPERANDS]; /* of the device */
    void *amax;
};

struct lt_op {
    struct sim_op op;
    struct lt_product product;
    struct lt_layout layout[LT_OPERANDS];
    const void *matrix[LT_OPERANDS];
    const void *alpha, *beta; /* on the device, or NULL: */
    double alpha_value, beta_value;
    void *workspace;
    uint64_t m, n, k, workspace_bytes, seed;
};

size_t lt_type_bytes(int type); /* 0: a type that is not simulated */
void lt_run(struct sim_op *op, struct sim_access *access);
void lt_leaks(void);

#endif
