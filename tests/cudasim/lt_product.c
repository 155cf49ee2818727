/* SPDX-License-Identifier: MIT */
/*
 * The product itself. Operands are turned into panels of float (or double) once, whatever their type and
 * transposition: of A, WIDE rows by k; of B, NARROW columns by k; then WIDE x NARROW results are summed in registers.
 * The sum over k is cut into parts of a length and in an order that the seed chooses: a test that wants certain bits
 * of it fails under another seed, as it would on another device.
 */
#include "lt.h"
#include "runtime.h"

#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 16, NARROW = 4 };

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define FAST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FAST
#endif

/* ---- types ---- */

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* A small float: sign, exponent of that bias, mantissa; with infinities and NaN as IEEE has them, or (e4m3) one NaN. */
static float small_to_float(unsigned value, int exponent_bits, int mantissa_bits, bool has_infinity)
{
    int bias = (1 << (exponent_bits - 1)) - 1, mantissa = (int)(value & ((1u << mantissa_bits) - 1));
    int exponent = (int)(value >> mantissa_bits & ((1u << exponent_bits) - 1)), top = (1 << exponent_bits) - 1;
    float sign = value >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;
    if (exponent == top && has_infinity) return mantissa ? NAN : sign * INFINITY;
    if (exponent == top && mantissa == (1 << mantissa_bits) - 1) return NAN;
    if (!exponent) return sign * ldexpf((float)mantissa, 1 - bias - mantissa_bits);
    return sign * ldexpf((float)(mantissa + (1 << mantissa_bits)), exponent - bias - mantissa_bits);
}

/* Rounds to nearest even; too large: the largest finite number (saturates) or infinity. */
static unsigned float_to_small(float f, int exponent_bits, int mantissa_bits, bool has_infinity, bool saturates)
{
    int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1, exponent;
    unsigned sign = signbit(f) ? 1u << (exponent_bits + mantissa_bits) : 0;
    unsigned largest = has_infinity ? ((unsigned)top << mantissa_bits) - 1 : ((unsigned)(top + 1) << mantissa_bits) - 2;
    if (isnan(f)) return largest + (has_infinity ? 2 : 1);
    f = fabsf(f);
    if (isinf(f)) return sign | (saturates ? largest : largest + 1);
    if (f == 0) return sign;
    frexpf(f, &exponent); /* f = x 2^exponent, x in [1/2, 1) */
    int step = exponent - 1 - mantissa_bits < 1 - bias - mantissa_bits ? 1 - bias - mantissa_bits
                                                                       : exponent - 1 - mantissa_bits;
    float units = rintf(ldexpf(f, -step));
    /* counted from the smallest step: carries go into the exponent by themselves */
    unsigned value = (unsigned)units + ((unsigned)(step - (1 - bias - mantissa_bits)) << mantissa_bits);
    if (value > largest) value = saturates ? largest : largest + 1;
    return sign | value;
}

static float bfloat16_to_float(uint16_t bits) { return from_bits((uint32_t)bits << 16); }

static uint16_t float_to_bfloat16(float f)
{
    uint32_t bits = to_bits(f);
    if (f != f) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* n elements, stride elements apart, as double or float in out */
#define DEFINE_READ(T)                                                                                                 \
    static void read_##T(int type, const uint8_t *p, int64_t stride, int n, T *out)                                    \
    {                                                                                                                  \
        switch (type) {                                                                                                \
        case CUDA_R_64F:                                                                                               \
            for (int i = 0; i < n; i++) out[i] = (T)((const double *)p)[i * stride];                                   \
            break;                                                                                                     \
        case CUDA_R_32F:                                                                                               \
            for (int i = 0; i < n; i++) out[i] = ((const float *)p)[i * stride];                                       \
            break;                                                                                                     \
        case CUDA_R_16BF:                                                                                              \
            for (int i = 0; i < n; i++) out[i] = bfloat16_to_float(((const uint16_t *)p)[i * stride]);                 \
            break;                                                                                                     \
        case CUDA_R_16F:                                                                                               \
            for (int i = 0; i < n; i++) out[i] = small_to_float(((const uint16_t *)p)[i * stride], 5, 10, true);       \
            break;                                                                                                     \
        case CUDA_R_8F_E4M3:                                                                                           \
            for (int i = 0; i < n; i++) out[i] = small_to_float(p[i * stride], 4, 3, false);                           \
            break;                                                                                                     \
        default:                                                                                                       \
            for (int i = 0; i < n; i++) out[i] = small_to_float(p[i * stride], 5, 2, true);                            \
        }                                                                                                              \
    }
DEFINE_READ(float)
DEFINE_READ(double)

static void write_element(int type, uint8_t *p, double value)
{
    float f = (float)value;
    uint16_t half;
    switch (type) {
    case CUDA_R_64F: memcpy(p, &value, 8); break;
    case CUDA_R_32F: memcpy(p, &f, 4); break;
    case CUDA_R_16BF: half = float_to_bfloat16(f), memcpy(p, &half, 2); break;
    case CUDA_R_16F: half = (uint16_t)float_to_small(f, 5, 10, true, false), memcpy(p, &half, 2); break;
    case CUDA_R_8F_E4M3: *p = (uint8_t)float_to_small(f, 4, 3, false, true); break;
    default: *p = (uint8_t)float_to_small(f, 5, 2, true, true);
    }
}

/* ---- one matrix, seen by rows and columns of the product ---- */

struct view {
    const uint8_t *data; /* of this batch, in the alias */
    int type;
    int64_t row_stride, column_stride; /* elements */
};

static struct view view_of(const struct lt_layout *l, const uint8_t *data, int batch, bool transposed)
{
    struct view v = {.data = data + (int64_t)lt_type_bytes(l->type) * l->batch_stride * batch, .type = l->type};
    bool is_column_order = (l->order == CUBLASLT_ORDER_COL) != transposed;
    v.row_stride = is_column_order ? 1 : l->ld;
    v.column_stride = is_column_order ? l->ld : 1;
    return v;
}

static const uint8_t *at(const struct view *v, uint64_t row, uint64_t column)
{
    return v->data +
           ((int64_t)row * v->row_stride + (int64_t)column * v->column_stride) * (int64_t)lt_type_bytes(v->type);
}

/* Touches what the matrix holds, not what lies between its lines. Returns the alias of its first byte. */
static uint8_t *touch(struct sim_access *access, const struct lt_op *o, int operand, bool reads, bool writes)
{
    static const char *const who[] = {"cublasLtMatmul: A", "cublasLtMatmul: B", "cublasLtMatmul: C",
                                      "cublasLtMatmul: D"};
    const struct lt_layout *l = &o->layout[operand];
    bool is_column_order = l->order == CUBLASLT_ORDER_COL;
    uint64_t lines = is_column_order ? l->columns : l->rows, length = is_column_order ? l->rows : l->columns;
    uint64_t bytes = lt_type_bytes(l->type);
    const uint8_t *p = o->matrix[operand];
    uint8_t *alias = NULL;
    for (int batch = 0; batch < l->batch; batch++) {
        const uint8_t *first = p + (int64_t)bytes * l->batch_stride * batch;
        bool is_dense = (uint64_t)l->ld == length;
        for (uint64_t line = 0; line < (is_dense ? 1 : lines); line++) {
            uint8_t *here = sim_touch(access, first + line * (uint64_t)l->ld * bytes,
                                      length * bytes * (is_dense ? lines : 1), reads, writes, who[operand]);
            alias = alias ? alias : here;
        }
    }
    return alias;
}

/* ---- sums ---- */

/* out[NARROW][WIDE] += panels, over k; vectors of 32 bytes */
#define DEFINE_SUM(T)                                                                                                  \
    FAST static void sum_##T(const T *restrict a, const T *restrict b, uint64_t k, T *restrict out)                    \
    {                                                                                                                  \
        typedef T vector __attribute__((vector_size(32), aligned(8)));                                                 \
        enum { PARTS = WIDE * sizeof(T) / 32, LANES = WIDE / PARTS };                                                  \
        vector sums[NARROW][PARTS] = {{{0}}};                                                                          \
        for (uint64_t p = 0; p < k; p++, a += WIDE, b += NARROW)                                                       \
            for (int part = 0; part < PARTS; part++) {                                                                 \
                vector x = *(const vector *)(a + part * LANES);                                                        \
                for (int j = 0; j < NARROW; j++) sums[j][part] += x * b[j];                                            \
            }                                                                                                          \
        for (int j = 0; j < NARROW; j++)                                                                               \
            for (int part = 0; part < PARTS; part++) *(vector *)(out + j * WIDE + part * LANES) += sums[j][part];      \
    }
DEFINE_SUM(float)
DEFINE_SUM(double)

/* Where the parts of the sum begin, and in which order they are added. */
struct parts {
    uint64_t length, count, first;
};

static struct parts choose_parts(uint64_t k, uint64_t seed)
{
    struct parts p = {.length = 128};
    uint64_t state = seed;
    if (seed) p.length = UINT64_C(16) << sim_random(&state) % 5;
    p.count = (k + p.length - 1) / p.length;
    p.first = seed ? sim_random(&state) % p.count : 0;
    return p;
}

static float round_operand(int compute_type, float f)
{
    if (compute_type == CUBLAS_COMPUTE_32F_FAST_16BF) return bfloat16_to_float(float_to_bfloat16(f));
    if (compute_type == CUBLAS_COMPUTE_32F_FAST_TF32 && isfinite(f)) {
        uint32_t bits = to_bits(f);
        return from_bits((bits + 0xfff + (bits >> 13 & 1)) & ~UINT32_C(0x1fff));
    }
    return f;
}

/* What turns a sum into a result. */
struct epilogue {
    double alpha, beta;
    const uint8_t *bias;
    int bias_type;
    const float *row_scale, *column_scale; /* NULL: 1 */
    bool is_row_vector;                    /* one for each row and column, else one for all */
    float result_scale, amax;
};

static void store_result(struct epilogue *e, const struct view *c, const struct view *d, uint64_t i, uint64_t j,
                         double sum, bool is_double)
{
    double old = 0, bias = 0;
    if (e->row_scale) sum = (float)sum * e->row_scale[e->is_row_vector ? i : 0];
    if (e->column_scale) sum = (float)sum * e->column_scale[e->is_row_vector ? j : 0];
    if (e->beta != 0) read_double(c->type, at(c, i, j), 1, 1, &old);
    if (e->bias) read_double(e->bias_type, e->bias + i * lt_type_bytes(e->bias_type), 1, 1, &bias);
    double value = is_double ? e->alpha * sum + e->beta * old + bias
                             : (float)e->alpha * (float)sum + (float)e->beta * (float)old + (float)bias;
    if (e->amax >= 0 && fabs(value) > e->amax) e->amax = (float)fabs(value);
    write_element(d->type, (uint8_t *)(uintptr_t)at(d, i, j), e->result_scale == 1 ? value : value * e->result_scale);
}

/* Panels of A for all rows, panels of B column by column, in T. */
#define DEFINE_MULTIPLY(T)                                                                                             \
    static void multiply_##T(const struct lt_op *o, const struct view *a, const struct view *b, const struct view *c,  \
                             const struct view *d, struct epilogue *e)                                                 \
    {                                                                                                                  \
        const uint64_t m = o->m, n = o->n, k = o->k, rows = (m + WIDE - 1) / WIDE * WIDE;                              \
        const struct parts parts = choose_parts(k, o->seed);                                                           \
        T *panel_a = sim_alloc(rows * k * sizeof(T)), *panel_b = sim_alloc(NARROW * k * sizeof(T));                    \
        for (uint64_t i = 0; i < m; i += WIDE)                                                                         \
            for (uint64_t p = 0; p < k; p++) {                                                                         \
                T *to = panel_a + i * k + p * WIDE;                                                                    \
                read_##T(a->type, at(a, i, p), a->row_stride, (int)(m - i < WIDE ? m - i : WIDE), to);                 \
                for (int q = 0; sizeof(T) == 4 && q < WIDE; q++)                                                       \
                    to[q] = round_operand(o->product.compute_type, (float)to[q]);                                      \
            }                                                                                                          \
        for (uint64_t j = 0; j < n; j += NARROW) {                                                                     \
            int columns = (int)(n - j < NARROW ? n - j : NARROW);                                                      \
            for (uint64_t p = 0; p < k; p++) {                                                                         \
                T *to = panel_b + p * NARROW;                                                                          \
                read_##T(b->type, at(b, p, j), b->column_stride, columns, to);                                         \
                for (int q = 0; sizeof(T) == 4 && q < columns; q++)                                                    \
                    to[q] = round_operand(o->product.compute_type, (float)to[q]);                                      \
            }                                                                                                          \
            for (uint64_t i = 0; i < m; i += WIDE) {                                                                   \
                T sums[NARROW * WIDE] = {0};                                                                           \
                for (uint64_t part = 0; part < parts.count; part++) {                                                  \
                    uint64_t from = (part + parts.first) % parts.count * parts.length;                                 \
                    uint64_t length = k - from < parts.length ? k - from : parts.length;                               \
                    sum_##T(panel_a + i * k + from * WIDE, panel_b + from * NARROW, length, sums);                     \
                }                                                                                                      \
                for (int q = 0; q < columns; q++)                                                                      \
                    for (uint64_t r = i; r < m && r < i + WIDE; r++)                                                   \
                        store_result(e, c, d, r, j + (uint64_t)q, sums[q * WIDE + (int)(r - i)], sizeof(T) == 8);      \
            }                                                                                                          \
        }                                                                                                              \
        free(panel_a);                                                                                                 \
        free(panel_b);                                                                                                 \
    }
DEFINE_MULTIPLY(float)
DEFINE_MULTIPLY(double)

/* ---- the operation ---- */

static double scalar(struct sim_access *access, const void *p, int type, const char *who)
{
    double value;
    read_double(type, sim_touch(access, p, lt_type_bytes(type), true, false, who), 1, 1, &value);
    return value;
}

static const float *scales(struct sim_access *access, const struct lt_op *o, int operand, uint64_t n, const char *who)
{
    if (!o->product.scale[operand]) return NULL;
    bool is_vector = o->product.scale_mode[operand] == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    return sim_touch(access, o->product.scale[operand], (is_vector ? n : 1) * sizeof(float), true, false, who);
}

void lt_run(struct sim_op *op, struct sim_access *access)
{
    struct lt_op *o = (struct lt_op *)op;
    const struct lt_product *p = &o->product;
    if (!sim_options.has_data) return;
    struct epilogue e = {.alpha = o->alpha_value, .beta = o->beta_value, .result_scale = 1, .amax = p->amax ? 0 : -1};
    if (o->alpha) {
        e.alpha = scalar(access, o->alpha, p->scale_type, "cublasLtMatmul: alpha");
        e.beta = scalar(access, o->beta, p->scale_type, "cublasLtMatmul: beta");
    }
    const uint8_t *a = touch(access, o, LT_A, true, false), *b = touch(access, o, LT_B, true, false);
    const uint8_t *c = e.beta != 0 ? touch(access, o, LT_C, true, false) : NULL;
    uint8_t *d = touch(access, o, LT_D, false, true);
    if (p->epilogue == CUBLASLT_EPILOGUE_BIAS) {
        e.bias_type = p->bias_type >= 0 ? p->bias_type : o->layout[LT_D].type;
        e.bias = sim_touch(access, p->bias, o->m * lt_type_bytes(e.bias_type), true, false, "cublasLtMatmul: the bias");
    }
    e.row_scale = scales(access, o, LT_A, o->m, "cublasLtMatmul: the scale of A");
    e.column_scale = scales(access, o, LT_B, o->n, "cublasLtMatmul: the scale of B");
    e.is_row_vector = p->scale_mode[LT_A] == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    if (p->scale[LT_D] && lt_type_bytes(o->layout[LT_D].type) == 1)
        e.result_scale = *scales(access, o, LT_D, 1, "cublasLtMatmul: the scale of D");
    if (o->workspace_bytes)
        memset(sim_touch(access, o->workspace, o->workspace_bytes, false, true, "cublasLtMatmul: the workspace"), 0xff,
               o->workspace_bytes);
    for (int batch = 0; batch < o->layout[LT_D].batch; batch++) {
        struct view va = view_of(&o->layout[LT_A], a, batch, p->transpose_a);
        struct view vb = view_of(&o->layout[LT_B], b, batch, p->transpose_b);
        struct view vc = view_of(&o->layout[LT_C], c, c ? batch : 0, false);
        struct view vd = view_of(&o->layout[LT_D], d, batch, false);
        (p->compute_type == CUBLAS_COMPUTE_64F ? multiply_double : multiply_float)(o, &va, &vb, &vc, &vd, &e);
    }
    if (p->amax) memcpy(sim_touch(access, p->amax, 4, false, true, "cublasLtMatmul: the largest of D"), &e.amax, 4);
}
