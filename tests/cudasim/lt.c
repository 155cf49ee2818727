/* SPDX-License-Identifier: MIT */
/*
 * libcublasLt: handles, descriptors, the rules of cublasLtMatmul, heuristics. A product that breaks a rule is reported;
 * one that a device of this kind does not offer is refused with CUBLAS_STATUS_NOT_SUPPORTED and a note.
 *
 * An algorithm remembers which product it was chosen for, the alignments and the workspace: using it for another one is
 * a report.
 */
#include "lt.h"
#include "host.h"
#include "runtime.h"

#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

enum { LAYOUT = 0x1a1a0001, PRODUCT, PREFERENCE, HANDLE, ALGORITHM, DEAD };
enum { DEFAULT_ALIGNMENT = 256, FP8_ALIGNMENT = 16, SPLIT_WORKSPACE = 32 << 20 };

struct preference {
    uint32_t magic;
    uint32_t alignment[LT_OPERANDS];
    uint64_t workspace_bytes;
};
struct algorithm {
    uint32_t magic;
    uint32_t alignment[LT_OPERANDS];
    uint64_t product, workspace_bytes;
    uint64_t m, n, k;
};
_Static_assert(sizeof(struct lt_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "a layout fits");
_Static_assert(sizeof(struct lt_product) <= sizeof(cublasLtMatmulDescOpaque_t), "a product fits");
_Static_assert(sizeof(struct preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "a preference fits");
_Static_assert(sizeof(struct algorithm) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm fits");

static const char *const operand_names[] = {"A", "B", "C", "D"};
static int live; /* what was created and not destroyed */

size_t lt_type_bytes(int type)
{
    switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return 1;
    default: return 0;
    }
}

void lt_leaks(void)
{
    if (live > 0) sim_report("leak: %d handles and descriptors of cublasLt are not destroyed at the end", live);
}

/* ---- creating and destroying ---- */

static void *create(uint32_t magic, size_t bytes)
{
    uint32_t *p = sim_alloc(bytes);
    *p = magic;
    live++;
    return p;
}

static void check_magic(const char *function, const void *p, uint32_t magic)
{
    if (!p || *(const uint32_t *)p != magic)
        sim_die("%s: %p is not what the function wants, or was destroyed", function, p);
}

/* Not given back to the system: a use of it later is seen. Programs create few. */
static cublasStatus_t destroy(const char *function, void *p, uint32_t magic)
{
    check_magic(function, p, magic);
    *(uint32_t *)p = DEAD;
    sim_bury(p);
    live--;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    SIM_CALL;
    *handle = create(HANDLE, sizeof(uint64_t));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    SIM_CALL;
    return destroy(__func__, handle, HANDLE);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t bytes, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld)
{
    SIM_CALL;
    if (bytes < sizeof(struct lt_layout)) return CUBLAS_STATUS_INVALID_VALUE;
    *(struct lt_layout *)layout = (struct lt_layout){.magic = LAYOUT,
                                                     .type = (int)type,
                                                     .rows = rows,
                                                     .columns = columns,
                                                     .ld = ld,
                                                     .order = CUBLASLT_ORDER_COL,
                                                     .batch = 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    sim_start();
    *layout = create(LAYOUT, sizeof **layout);
    return cublasLtMatrixLayoutInit_internal(*layout, sizeof **layout, type, rows, columns, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    SIM_CALL;
    return destroy(__func__, layout, LAYOUT);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t product, size_t bytes,
                                               cublasComputeType_t compute_type, cudaDataType_t scale_type)
{
    SIM_CALL;
    if (bytes < sizeof(struct lt_product)) return CUBLAS_STATUS_INVALID_VALUE;
    *(struct lt_product *)product = (struct lt_product){.magic = PRODUCT,
                                                        .compute_type = (int)compute_type,
                                                        .scale_type = (int)scale_type,
                                                        .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                                                        .bias_type = -1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product, cublasComputeType_t compute_type,
                                        cudaDataType_t scale_type)
{
    sim_start();
    *product = create(PRODUCT, sizeof **product);
    return cublasLtMatmulDescInit_internal(*product, sizeof **product, compute_type, scale_type);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    SIM_CALL;
    return destroy(__func__, product, PRODUCT);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t bytes)
{
    SIM_CALL;
    if (bytes < sizeof(struct preference)) return CUBLAS_STATUS_INVALID_VALUE;
    struct preference *p = (struct preference *)preference;
    *p = (struct preference){.magic = PREFERENCE};
    for (int i = 0; i < LT_OPERANDS; i++) p->alignment[i] = DEFAULT_ALIGNMENT;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    sim_start();
    *preference = create(PREFERENCE, sizeof **preference);
    return cublasLtMatmulPreferenceInit_internal(*preference, sizeof **preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    SIM_CALL;
    return destroy(__func__, preference, PREFERENCE);
}

/* ---- attributes ---- */

/* Copies into a member of exactly that size. */
static cublasStatus_t store(void *member, size_t member_bytes, const void *value, size_t bytes)
{
    if (!value || bytes != member_bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(member, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

#define STORE(member) store(&(member), sizeof(member), value, bytes)

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes)
{
    SIM_CALL;
    check_magic(__func__, layout, LAYOUT);
    struct lt_layout *l = (struct lt_layout *)layout;
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return STORE(l->type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return STORE(l->order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return STORE(l->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return STORE(l->columns);
    case CUBLASLT_MATRIX_LAYOUT_LD: return STORE(l->ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return STORE(l->batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return STORE(l->batch_stride);
    default: sim_die("%s: attribute %d is not simulated", __func__, (int)attribute);
    }
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    SIM_CALL;
    check_magic(__func__, product, PRODUCT);
    struct lt_product *p = (struct lt_product *)product;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return STORE(p->compute_type);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return STORE(p->scale_type);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return STORE(p->pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA: return STORE(p->transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return STORE(p->transpose_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return STORE(p->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return STORE(p->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return STORE(p->bias_type);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return STORE(p->fast_accumulation);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return STORE(p->scale[LT_A]);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return STORE(p->scale[LT_B]);
    case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER: return STORE(p->scale[LT_C]);
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER: return STORE(p->scale[LT_D]);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: return STORE(p->scale_mode[LT_A]);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: return STORE(p->scale_mode[LT_B]);
    case CUBLASLT_MATMUL_DESC_C_SCALE_MODE: return STORE(p->scale_mode[LT_C]);
    case CUBLASLT_MATMUL_DESC_D_SCALE_MODE: return STORE(p->scale_mode[LT_D]);
    case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER: return STORE(p->amax);
    default: sim_die("%s: attribute %d is not simulated", __func__, (int)attribute);
    }
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    SIM_CALL;
    check_magic(__func__, preference, PREFERENCE);
    struct preference *p = (struct preference *)preference;
    uint32_t mask;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return STORE(mask); /* there is one algorithm */
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return STORE(p->workspace_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return STORE(p->alignment[LT_A]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return STORE(p->alignment[LT_B]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return STORE(p->alignment[LT_C]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return STORE(p->alignment[LT_D]);
    default: sim_die("%s: attribute %d is not simulated", __func__, (int)attribute);
    }
}

/* ---- the rules ---- */

static cublasStatus_t wrong(const char *function, const char *why)
{
    sim_report("%s: %s", function, why);
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t refused(const char *function, const char *why)
{
    fprintf(stderr, "cudasim-note: %s: not supported: %s\n", function, why);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

static bool is_fp8(int type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

static uint64_t hash(uint64_t before, uint64_t value) { return host_hash(before, &value, sizeof value); }

/* Of all that an algorithm depends on: not of addresses. */
static uint64_t product_hash(const struct lt_op *o)
{
    const struct lt_product *p = &o->product;
    const int members[] = {p->compute_type,     p->scale_type,       p->transpose_a, p->transpose_b,
                           p->pointer_mode,     p->epilogue,         p->bias_type,   p->scale_mode[LT_A],
                           p->scale_mode[LT_B], p->fast_accumulation};
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) h = hash(h, (uint64_t)members[i]);
    for (int i = 0; i < LT_OPERANDS; i++) {
        const struct lt_layout *l = &o->layout[i];
        h = hash(hash(hash(h, (uint64_t)l->type), l->rows), l->columns);
        h = hash(hash(hash(h, (uint64_t)l->ld), (uint64_t)l->batch_stride), (uint64_t)l->batch);
        h = hash(h, (uint64_t)l->order);
    }
    return h;
}

/* Which types go together, for one compute type; C is what D is, and for fp8 a wider type. */
static cublasStatus_t check_types(const char *function, const struct lt_op *o)
{
    int a = o->layout[LT_A].type, b = o->layout[LT_B].type, c = o->layout[LT_C].type, d = o->layout[LT_D].type;
    int scale = o->product.scale_type;
    for (int i = 0; i < LT_OPERANDS; i++)
        if (!lt_type_bytes(o->layout[i].type)) return refused(function, "a type of a matrix");
    if (is_fp8(a) != is_fp8(b)) return refused(function, "8 bits with something else");
    switch (o->product.compute_type) {
    case CUBLAS_COMPUTE_64F:
        if (scale != CUDA_R_64F || a != CUDA_R_64F || b != a || c != a || d != a)
            return refused(function, "CUBLAS_COMPUTE_64F wants float64 everywhere");
        return CUBLAS_STATUS_SUCCESS;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
        if (scale != CUDA_R_32F || a != CUDA_R_32F || b != a || c != a || d != a)
            return refused(function, "CUBLAS_COMPUTE_32F_FAST_... wants float32 everywhere");
        return CUBLAS_STATUS_SUCCESS;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC: break;
    default: return refused(function, "the compute type");
    }
    if (scale != CUDA_R_32F) return refused(function, "CUBLAS_COMPUTE_32F wants scales in float32");
    if (is_fp8(a)) {
        if (a == CUDA_R_8F_E5M2 && b == CUDA_R_8F_E5M2) return refused(function, "e5m2 times e5m2");
        if (is_fp8(c) || c == CUDA_R_64F || (d != c && !is_fp8(d)))
            return refused(function, "8-bit operands want C in bfloat16, float16 or float32, and D the same or 8 bits");
        return CUBLAS_STATUS_SUCCESS;
    }
    if (a != b || a == CUDA_R_64F || c != d || (d != a && d != CUDA_R_32F))
        return refused(function, "CUBLAS_COMPUTE_32F wants A and B of one type, C and D of that one or float32");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_fp8(const char *function, const struct lt_op *o)
{
    const struct lt_product *p = &o->product;
    if (p->transpose_a != CUBLAS_OP_T || p->transpose_b != CUBLAS_OP_N || o->layout[LT_A].order ||
        o->layout[LT_B].order)
        return refused(function, "8-bit operands want A transposed and B not, both in column order");
    if (o->k % FP8_ALIGNMENT || o->m % FP8_ALIGNMENT || o->layout[LT_A].ld % FP8_ALIGNMENT ||
        o->layout[LT_B].ld % FP8_ALIGNMENT)
        return refused(function, "8-bit operands want m, k and leading dimensions in multiples of 16");
    for (int i = 0; i < LT_OPERANDS; i++)
        if (p->scale_mode[i] != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
            (p->scale_mode[i] != CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F || i > LT_B))
            return refused(function, "the mode of a scale");
    if (p->scale_mode[LT_A] != p->scale_mode[LT_B]) return refused(function, "different modes of scales for A and B");
    return CUBLAS_STATUS_SUCCESS;
}

/* Checks descriptors against each other and fills m, n, k. */
static cublasStatus_t check_product(const char *function, struct lt_op *o)
{
    const struct lt_product *p = &o->product;
    const struct lt_layout *a = &o->layout[LT_A], *b = &o->layout[LT_B], *c = &o->layout[LT_C], *d = &o->layout[LT_D];
    if (p->transpose_a > CUBLAS_OP_T || p->transpose_b > CUBLAS_OP_T) return refused(function, "conjugation");
    o->m = p->transpose_a ? a->columns : a->rows;
    o->k = p->transpose_a ? a->rows : a->columns;
    o->n = p->transpose_b ? b->rows : b->columns;
    if (o->k != (p->transpose_b ? b->columns : b->rows) || d->rows != o->m || d->columns != o->n || c->rows != o->m ||
        c->columns != o->n || !o->m || !o->n || !o->k)
        return wrong(function, "the shapes of the matrices do not fit each other, or are empty");
    for (int i = 0; i < LT_OPERANDS; i++) {
        const struct lt_layout *l = &o->layout[i];
        if (l->order != CUBLASLT_ORDER_COL && l->order != CUBLASLT_ORDER_ROW)
            return refused(function, "an order of a matrix");
        if (l->ld < (int64_t)(l->order == CUBLASLT_ORDER_COL ? l->rows : l->columns))
            return wrong(function, "a leading dimension is smaller than what it must step over");
        if (l->batch != d->batch || l->batch < 1)
            return wrong(function, "the matrices differ in the number of batches");
    }
    if (d->batch > 1 && d->batch_stride < (int64_t)(d->order == CUBLASLT_ORDER_COL ? d->rows : d->columns))
        return wrong(function, "the results of the batches overlap");
    if (p->pointer_mode != CUBLASLT_POINTER_MODE_HOST && p->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
        return refused(function, "the pointer mode");
    if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT && p->epilogue != CUBLASLT_EPILOGUE_BIAS)
        return refused(function, "an epilogue other than the bias");
    if (p->epilogue == CUBLASLT_EPILOGUE_BIAS && d->order == CUBLASLT_ORDER_ROW)
        return refused(function, "a bias with a result in row order");
    cublasStatus_t status = check_types(function, o);
    return status || !is_fp8(a->type) ? status : check_fp8(function, o);
}

static void take(const char *function, struct lt_op *o, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                 cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    const cublasLtMatrixLayout_t layouts[] = {a, b, c, d};
    check_magic(function, product, PRODUCT);
    memcpy(&o->product, product, sizeof o->product);
    for (int i = 0; i < LT_OPERANDS; i++) {
        check_magic(function, layouts[i], LAYOUT);
        memcpy(&o->layout[i], layouts[i], sizeof o->layout[i]);
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    SIM_CALL;
    check_magic(__func__, handle, HANDLE);
    check_magic(__func__, preference, PREFERENCE);
    const struct preference *p = (const struct preference *)preference;
    struct lt_op o = {.op = {.name = NULL}};
    *found = 0;
    take(__func__, &o, product, a, b, c, d);
    cublasStatus_t status = wanted < 1 ? CUBLAS_STATUS_INVALID_VALUE : check_product(__func__, &o);
    if (status) return status;
    for (int i = 0; i < LT_OPERANDS; i++)
        if (is_fp8(o.layout[i].type) && p->alignment[i] < FP8_ALIGNMENT)
            return refused(__func__, "8-bit operands that are not aligned to 16 bytes");
    /* as if it split the sum: it then needs a place for each part */
    uint64_t need = o.m * o.n * sizeof(float) * (uint64_t)o.layout[LT_D].batch;
    need = need < SPLIT_WORKSPACE ? need : SPLIT_WORKSPACE;
    need = need < p->workspace_bytes ? need : p->workspace_bytes;
    struct algorithm algorithm = {
        .magic = ALGORITHM, .product = product_hash(&o), .workspace_bytes = need, .m = o.m, .n = o.n, .k = o.k};
    memcpy(algorithm.alignment, p->alignment, sizeof algorithm.alignment);
    memset(&results[0], 0, sizeof results[0]);
    memcpy(&results[0].algo, &algorithm, sizeof algorithm);
    results[0].workspaceSize = need;
    results[0].wavesCount = 1;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

static cublasStatus_t check_algorithm(const struct lt_op *o, const struct algorithm *algorithm)
{
    const char *who = "cublasLtMatmul";
    if (algorithm->magic != ALGORITHM)
        return wrong(who, "the algorithm is not one that cublasLtMatmulAlgoGetHeuristic returned");
    if (algorithm->product != product_hash(o)) {
        sim_report(
            "%s: the algorithm was chosen for another product: m %llu, n %llu, k %llu there, %llu, %llu, %llu here, "
            "or other types, leading dimensions or batches",
            who, (unsigned long long)algorithm->m, (unsigned long long)algorithm->n, (unsigned long long)algorithm->k,
            (unsigned long long)o->m, (unsigned long long)o->n, (unsigned long long)o->k);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    for (int i = 0; i < LT_OPERANDS; i++)
        if ((uint64_t)(uintptr_t)o->matrix[i] % algorithm->alignment[i]) {
            sim_report("%s: %s at %p is not aligned to the %u bytes for which the algorithm was chosen", who,
                       operand_names[i], o->matrix[i], algorithm->alignment[i]);
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    if (o->workspace_bytes < algorithm->workspace_bytes) {
        sim_report("%s: the algorithm needs %llu bytes of workspace, %llu are given", who,
                   (unsigned long long)algorithm->workspace_bytes, (unsigned long long)o->workspace_bytes);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* Addresses: on the device, inside one allocation, aligned. */
static cublasStatus_t check_operands(const char *function, const struct lt_op *o)
{
    for (int i = 0; i < LT_OPERANDS; i++) {
        const struct lt_layout *l = &o->layout[i];
        uint64_t lines = l->order == CUBLASLT_ORDER_COL ? l->columns : l->rows;
        uint64_t length = l->order == CUBLASLT_ORDER_COL ? l->rows : l->columns, bytes = lt_type_bytes(l->type);
        uint64_t extent =
            ((lines - 1) * (uint64_t)l->ld + length + (uint64_t)((l->batch - 1) * l->batch_stride)) * bytes;
        char who[64];
        snprintf(who, sizeof who, "%s: %s", function, operand_names[i]);
        if (i == LT_C && !o->beta && o->beta_value == 0) continue; /* it is not looked at */
        sim_check(o->matrix[i], extent, who);
        if ((uint64_t)(uintptr_t)o->matrix[i] % bytes || (is_fp8(l->type) && (uint64_t)(uintptr_t)o->matrix[i] % 16)) {
            sim_report("%s at %p is not aligned", who, o->matrix[i]);
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    }
    const struct lt_layout *c = &o->layout[LT_C], *d = &o->layout[LT_D];
    if (o->matrix[LT_C] == o->matrix[LT_D] && (c->type != d->type || c->ld != d->ld || c->order != d->order))
        return wrong(function, "C and D are the same memory with different layouts");
    if (o->workspace_bytes) sim_check(o->workspace, o->workspace_bytes, "cublasLtMatmul: the workspace");
    if ((uint64_t)(uintptr_t)o->workspace % 16) return wrong(function, "the workspace is not aligned to 16 bytes");
    if (o->product.epilogue == CUBLASLT_EPILOGUE_BIAS && !o->product.bias)
        return wrong(function, "the epilogue is a bias, and there is none");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t take_scales(struct lt_op *o, const void *alpha, const void *beta)
{
    bool on_device = o->product.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
    size_t bytes = o->product.scale_type == CUDA_R_64F ? 8 : 4;
    if (sim_is_device((uint64_t)(uintptr_t)alpha) != on_device || sim_is_device((uint64_t)(uintptr_t)beta) != on_device)
        return wrong("cublasLtMatmul", "alpha and beta do not lie where the pointer mode says (host or device)");
    if (on_device) {
        o->alpha = alpha;
        o->beta = beta;
        return CUBLAS_STATUS_SUCCESS;
    }
    float narrow;
    o->alpha_value = bytes == 8 ? *(const double *)alpha : (memcpy(&narrow, alpha, 4), (double)narrow);
    o->beta_value = bytes == 8 ? *(const double *)beta : (memcpy(&narrow, beta, 4), (double)narrow);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    SIM_CALL;
    static uint64_t calls;
    check_magic(__func__, handle, HANDLE);
    struct sim_stream *s = runtime_stream(__func__, stream);
    struct lt_op o = {.matrix = {a, b, c, d}, .workspace = workspace, .workspace_bytes = workspace_bytes};
    take(__func__, &o, product, a_layout, b_layout, c_layout, d_layout);
    cublasStatus_t status = check_product(__func__, &o);
    status = status ? status : take_scales(&o, alpha, beta);
    status = status ? status : check_operands(__func__, &o);
    if (!status && algorithm) {
        struct algorithm chosen;
        memcpy(&chosen, algorithm, sizeof chosen);
        status = check_algorithm(&o, &chosen);
        o.workspace_bytes = chosen.workspace_bytes;
    }
    if (status) return status;
    if (sim_must_fail("gemm")) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (runtime_device_has_failed()) return CUBLAS_STATUS_EXECUTION_FAILED;
    sim_counters.gemms++;
    sim_counters.gemm_flops += 2 * o.m * o.n * o.k * (uint64_t)o.layout[LT_D].batch;
    o.seed = sim_options.seed ? sim_options.seed + ++calls : 0;
    o.op = (struct sim_op){.name = "cublasLtMatmul", .bytes = sizeof o, .run = lt_run, .uses = {a, b, d, c, workspace}};
    o.op.n_uses = workspace_bytes ? 5 : 4;
    struct lt_op *copy = sim_alloc(sizeof *copy);
    *copy = o;
    runtime_push(s, &copy->op);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- versions and words ---- */

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

size_t cublasLtGetCudartVersion(void) { return 13000; }

cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int *value)
{
    const int version[] = {CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH};
    if ((unsigned)type > PATCH_LEVEL) return CUBLAS_STATUS_INVALID_VALUE;
    *value = version[type];
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
#define NAME(name)                                                                                                     \
    case name: return #name;
        NAME(CUBLAS_STATUS_SUCCESS)
        NAME(CUBLAS_STATUS_NOT_INITIALIZED)
        NAME(CUBLAS_STATUS_ALLOC_FAILED)
        NAME(CUBLAS_STATUS_INVALID_VALUE)
        NAME(CUBLAS_STATUS_ARCH_MISMATCH)
        NAME(CUBLAS_STATUS_MAPPING_ERROR)
        NAME(CUBLAS_STATUS_EXECUTION_FAILED)
        NAME(CUBLAS_STATUS_INTERNAL_ERROR)
        NAME(CUBLAS_STATUS_NOT_SUPPORTED)
        NAME(CUBLAS_STATUS_LICENSE_ERROR)
#undef NAME
    }
    return "unknown status";
}

const char *cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }
