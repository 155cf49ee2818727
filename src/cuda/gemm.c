/* SPDX-License-Identifier: MIT */
/*
 * Products by cublasLt; see gemm.h.
 *
 * cublasLt's matrices are column-major. A row-major matrix is the transpose of a column-major one with the same leading
 * dimension, and (AB)^T = B^T A^T: so b is its first operand, a its second, n its rows and m its columns.
 *
 * What cublasLt's heuristic says of a shape is asked once and kept; asking takes longer than a small product.
 */
#include "cuda/gemm.h"

#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/cuda.h"

enum { TABLE_BITS = 8, MOST_ALIGNMENT = 256 };

/* All that a plan depends on; compared as bytes, so it is zeroed first. */
struct key {
    struct cuda_gemm gemm;
    size_t workspace_bytes;
    uint32_t alignment_a, alignment_b, alignment_out;
};

struct plan {
    struct key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulAlgo_t algorithm;
    struct plan *next; /* in the same row of the table */
};

struct gemm_plans {
    cublasLtHandle_t handle;
    struct plan *table[1 << TABLE_BITS];
};

static cudaDataType_t type_of(enum dtype type)
{
    return type == DTYPE_BFLOAT16 ? CUDA_R_16BF : type == DTYPE_FLOAT32 ? CUDA_R_32F : CUDA_R_64F;
}

static uint32_t alignment_of(const void *p)
{
    uint32_t alignment = MOST_ALIGNMENT;

    while ((uintptr_t)p % alignment) alignment /= 2;
    return alignment;
}

static struct plan **row_of(struct gemm_plans *p, const struct key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < sizeof *key; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return &p->table[hash >> (64 - TABLE_BITS)];
}

static void plan_destroy(struct plan *plan)
{
    if (plan->product) cublasLtMatmulDescDestroy(plan->product);
    if (plan->a) cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b) cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->out) cublasLtMatrixLayoutDestroy(plan->out);
    mem_free(plan);
}

void gemm_plans_destroy(struct gemm_plans *p)
{
    if (!p) return;
    for (int row = 0; row < 1 << TABLE_BITS; row++) {
        for (struct plan *plan = p->table[row], *next; plan; plan = next) {
            next = plan->next;
            plan_destroy(plan);
        }
    }
    if (p->handle) cublasLtDestroy(p->handle);
    mem_free(p);
}

/* ---- making a plan ---- */

/* A row-major matrix as cublasLt sees it. */
static cublasStatus_t make_layout(cublasLtMatrixLayout_t *out, enum dtype type, int64_t rows, int64_t columns,
                                  int64_t ld, int batch, int64_t stride)
{
    cublasStatus_t status = cublasLtMatrixLayoutCreate(out, type_of(type), (uint64_t)columns, (uint64_t)rows, ld);
    int32_t count = batch;

    if (status || batch == 1) return status;
    status = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    return status ? status
                  : cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                     sizeof stride);
}

static cublasStatus_t describe_product(struct plan *plan)
{
    const struct cuda_gemm *g = &plan->key.gemm;
    bool is_double = g->type == DTYPE_FLOAT64;
    cublasOperation_t first = g->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                      second = g->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    int64_t m = g->m, n = g->n, k = g->k;
    cublasStatus_t status = cublasLtMatmulDescCreate(
        &plan->product, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, is_double ? CUDA_R_64F : CUDA_R_32F);

    if (!status)
        status = cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    if (!status)
        status = cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    if (!status)
        status = make_layout(&plan->b, g->type, g->transpose_b ? n : k, g->transpose_b ? k : n, g->ldb, g->batch,
                             g->stride_b);
    if (!status)
        status = make_layout(&plan->a, g->type, g->transpose_a ? k : m, g->transpose_a ? m : k, g->lda, g->batch,
                             g->stride_a);
    return status ? status : make_layout(&plan->out, g->out_type, m, n, g->ldo, g->batch, g->stride_out);
}

static cublasStatus_t limit(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
                            uint32_t value)
{
    return cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value);
}

static cublasStatus_t choose_algorithm(cublasLtHandle_t handle, struct plan *plan)
{
    const struct key *key = &plan->key;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    size_t workspace = key->workspace_bytes;
    int n = 0;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);

    if (!status)
        status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                      sizeof workspace);
    /* parts of a sum that was split are added in the type of sums, never in the result's */
    if (!status)
        status = limit(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    if (!status) status = limit(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->alignment_b);
    if (!status) status = limit(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->alignment_a);
    if (!status) status = limit(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key->alignment_out);
    if (!status) status = limit(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->alignment_out);
    if (!status)
        status = cublasLtMatmulAlgoGetHeuristic(handle, plan->product, plan->b, plan->a, plan->out, plan->out,
                                                preference, 1, &result, &n);
    if (!status) status = n > 0 ? result.state : CUBLAS_STATUS_NOT_SUPPORTED;
    if (!status) plan->algorithm = result.algo;
    if (preference) cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

/* ---- using one ---- */
static struct gemm_plans *plans_of(struct kernel_context *c)
{
    struct cuda_device *d = cuda_device_of(c->device);
    cublasStatus_t status;

    if (d->gemm_plans) return d->gemm_plans;
    d->gemm_plans = mem_zalloc(1, sizeof *d->gemm_plans);
    if (!d->gemm_plans) {
        kernel_fail(c, "products of matrices", "out of memory on the host");
        return NULL;
    }
    status = cublasLtCreate(&d->gemm_plans->handle);
    if (!status) return d->gemm_plans;
    kernel_fail(c, "cublasLtCreate", cublasLtGetStatusString(status));
    return NULL;
}

static struct plan *plan_for(struct kernel_context *c, struct gemm_plans *plans, const struct key *key)
{
    struct plan **row = row_of(plans, key), *plan;
    cublasStatus_t status;
    char what[200];

    for (plan = *row; plan; plan = plan->next)
        if (memcmp(&plan->key, key, sizeof *key) == 0) return plan;
    plan = mem_zalloc(1, sizeof *plan);
    if (!plan) {
        kernel_fail(c, "products of matrices", "out of memory on the host");
        return NULL;
    }
    plan->key = *key;
    status = describe_product(plan);
    if (!status) status = choose_algorithm(plans->handle, plan);
    if (status) {
        snprintf(what, sizeof what, "a product [%lld,%lld] = [%lld,%lld]%s [%lld,%lld]%s of %s", (long long)key->gemm.m,
                 (long long)key->gemm.n, (long long)key->gemm.m, (long long)key->gemm.k,
                 key->gemm.transpose_a ? "^T" : "", (long long)key->gemm.k, (long long)key->gemm.n,
                 key->gemm.transpose_b ? "^T" : "", dtype_name(key->gemm.type));
        kernel_fail(c, what, cublasLtGetStatusString(status));
        plan_destroy(plan);
        return NULL;
    }
    plan->next = *row;
    *row = plan;
    return plan;
}

/* An empty sum. */
static void give_zeros(struct kernel_context *c, const struct cuda_gemm *g, void *out)
{
    size_t element = dtype_bytes(g->out_type);

    for (int i = 0; i < g->batch; i++)
        kernel_check(c, "cudaMemset2DAsync",
                     cudaMemset2DAsync((char *)out + (size_t)(i * g->stride_out) * element, (size_t)g->ldo * element, 0,
                                       (size_t)g->n * element, (size_t)g->m, kernel_stream(c)));
}

void cuda_gemm(struct kernel_context *c, const struct cuda_gemm *g, const void *a, const void *b, void *out)
{
    struct gemm_plans *plans;
    struct plan *plan;
    struct key key;
    float alpha = (float)g->alpha, beta = g->accumulate;
    double alpha_double = g->alpha, beta_double = g->accumulate;
    bool is_double = g->type == DTYPE_FLOAT64;
    cublasStatus_t status;

    memset(&key, 0, sizeof key); /* the gaps between members too */
    key.gemm.type = g->type;
    key.gemm.out_type = g->out_type;
    key.gemm.transpose_a = g->transpose_a;
    key.gemm.transpose_b = g->transpose_b;
    key.gemm.m = g->m;
    key.gemm.n = g->n;
    key.gemm.k = g->k;
    key.gemm.lda = g->lda;
    key.gemm.ldb = g->ldb;
    key.gemm.ldo = g->ldo;
    key.gemm.batch = g->batch ? g->batch : 1;
    key.gemm.stride_a = g->stride_a;
    key.gemm.stride_b = g->stride_b;
    key.gemm.stride_out = g->stride_out;
    key.workspace_bytes = c->workspace_bytes;
    key.alignment_a = alignment_of(a);
    key.alignment_b = alignment_of(b);
    key.alignment_out = alignment_of(out);
    if (g->m == 0 || g->n == 0 || c->failed || !(plans = plans_of(c))) return;
    if (g->k == 0) {
        if (!g->accumulate) give_zeros(c, &key.gemm, out);
        return;
    }
    plan = plan_for(c, plans, &key);
    if (!plan) return;
    status = cublasLtMatmul(plans->handle, plan->product, is_double ? (const void *)&alpha_double : &alpha, b, plan->b,
                            a, plan->a, is_double ? (const void *)&beta_double : &beta, out, plan->out, out, plan->out,
                            &plan->algorithm, c->workspace, c->workspace_bytes, kernel_stream(c));
    if (status) kernel_fail(c, "cublasLtMatmul", cublasLtGetStatusString(status));
}

/* ---- the kernels of kernels.def ---- */
#define GEMM(name, type_id, out_type_id)                                                                               \
    void name(struct kernel_context *c, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,           \
              const void *a, int64_t lda, const void *b, int64_t ldb, bool accumulate, void *out, int64_t ldo);        \
    void name(struct kernel_context *c, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,           \
              const void *a, int64_t lda, const void *b, int64_t ldb, bool accumulate, void *out, int64_t ldo)         \
    {                                                                                                                  \
        const struct cuda_gemm g = {.type = type_id,                                                                   \
                                    .out_type = out_type_id,                                                           \
                                    .transpose_a = transpose_a,                                                        \
                                    .transpose_b = transpose_b,                                                        \
                                    .accumulate = accumulate,                                                          \
                                    .m = m,                                                                            \
                                    .n = n,                                                                            \
                                    .k = k,                                                                            \
                                    .lda = lda,                                                                        \
                                    .ldb = ldb,                                                                        \
                                    .ldo = ldo,                                                                        \
                                    .alpha = 1};                                                                       \
                                                                                                                       \
        cuda_gemm(c, &g, a, b, out);                                                                                   \
    }

GEMM(gemm_bfloat16_cuda, DTYPE_BFLOAT16, DTYPE_BFLOAT16)
GEMM(gemm_float32_cuda, DTYPE_FLOAT32, DTYPE_FLOAT32)
GEMM(gemm_float64_cuda, DTYPE_FLOAT64, DTYPE_FLOAT64)
GEMM(gemm_wide_bfloat16_cuda, DTYPE_BFLOAT16, DTYPE_FLOAT32)
GEMM(gemm_wide_float32_cuda, DTYPE_FLOAT32, DTYPE_FLOAT32)
GEMM(gemm_wide_float64_cuda, DTYPE_FLOAT64, DTYPE_FLOAT64)
