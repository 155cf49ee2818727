/* SPDX-License-Identifier: MIT */
/* The simulator's cublasLt: products against sums written out, and what it reports. */
#include "cudasim.h"
#include "scenario.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One product D = alpha op(A) op(B) + beta C, all in column order. */
struct problem {
    cudaDataType_t type, out_type;
    cublasComputeType_t compute_type;
    bool transpose_a, transpose_b, has_bias;
    int m, n, k, batch, extra_ld;
    double alpha, beta;
};

static struct {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a_layout, b_layout, d_layout;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t chosen;
    cudaStream_t stream;
    char *a, *b, *d, *workspace;
    float *bias;
    size_t workspace_bytes;
    int lda, ldb, ldd;
    size_t a_elements, b_elements, d_elements;
} t;

static size_t bytes_of(cudaDataType_t type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 1;
}

static double get(cudaDataType_t type, const char *p, size_t i)
{
    float f;
    double d;
    uint32_t bits;
    if (type == CUDA_R_64F) return memcpy(&d, p + 8 * i, 8), d;
    if (type == CUDA_R_32F) return memcpy(&f, p + 4 * i, 4), (double)f;
    if (type == CUDA_R_16BF) {
        bits = (uint32_t)((const uint16_t *)p)[i] << 16;
        return memcpy(&f, &bits, 4), (double)f;
    }
    /* e4m3; the test uses small integers, see put */
    unsigned char byte = (unsigned char)p[i];
    double magnitude = (byte & 0x78) ? ldexp(8 + (byte & 7), (byte >> 3 & 15) - 10) : ldexp(byte & 7, -9);
    return byte & 0x80 ? -magnitude : magnitude;
}

/* Value is one that every type holds exactly: an eighth of an integer from -15 to 15. */
static void put(cudaDataType_t type, char *p, size_t i, double value)
{
    float f = (float)value;
    uint32_t bits;
    if (type == CUDA_R_64F)
        memcpy(p + 8 * i, &value, 8);
    else if (type == CUDA_R_32F)
        memcpy(p + 4 * i, &f, 4);
    else if (type == CUDA_R_16BF) {
        memcpy(&bits, &f, 4);
        ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
    } else
        for (int byte = 0; byte < 256; byte++) {
            p[i] = (char)byte;
            if (get(type, p, i) == value) return;
        }
}

static double number(void)
{
    static uint32_t state = 12345;
    state = state * 1664525 + 1013904223;
    return ((int)(state >> 24) % 31 - 15) / 8.0;
}

static char *device_numbers(cudaDataType_t type, size_t n, char **host)
{
    char *p;
    OK(cudaMalloc((void **)&p, n * bytes_of(type)));
    OK(cudaHostAlloc((void **)host, n * bytes_of(type), 0));
    for (size_t i = 0; i < n; i++) put(type, *host, i, number());
    OK(cudaMemcpyAsync(p, *host, n * bytes_of(type), cudaMemcpyHostToDevice, t.stream));
    OK(cudaStreamSynchronize(t.stream));
    return p;
}

static void layout(cublasLtMatrixLayout_t *l, cudaDataType_t type, int rows, int columns, int extra, int batch, int *ld,
                   size_t *elements)
{
    int64_t stride;
    *ld = rows + extra;
    stride = (int64_t)*ld * columns;
    *elements = (size_t)(stride * batch);
    OK(cublasLtMatrixLayoutCreate(l, type, (uint64_t)rows, (uint64_t)columns, *ld));
    OK(cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    OK(cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
}

static void open_all(const struct problem *p)
{
    cublasOperation_t op_a = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                      op_b = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    OK(cudaStreamCreateWithFlags(&t.stream, cudaStreamNonBlocking));
    OK(cublasLtCreate(&t.handle));
    OK(cublasLtMatmulDescCreate(&t.product, p->compute_type,
                                p->compute_type == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F));
    OK(cublasLtMatmulDescSetAttribute(t.product, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
    OK(cublasLtMatmulDescSetAttribute(t.product, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
    layout(&t.a_layout, p->type, p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k, p->extra_ld, p->batch,
           &t.lda, &t.a_elements);
    layout(&t.b_layout, p->type, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n, p->extra_ld, p->batch,
           &t.ldb, &t.b_elements);
    layout(&t.d_layout, p->out_type, p->m, p->n, p->extra_ld, p->batch, &t.ldd, &t.d_elements);
    t.workspace_bytes = 1 << 16;
    OK(cudaMalloc((void **)&t.workspace, t.workspace_bytes));
    OK(cublasLtMatmulPreferenceCreate(&t.preference));
    OK(cublasLtMatmulPreferenceSetAttribute(t.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &t.workspace_bytes,
                                            sizeof t.workspace_bytes));
}

static cublasStatus_t choose(void)
{
    int n = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(t.handle, t.product, t.a_layout, t.b_layout, t.d_layout,
                                                           t.d_layout, t.preference, 1, &t.chosen, &n);
    CHECK((status == 0) == (n == 1));
    return status;
}

static cublasStatus_t multiply(double alpha, double beta, bool is_double)
{
    float alpha_float = (float)alpha, beta_float = (float)beta;
    return cublasLtMatmul(t.handle, t.product, is_double ? (void *)&alpha : &alpha_float, t.a, t.a_layout, t.b,
                          t.b_layout, is_double ? (void *)&beta : &beta_float, t.d, t.d_layout, t.d, t.d_layout,
                          &t.chosen.algo, t.workspace, t.workspace_bytes, t.stream);
}

static void close_all(void)
{
    OK(cudaStreamSynchronize(t.stream));
    OK(cublasLtMatmulPreferenceDestroy(t.preference));
    OK(cublasLtMatmulDescDestroy(t.product));
    OK(cublasLtMatrixLayoutDestroy(t.a_layout));
    OK(cublasLtMatrixLayoutDestroy(t.b_layout));
    OK(cublasLtMatrixLayoutDestroy(t.d_layout));
    OK(cublasLtDestroy(t.handle));
    OK(cudaFree(t.a));
    OK(cudaFree(t.b));
    OK(cudaFree(t.d));
    OK(cudaFree(t.bias));
    OK(cudaFree(t.workspace));
    OK(cudaStreamDestroy(t.stream));
}

static void check_problem(const struct problem *p)
{
    char *a, *b, *before, *after, *bias = NULL;
    open_all(p);
    t.a = device_numbers(p->type, t.a_elements, &a);
    t.b = device_numbers(p->type, t.b_elements, &b);
    t.d = device_numbers(p->out_type, t.d_elements, &before);
    if (p->has_bias) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        t.bias = (float *)device_numbers(p->out_type, (size_t)p->m, &bias);
        OK(cublasLtMatmulDescSetAttribute(t.product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
        OK(cublasLtMatmulDescSetAttribute(t.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &t.bias, sizeof t.bias));
    }
    OK(choose());
    OK(multiply(p->alpha, p->beta, p->compute_type == CUBLAS_COMPUTE_64F));
    OK(cudaHostAlloc((void **)&after, t.d_elements * bytes_of(p->out_type), 0));
    OK(cudaMemcpyAsync(after, t.d, t.d_elements * bytes_of(p->out_type), cudaMemcpyDeviceToHost, t.stream));
    OK(cudaStreamSynchronize(t.stream));
    double tolerance = p->out_type == CUDA_R_64F ? 1e-14 : p->out_type == CUDA_R_32F ? 1e-6 : 0.005;
    for (int z = 0; z < p->batch; z++)
        for (int j = 0; j < p->n; j++)
            for (int i = 0; i < t.ldd; i++) {
                size_t at = ((size_t)z * (size_t)p->n + (size_t)j) * (size_t)t.ldd + (size_t)i;
                double sum = 0, size = 0, old = get(p->out_type, before, at);
                const char *za = a + t.a_elements / (size_t)p->batch * (size_t)z * bytes_of(p->type);
                const char *zb = b + t.b_elements / (size_t)p->batch * (size_t)z * bytes_of(p->type);
                for (int q = 0; i < p->m && q < p->k; q++) {
                    double x = get(p->type, za, (size_t)(p->transpose_a ? q + i * t.lda : i + q * t.lda));
                    double y = get(p->type, zb, (size_t)(p->transpose_b ? j + q * t.ldb : q + j * t.ldb));
                    sum += x * y;
                    size += fabs(x * y);
                }
                double wanted = i < p->m
                                    ? p->alpha * sum + p->beta * old + (bias ? get(p->out_type, bias, (size_t)i) : 0)
                                    : old; /* between the columns nothing changes */
                CHECK(fabs(get(p->out_type, after, at) - wanted) <= tolerance * (size + fabs(old) + 2));
            }
    OK(cudaFreeHost(a));
    OK(cudaFreeHost(b));
    OK(cudaFreeHost(before));
    OK(cudaFreeHost(after));
    OK(cudaFreeHost(bias));
    close_all();
}

static void products_are_right(void)
{
    static const cudaDataType_t in[] = {CUDA_R_64F, CUDA_R_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF};
    static const cudaDataType_t out[] = {CUDA_R_64F, CUDA_R_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F};
    static const cublasComputeType_t compute[] = {CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32,
                                                  CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F};
    for (int type = 0; type < 5; type++)
        for (int way = 0; way < 8; way++) {
            struct problem p = {.type = in[type],
                                .out_type = out[type],
                                .compute_type = compute[type],
                                .transpose_a = way & 1,
                                .transpose_b = way & 2,
                                .has_bias = way & 4,
                                .m = 19 + way,
                                .n = 7 + way,
                                .k = 150 + way,
                                .batch = 1 + way % 3,
                                .extra_ld = way % 4,
                                .alpha = 1.5,
                                .beta = way & 1 ? 0.5 : 0};
            check_problem(&p);
            memset(&t, 0, sizeof t);
        }
}

static const struct problem small = {.type = CUDA_R_32F,
                                     .out_type = CUDA_R_32F,
                                     .compute_type = CUBLAS_COMPUTE_32F,
                                     .m = 32,
                                     .n = 16,
                                     .k = 16,
                                     .batch = 1,
                                     .alpha = 1};

static void products_of_8_bits(void)
{
    struct problem p = small;
    p.type = CUDA_R_8F_E4M3;
    p.out_type = CUDA_R_16BF;
    p.transpose_a = true;
    check_problem(&p);
}

static void products_of_8_bits_want_16_bytes(void)
{
    struct problem p = small;
    p.type = CUDA_R_8F_E4M3;
    p.out_type = CUDA_R_16BF;
    p.transpose_a = true;
    p.k = 24;
    open_all(&p);
    CHECK(choose() == CUBLAS_STATUS_NOT_SUPPORTED);
    close_all();
}

static void types_that_do_not_fit_are_refused(void)
{
    struct problem p = small;
    p.compute_type = CUBLAS_COMPUTE_16F;
    open_all(&p);
    CHECK(choose() == CUBLAS_STATUS_NOT_SUPPORTED);
    close_all();
}

static void scalars_on_the_device(void)
{
    int32_t mode = CUBLASLT_POINTER_MODE_DEVICE;
    char *a, *b, *d, *scalars;
    open_all(&small);
    t.a = device_numbers(CUDA_R_32F, t.a_elements, &a);
    t.b = device_numbers(CUDA_R_32F, t.b_elements, &b);
    t.d = device_numbers(CUDA_R_32F, t.d_elements, &d);
    t.bias = (float *)device_numbers(CUDA_R_32F, 2, &scalars);
    OK(cublasLtMatmulDescSetAttribute(t.product, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof mode));
    OK(choose());
    OK(cudaMemsetAsync(t.bias, 0, 8, t.stream));
    float before = ((float *)d)[3];
    OK(cublasLtMatmul(t.handle, t.product, t.bias, t.a, t.a_layout, t.b, t.b_layout, t.bias + 1, t.d, t.d_layout, t.d,
                      t.d_layout, &t.chosen.algo, t.workspace, t.workspace_bytes, t.stream));
    OK(cudaMemcpyAsync(d, t.d, 32, cudaMemcpyDeviceToHost, t.stream));
    OK(cudaStreamSynchronize(t.stream));
    CHECK(before != 0 && ((float *)d)[3] == 0);
    OK(cudaFreeHost(a));
    OK(cudaFreeHost(b));
    OK(cudaFreeHost(d));
    OK(cudaFreeHost(scalars));
    close_all();
}

/* With a seed, the same sum differs in its last bits from call to call. */
static void sums_have_no_certain_order(void)
{
    struct problem p = small;
    p.k = 1000;
    char *a, *b, *d;
    open_all(&p);
    t.a = device_numbers(CUDA_R_32F, t.a_elements, &a);
    t.b = device_numbers(CUDA_R_32F, t.b_elements, &b);
    t.d = device_numbers(CUDA_R_32F, t.d_elements, &d);
    for (size_t i = 0; i < t.a_elements; i++) ((float *)a)[i] = 1.0f / (float)(i + 1);
    OK(cudaMemcpyAsync(t.a, a, t.a_elements * 4, cudaMemcpyHostToDevice, t.stream));
    OK(choose());
    int differing = 0;
    float first = 0;
    for (int i = 0; i < 20; i++) {
        OK(multiply(1, 0, false));
        OK(cudaMemcpyAsync(d, t.d, t.d_elements * 4, cudaMemcpyDeviceToHost, t.stream));
        OK(cudaStreamSynchronize(t.stream));
        first = i ? first : ((float *)d)[5];
        differing += ((float *)d)[5] != first;
        CHECK(fabsf(((float *)d)[5] - first) < 1e-4f);
    }
    CHECK(differing > 0);
    OK(cudaFreeHost(a));
    OK(cudaFreeHost(b));
    OK(cudaFreeHost(d));
    close_all();
}

static void without_data_products_are_counted(void)
{
    struct problem p = small;
    struct cudasim_counters c;
    p.m = p.n = p.k = 8192;
    open_all(&p);
    OK(cudaMalloc((void **)&t.a, t.a_elements * 4));
    OK(cudaMalloc((void **)&t.b, t.b_elements * 4));
    OK(cudaMalloc((void **)&t.d, t.d_elements * 4));
    OK(choose());
    for (int i = 0; i < 1000; i++) OK(multiply(1, 0, false));
    OK(cudaStreamSynchronize(t.stream));
    cudasim_get_counters(&c);
    CHECK(c.gemms == 1000 && c.gemm_flops == (uint64_t)2000 * 8192 * 8192 * 8192);
    close_all();
}

/* ---- planted ---- */

static void small_problem(void)
{
    char *host;
    open_all(&small);
    t.a = device_numbers(CUDA_R_32F, t.a_elements + 4, &host);
    t.b = device_numbers(CUDA_R_32F, t.b_elements, &host);
    t.d = device_numbers(CUDA_R_32F, t.d_elements, &host);
}

static void operand_too_small(void)
{
    small_problem();
    OK(choose());
    t.b += 4;
    multiply(1, 0, false);
}

static void misaligned_for_the_algorithm(void)
{
    small_problem();
    OK(choose());
    t.a += 4;
    CHECK(multiply(1, 0, false) == CUBLAS_STATUS_INVALID_VALUE);
}

static void misaligned_for_the_type(void)
{
    small_problem();
    OK(choose());
    t.a += 2;
    CHECK(multiply(1, 0, false) == CUBLAS_STATUS_INVALID_VALUE);
}

static void aligned_as_was_said(void)
{
    uint32_t four = 4;
    char *a, *b, *d;
    open_all(&small);
    t.a = device_numbers(CUDA_R_32F, t.a_elements + 1, &a);
    t.b = device_numbers(CUDA_R_32F, t.b_elements, &b);
    t.d = device_numbers(CUDA_R_32F, t.d_elements, &d);
    OK(cublasLtMatmulPreferenceSetAttribute(t.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &four,
                                            sizeof four));
    OK(choose());
    t.a += 4;
    OK(multiply(1, 0, false));
    OK(cudaStreamSynchronize(t.stream));
    t.a -= 4;
    OK(cudaFreeHost(a));
    OK(cudaFreeHost(b));
    OK(cudaFreeHost(d));
    close_all();
}

static void workspace_too_small(void)
{
    small_problem();
    OK(choose());
    t.workspace_bytes = 16;
    CHECK(multiply(1, 0, false) == CUBLAS_STATUS_INVALID_VALUE);
}

static void another_products_algorithm(void)
{
    int ld, columns = 16;
    size_t elements;
    small_problem();
    OK(choose());
    layout(&t.b_layout, CUDA_R_32F, 16, columns, 8, 1, &ld, &elements);
    t.b = t.a;
    CHECK(multiply(1, 0, false) == CUBLAS_STATUS_INVALID_VALUE);
}

static void shapes_do_not_fit(void)
{
    int ld;
    size_t elements;
    small_problem();
    layout(&t.b_layout, CUDA_R_32F, 15, 16, 0, 1, &ld, &elements);
    CHECK(choose() == CUBLAS_STATUS_INVALID_VALUE);
}

static void uninitialised_operand(void)
{
    small_problem();
    OK(cudaMalloc((void **)&t.b, t.b_elements * 4));
    OK(choose());
    OK(multiply(1, 0, false));
    OK(cudaStreamSynchronize(t.stream));
}

static void two_streams_share_a_workspace(void)
{
    char *host, *other;
    small_problem();
    OK(choose());
    OK(multiply(1, 0, false));
    other = t.d;
    t.d = device_numbers(CUDA_R_32F, t.d_elements, &host); /* this waits for the first product */
    OK(multiply(1, 0, false));
    t.d = other;
    OK(cudaStreamCreateWithFlags(&t.stream, cudaStreamNonBlocking));
    OK(multiply(1, 0, false));
    OK(cudaDeviceSynchronize());
}

static void destroyed_descriptor(void)
{
    small_problem();
    OK(choose());
    OK(cublasLtMatmulDescDestroy(t.product));
    multiply(1, 0, false);
}

static void descriptor_leak(void)
{
    cublasLtMatrixLayout_t l;
    OK(cublasLtMatrixLayoutCreate(&l, CUDA_R_32F, 2, 2, 2));
}

static void the_workspace_is_spoilt(void)
{
    float *host;
    char *a, *b, *d;
    open_all(&small);
    t.a = device_numbers(CUDA_R_32F, t.a_elements, &a);
    t.b = device_numbers(CUDA_R_32F, t.b_elements, &b);
    t.d = device_numbers(CUDA_R_32F, t.d_elements, &d);
    OK(cudaHostAlloc((void **)&host, 64, 0));
    OK(cudaMemsetAsync(t.workspace, 0, t.workspace_bytes, t.stream));
    OK(choose());
    CHECK(t.chosen.workspaceSize > 0);
    OK(multiply(1, 0, false));
    OK(cudaMemcpyAsync(host, t.workspace, 64, cudaMemcpyDeviceToHost, t.stream));
    OK(cudaStreamSynchronize(t.stream));
    CHECK(isnan(host[0]) && isnan(host[15]));
    OK(cudaFreeHost(host));
    OK(cudaFreeHost(a));
    OK(cudaFreeHost(b));
    OK(cudaFreeHost(d));
    close_all();
}

static void a_chosen_product_fails(void)
{
    char *a, *b, *d;
    open_all(&small);
    t.a = device_numbers(CUDA_R_32F, t.a_elements, &a);
    t.b = device_numbers(CUDA_R_32F, t.b_elements, &b);
    t.d = device_numbers(CUDA_R_32F, t.d_elements, &d);
    OK(choose());
    OK(multiply(1, 0, false));
    CHECK(multiply(1, 0, false) == CUBLAS_STATUS_EXECUTION_FAILED);
    OK(multiply(1, 0, false));
    OK(cudaStreamSynchronize(t.stream));
    OK(cudaFreeHost(a));
    OK(cudaFreeHost(b));
    OK(cudaFreeHost(d));
    close_all();
}

int main(int argc, char **argv)
{
    static const struct scenario all[] = {
        GOOD(products_are_right),
        {"products_are_right_seed_5", products_are_right, NULL, "CUDASIM_SEED=5", 0},
        GOOD(products_of_8_bits),
        GOOD(products_of_8_bits_want_16_bytes),
        GOOD(types_that_do_not_fit_are_refused),
        GOOD(scalars_on_the_device),
        GOOD_IN(sums_have_no_certain_order, "CUDASIM_SEED=1"),
        GOOD_IN(without_data_products_are_counted, "CUDASIM_DATA=0"),
        GOOD(the_workspace_is_spoilt),
        GOOD_IN(a_chosen_product_fails, "CUDASIM_FAIL=gemm:2"),
        GOOD(aligned_as_was_said),
        BUG(operand_too_small, "cublasLtMatmul: B: 1024 bytes at 0x"),
        BUG(misaligned_for_the_algorithm, "is not aligned to the 256 bytes for which the algorithm was chosen"),
        BUG(misaligned_for_the_type, "cublasLtMatmul: A at 0x"),
        BUG(workspace_too_small, "needs 2048 bytes of workspace, 16 are given"),
        BUG(another_products_algorithm, "the algorithm was chosen for another product"),
        BUG(shapes_do_not_fit, "the shapes of the matrices do not fit"),
        BUG(uninitialised_operand, "cublasLtMatmul: B reads uninitialised device memory"),
        BUG(two_streams_share_a_workspace, "stream hazard: cublasLtMatmul on stream"),
        BUG(destroyed_descriptor, "is not what the function wants, or was destroyed"),
        BUG(descriptor_leak, "leak: 1 handles and descriptors of cublasLt"),
    };
    return scenarios_main(argc, argv, all, sizeof all / sizeof *all);
}
