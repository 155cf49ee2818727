/* SPDX-License-Identifier: MIT */
/*
 * The kernels' cases and how each kernel is called. To add a kernel: a `struct subject` (what its arrays are, the call)
 * and its lines in kernel_cases[]. test_kernels fails when a kernel of kernels.def has no case.
 */
#include "tests/kernels/cases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bfloat16.h"
#include "base/hash.h"
#include "base/mem.h"

#define GEMM(m_, n_, k_, ta, tb, ...)                                                                                  \
    {                                                                                                                  \
        .kernel = "gemm", .m = m_, .n = n_, .k = k_, .transpose_a = ta, .transpose_b = tb, __VA_ARGS__                 \
    }
#define GEMM_WIDE(m_, n_, k_, ...)                                                                                     \
    {                                                                                                                  \
        .kernel = "gemm_wide", .m = m_, .n = n_, .k = k_, .transpose_a = true, __VA_ARGS__                             \
    }
#define ROWS(kernel_, t_, d_, ...)                                                                                     \
    {                                                                                                                  \
        .kernel = kernel_, .t = t_, .d = d_, __VA_ARGS__                                                               \
    }
#define ATTENTION(kernel_, length_, heads_, kv_, qk_, v_, ...)                                                         \
    {                                                                                                                  \
        .kernel = kernel_, .attention.length = length_, .attention.heads = heads_, .attention.kv_heads = kv_,          \
        .attention.d_qk = qk_, .attention.d_v = v_, __VA_ARGS__                                                        \
    }
#define ATTENTION_BOTH(...) ATTENTION("attention_forward", __VA_ARGS__), ATTENTION("attention_backward", __VA_ARGS__)
#define CAUSAL .attention.causal = true, .attention.sequences
#define TIMED .is_bench = true

const struct kernel_case kernel_cases[] = {
    GEMM(1, 1, 1, false, false, .pad = 0),
    GEMM(0, 5, 7, false, false, .pad = 1),
    GEMM(5, 7, 0, false, true, .pad = 1),
    GEMM(5, 7, 0, false, true, .accumulate = true),
    GEMM(1, 300, 65, false, true, .pad = 3),
    GEMM(6, 16, 8, false, false, .pad = 0),
    GEMM(7, 17, 9, true, false, .pad = 2),
    GEMM(13, 33, 31, true, true, .accumulate = true),
    GEMM(145, 33, 257, false, true, .accumulate = true, .pad = 5),
    GEMM(64, 96, 512, true, false, .pad = 0),
    GEMM(97, 203, 300, false, false, .pad = 1),
    GEMM(31, 520, 700, false, true, .pad = 0),
    GEMM(150, 3100, 40, false, true, .pad = 0),
    GEMM(300, 49, 1030, true, false, .accumulate = true),
    GEMM(1400, 1600, 3, true, false, .pad = 1), /* more than one block of sums of bfloat16 */
    /* the products of a debug model (width 256, ffn 768, vocabulary 2048) at 2048 tokens, of a 125M and of an 8B model
     */
    GEMM(2048, 256, 256, false, true, TIMED),
    GEMM(2048, 768, 256, false, true, TIMED),
    GEMM(2048, 256, 768, false, true, TIMED),
    GEMM(2048, 256, 256, false, false, TIMED),
    GEMM(2048, 768, 256, false, false, TIMED),
    GEMM(2048, 256, 768, false, false, TIMED),
    GEMM(256, 2048, 256, false, true, TIMED),
    GEMM(256, 256, 2048, false, false, TIMED),
    GEMM(1024, 768, 768, false, true, TIMED),
    GEMM(1024, 2048, 768, false, true, TIMED),
    GEMM(256, 32000, 768, false, true, TIMED),
    GEMM(512, 4096, 4096, false, true, TIMED),

    /* gradients of weights */
    GEMM_WIDE(1, 1, 1, .accumulate = true),
    GEMM_WIDE(7, 17, 9, .pad = 2),
    GEMM_WIDE(5, 7, 0, .accumulate = true),
    GEMM_WIDE(64, 96, 512, .accumulate = true),
    GEMM_WIDE(145, 33, 257, .accumulate = true, .pad = 5),
    GEMM_WIDE(37, 520, 700, .pad = 1),
    GEMM_WIDE(256, 256, 2048, TIMED, .accumulate = true),
    GEMM_WIDE(256, 768, 2048, TIMED, .accumulate = true),
    GEMM_WIDE(768, 256, 2048, TIMED, .accumulate = true),
    GEMM_WIDE(2048, 256, 256, TIMED, .accumulate = true),
    GEMM_WIDE(2048, 768, 1024, TIMED, .accumulate = true),

    ROWS("rmsnorm_forward", 0, 8, .pad = 0),
    ROWS("rmsnorm_forward", 1, 1, .pad = 0),
    ROWS("rmsnorm_forward", 5, 37, .pad = 0),
    ROWS("rmsnorm_forward", 130, 256, .pad = 0),
    ROWS("rmsnorm_forward", 3, 1040, .pad = 0), /* wide rows: of whole vectors, and not */
    ROWS("rmsnorm_forward", 3, 1043, .pad = 0),
    ROWS("rmsnorm_forward", 2048, 256, TIMED),
    ROWS("rmsnorm_backward_input", 1, 1, .accumulate = true), /* dx itself is 0 but for eps */
    ROWS("rmsnorm_backward_input", 5, 37, .accumulate = true),
    ROWS("rmsnorm_backward_input", 130, 256, .pad = 0),
    ROWS("rmsnorm_backward_input", 3, 1040, .accumulate = true),
    ROWS("rmsnorm_backward_input", 3, 1043, .pad = 0),
    ROWS("rmsnorm_backward_input", 2048, 256, TIMED),
    ROWS("rmsnorm_backward_weight", 0, 3, .pad = 0),
    ROWS("rmsnorm_backward_weight", 5, 37, .pad = 0),
    ROWS("rmsnorm_backward_weight", 130, 256, .pad = 0),
    ROWS("rmsnorm_backward_weight", 1, 1, .pad = 0),
    ROWS("rmsnorm_backward_weight", 67, 584, .pad = 0), /* columns in more than one strip */
    ROWS("rmsnorm_backward_weight", 2048, 256, TIMED),
    /* n = heads of d; accumulate = the inverse rotation */
    ROWS("rope", 1, 2, .n = 1),
    ROWS("rope", 9, 6, .n = 3, .pad = 5),
    ROWS("rope", 21, 8, .n = 3, .pad = 1),
    ROWS("rope", 33, 16, .n = 2),
    ROWS("rope", 5, 32, .n = 3, .pad = 8),
    ROWS("rope", 2, 80, .n = 40), /* more pairs than threads */
    ROWS("rope", 65, 64, .n = 4, .accumulate = true),
    ROWS("rope", 33, 128, .n = 2, .pad = 7, .accumulate = true),
    ROWS("rope", 2048, 16, .n = 16, TIMED),

    /* length, heads, kv_heads, d_qk, d_v */
    ATTENTION_BOTH(1, 1, 1, 1, 1, .attention.sequences = 1),
    ATTENTION_BOTH(0, 2, 1, 4, 4, .attention.sequences = 1),
    ATTENTION_BOTH(7, 2, 1, 4, 6, CAUSAL = 3),
    ATTENTION_BOTH(33, 4, 2, 16, 16, CAUSAL = 2, .pad = 3),
    ATTENTION_BOTH(100, 4, 4, 16, 16, .attention.sequences = 1),
    ATTENTION_BOTH(257, 2, 1, 16, 16, CAUSAL = 1),
    ATTENTION_BOTH(150, 2, 2, 64, 64, CAUSAL = 1, .attention.window = 40),
    ATTENTION_BOTH(130, 3, 1, 24, 17, .attention.sequences = 1, .attention.window = 9, .pad = 1),
    ATTENTION_BOTH(200, 2, 1, 20, 20, CAUSAL = 2, .document_length = 37),
    ATTENTION_BOTH(97, 2, 2, 128, 128, CAUSAL = 1, .document_length = 60, .attention.window = 20),
    ATTENTION_BOTH(70, 2, 1, 192, 128, CAUSAL = 1, .has_hidden_rows = true, .document_length = 30),
    ATTENTION_BOTH(450, 3, 1, 16, 12, CAUSAL = 2, .document_length = 170), /* queries in more than one part */
    ATTENTION_BOTH(200, 2, 1, 256, 200, CAUSAL = 1),                       /* keys in more than one chunk */
    ATTENTION_BOTH(520, 1, 1, 256, 8, .attention.sequences = 1),           /* the same for bfloat16 */
    ATTENTION_BOTH(40, 1, 1, 300, 8, CAUSAL = 1),
    /* dims of the tensor cores' kernels */
    ATTENTION_BOTH(141, 4, 2, 64, 64, CAUSAL = 2, .document_length = 50, .pad = 8),
    ATTENTION_BOTH(130, 2, 1, 128, 128, .attention.sequences = 1, .attention.window = 70),
    ATTENTION_BOTH(70, 2, 1, 64, 64, CAUSAL = 1, .has_hidden_rows = true, .document_length = 30, .pad = 3),
    ATTENTION_BOTH(66, 2, 1, 64, 64, CAUSAL = 1, .has_hidden_rows = true, .document_length = 30),
    ATTENTION_BOTH(1, 1, 1, 128, 128, CAUSAL = 2),
    ATTENTION_BOTH(2048, 16, 16, 16, 16, CAUSAL = 1, TIMED),
    ATTENTION_BOTH(1024, 12, 4, 64, 64, CAUSAL = 1, TIMED),
    ATTENTION_BOTH(1024, 8, 2, 128, 128, CAUSAL = 1, TIMED),

    ROWS("swiglu_forward", 0, 1, .pad = 0),
    ROWS("swiglu_forward", 1, 1, .pad = 0),
    ROWS("swiglu_forward", 3, 333, .pad = 0),
    ROWS("swiglu_forward", 37, 1031, .pad = 0),
    ROWS("swiglu_forward", 2048, 768, TIMED),
    ROWS("swiglu_backward", 1, 3, .pad = 0),
    ROWS("swiglu_backward", 37, 1031, .pad = 0),
    ROWS("swiglu_backward", 2048, 768, TIMED),
    ROWS("add", 1, 1, .pad = 0),
    ROWS("add", 9, 1777, .pad = 0),
    ROWS("add", 2048, 256, TIMED),
    ROWS("scale", 9, 1777, .pad = 0),
    ROWS("zero", 9, 1777, .pad = 0),
    ROWS("narrow", 0, 1, .pad = 0),
    ROWS("narrow", 9, 1777, .pad = 0),
    ROWS("narrow", 4096, 1024, TIMED),
    ROWS("accumulate", 1, 1, .pad = 0),
    ROWS("accumulate", 9, 1777, .pad = 0),
    ROWS("accumulate", 4096, 1024, TIMED),
    ROWS("embedding_forward", 0, 5, .v = 3),
    ROWS("embedding_forward", 40, 37, .v = 11),
    ROWS("embedding_backward_weight", 40, 37, .v = 11),
    ROWS("embedding_backward_weight", 300, 256, .v = 5),
    ROWS("embedding_backward_weight", 3, 1, .v = 1),
    ROWS("embedding_backward_weight", 523, 24, .v = 400), /* rows named from far apart */
    ROWS("embedding_backward_weight", 2048, 256, .v = 2048, TIMED),
    /* accumulate = with the gradient */
    ROWS("cross_entropy", 0, 0, .v = 3),
    ROWS("cross_entropy", 3, 0, .v = 1, .accumulate = true),
    ROWS("cross_entropy", 5, 0, .v = 37),
    ROWS("cross_entropy", 9, 0, .v = 64),
    ROWS("cross_entropy", 3, 0, .v = 8200, .accumulate = true),
    ROWS("cross_entropy", 70, 0, .v = 1003, .accumulate = true),
    ROWS("cross_entropy", 2048, 0, .v = 2048, TIMED, .accumulate = true),
    ROWS("cross_entropy", 256, 0, .v = 32000, TIMED, .accumulate = true),
    ROWS("adamw", 1, 1, .pad = 0),
    ROWS("adamw", 9, 1777, .pad = 0),
    ROWS("adamw", 4096, 1024, TIMED),
    /* accumulate = clipped */
    ROWS("clip", 1, 1, .pad = 0),
    ROWS("clip", 1, 1, .accumulate = true),
    ROWS("sum_squares", 0, 1, .pad = 0),
    ROWS("sum_squares", 9, 1777, .pad = 0),
    ROWS("sum_squares", 4096, 1024, TIMED),
};
const int kernel_cases_count = sizeof kernel_cases / sizeof kernel_cases[0];

/* ---- what the arrays of each kernel are, and the call ---- */

/* Of what is stored in bfloat16, where float32 is not exact either; see test_bfloat16_is_float64 for the reason. */
static const double TOLERANCE16 = 5e-4;

enum { ALL_WIDE = (1 << CASE_ARRAYS) - 1, RMSNORM_WIDE = 1 << 3 | 1 << 6 };

struct subject {
    const char *kernel;
    unsigned outputs; /* bit i: array i is written */
    unsigned wide;    /* bit i: array i is of the wide type */
    double tolerance32, tolerance64;
    void (*sizes)(const struct kernel_case *c, int64_t *count);
    void (*prepare)(struct kernel_run *r, const struct kernels *reference); /* or NULL */
    void (*call)(struct kernel_run *r, const struct kernels *k);
};

static int64_t lda_of(const struct kernel_case *c) { return (c->transpose_a ? c->m : c->k) + c->pad; }
static int64_t ldb_of(const struct kernel_case *c) { return (c->transpose_b ? c->k : c->n) + c->pad; }

/* a, b, out */
static void gemm_sizes(const struct kernel_case *c, int64_t *count)
{
    count[0] = (c->transpose_a ? c->k : c->m) * lda_of(c);
    count[1] = (c->transpose_b ? c->n : c->k) * ldb_of(c);
    count[2] = c->m * (c->n + c->pad);
}

static void gemm_call(struct kernel_run *r, const struct kernels *k)
{
    const struct kernel_case *c = r->c;

    k->gemm(r->context, c->transpose_a, c->transpose_b, c->m, c->n, c->k, r->array[0], lda_of(c), r->array[1],
            ldb_of(c), c->accumulate, r->array[2], c->n + c->pad);
}

static void gemm_wide_call(struct kernel_run *r, const struct kernels *k)
{
    const struct kernel_case *c = r->c;

    k->gemm_wide(r->context, c->transpose_a, c->transpose_b, c->m, c->n, c->k, r->array[0], lda_of(c), r->array[1],
                 ldb_of(c), c->accumulate, r->array[2], c->n + c->pad);
}

/* x, weight, y, rstd, dy, dx, dweight */
static void rmsnorm_sizes(const struct kernel_case *c, int64_t *count)
{
    count[0] = count[2] = count[4] = count[5] = c->t * c->d;
    count[1] = count[6] = c->d;
    count[3] = c->t;
}

static void rmsnorm_forward_call(struct kernel_run *r, const struct kernels *k)
{
    k->rmsnorm_forward(r->context, r->c->t, r->c->d, 1e-5, r->array[0], r->array[1], r->array[2], r->array[3]);
}

static void rmsnorm_input_call(struct kernel_run *r, const struct kernels *k)
{
    k->rmsnorm_backward_input(r->context, r->c->t, r->c->d, r->array[4], r->array[0], r->array[1], r->array[3],
                              r->c->accumulate, r->array[5]);
}

static void rmsnorm_weight_call(struct kernel_run *r, const struct kernels *k)
{
    k->rmsnorm_backward_weight(r->context, r->c->t, r->c->d, r->array[4], r->array[0], r->array[3], r->array[6]);
}

/* x, cos, sin; positions come in any order */
static void rope_sizes(const struct kernel_case *c, int64_t *count)
{
    count[0] = c->t * (c->n * c->d + c->pad);
    count[1] = count[2] = c->t * c->d / 2;
}

static void rope_call(struct kernel_run *r, const struct kernels *k)
{
    const struct kernel_case *c = r->c;

    k->rope(r->context, c->t, c->n, c->d, c->n * c->d + c->pad, r->array[1], r->array[2], r->indices, c->accumulate,
            r->array[0]);
}

/* q, k, v, out, lse, dout, dq, dk, dv */
static void attention_sizes(const struct kernel_case *c, int64_t *count)
{
    const struct attention *a = &c->attention;
    int64_t tokens = a->sequences * a->length;

    count[0] = count[6] = tokens * (a->heads * a->d_qk + c->pad);
    count[1] = count[7] = tokens * (a->kv_heads * a->d_qk + c->pad);
    count[2] = count[8] = tokens * (a->kv_heads * a->d_v + c->pad);
    count[3] = count[5] = tokens * (a->heads * a->d_v + c->pad);
    count[4] = tokens * a->heads;
}

static void attention_forward_call(struct kernel_run *r, const struct kernels *k)
{
    k->attention_forward(r->context, &r->attention, r->array[0], r->array[1], r->array[2], r->array[3], r->array[4]);
}

static void attention_backward_call(struct kernel_run *r, const struct kernels *k)
{
    void **x = r->array;

    k->attention_backward(r->context, &r->attention, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8]);
}

/* gate, up, h or dh, dgate, dup */
static void swiglu_sizes(const struct kernel_case *c, int64_t *count)
{
    for (int i = 0; i < 5; i++) count[i] = c->t * c->d;
}

static void swiglu_forward_call(struct kernel_run *r, const struct kernels *k)
{
    k->swiglu_forward(r->context, r->count[0], r->array[0], r->array[1], r->array[2]);
}

static void swiglu_backward_call(struct kernel_run *r, const struct kernels *k)
{
    k->swiglu_backward(r->context, r->count[0], r->array[2], r->array[0], r->array[1], r->array[3], r->array[4]);
}

/* x, y, out */
static void elementwise_sizes(const struct kernel_case *c, int64_t *count)
{
    count[0] = count[1] = count[2] = c->t * c->d;
}

static void add_call(struct kernel_run *r, const struct kernels *k)
{
    k->add(r->context, r->count[0], r->array[0], r->array[1], r->array[2]);
}

static void scale_call(struct kernel_run *r, const struct kernels *k)
{
    k->scale(r->context, r->count[2], 0.3, r->array[2]);
}

static void zero_call(struct kernel_run *r, const struct kernels *k) { k->zero(r->context, r->count[2], r->array[2]); }

static void narrow_call(struct kernel_run *r, const struct kernels *k)
{
    k->narrow(r->context, r->count[0], r->array[0], r->array[2]);
}

static void accumulate_call(struct kernel_run *r, const struct kernels *k)
{
    k->accumulate(r->context, r->count[0], r->array[0], r->array[2]);
}

static void sum_squares_call(struct kernel_run *r, const struct kernels *k)
{
    k->sum_squares(r->context, r->count[0], r->array[0], r->sum);
}

/* table, y or dy, dtable */
static void embedding_sizes(const struct kernel_case *c, int64_t *count)
{
    count[0] = count[2] = c->v * c->d;
    count[1] = c->t * c->d;
}

static void embedding_forward_call(struct kernel_run *r, const struct kernels *k)
{
    k->embedding_forward(r->context, r->c->t, r->c->d, r->c->v, r->indices, r->array[0], r->array[1]);
}

static void embedding_backward_call(struct kernel_run *r, const struct kernels *k)
{
    k->embedding_backward_weight(r->context, r->c->t, r->c->d, r->c->v, r->indices, r->array[1], r->array[2]);
}

/* logits; every seventh row has no label */
static void cross_entropy_sizes(const struct kernel_case *c, int64_t *count) { count[0] = c->t * c->v; }

static void cross_entropy_prepare(struct kernel_run *r, const struct kernels *reference)
{
    (void)reference;
    for (int64_t i = 6; i < r->c->t; i += 7) r->indices[i] = LABEL_IGNORED;
}

static void cross_entropy_call(struct kernel_run *r, const struct kernels *k)
{
    k->cross_entropy(r->context, r->c->t, r->c->v, r->array[0], r->indices, 0.125, r->c->accumulate, r->sum);
}

/* gradient, parameter, first, second */
static void adamw_sizes(const struct kernel_case *c, int64_t *count)
{
    for (int i = 0; i < 4; i++) count[i] = c->t * c->d;
}

static void adamw_call(struct kernel_run *r, const struct kernels *k)
{
    struct adamw_step step = {.lr = 1e-3,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .bias_correction1 = 1 - 0.9 * 0.9,
                              .bias_correction2 = 1 - 0.95 * 0.95};

    k->adamw(r->context, &step, &r->scalar[0], r->count[0], r->array[0], r->array[1], r->array[2], r->array[3]);
}

/* scalars: the sum of squares, norm, factor; no arrays */
static void clip_sizes(const struct kernel_case *c, int64_t *count) { (void)c, (void)count; }

static void clip_call(struct kernel_run *r, const struct kernels *k)
{
    k->clip(r->context, &r->scalar[0], r->c->accumulate ? 0.3 : 3, &r->scalar[1], &r->scalar[2]);
}

static const struct subject *subject_of(const struct kernel_case *c);

/* Type of an array of the run. */
static enum dtype type_of(const struct kernel_run *r, int array)
{
    return subject_of(r->c)->wide >> array & 1 ? dtype_wide(r->type) : r->type;
}

static void set(struct kernel_run *r, int array, int64_t i, double x)
{
    switch (type_of(r, array)) {
    case DTYPE_FLOAT32: ((float *)r->array[array])[i] = (float)x; break;
    case DTYPE_FLOAT64: ((double *)r->array[array])[i] = x; break;
    case DTYPE_BFLOAT16: ((bfloat16 *)r->array[array])[i] = bfloat16_of_double(x); break;
    default: BUG("no kernel has arrays of %s", dtype_name(r->type));
    }
}

static double get(const struct kernel_run *r, int array, int64_t i)
{
    switch (type_of(r, array)) {
    case DTYPE_FLOAT32: return ((const float *)r->array[array])[i];
    case DTYPE_FLOAT64: return ((const double *)r->array[array])[i];
    case DTYPE_BFLOAT16: return bfloat16_to_float(((const bfloat16 *)r->array[array])[i]);
    default: BUG("no kernel has arrays of %s", dtype_name(r->type));
    }
}

/* second moments are not negative */
static void adamw_prepare(struct kernel_run *r, const struct kernels *reference)
{
    (void)reference;
    for (int64_t i = 0; i < r->count[3]; i++) set(r, 3, i, fabs(get(r, 3, i)));
}

/* What of the arrays is wide: gradients of weights, statistics, rotary tables, and all that the optimizer sees. */
static const struct subject subjects[] = {
    {"gemm", 1 << 2, 0, 2e-6, 1e-13, gemm_sizes, NULL, gemm_call},
    {"gemm_wide", 1 << 2, 1 << 2, 2e-6, 1e-13, gemm_sizes, NULL, gemm_wide_call},
    {"rmsnorm_forward", 1 << 2 | 1 << 3, RMSNORM_WIDE, 5e-7, 3e-14, rmsnorm_sizes, NULL, rmsnorm_forward_call},
    {"rmsnorm_backward_input", 1 << 5, RMSNORM_WIDE, 5e-7, 3e-14, rmsnorm_sizes, rmsnorm_forward_call,
     rmsnorm_input_call},
    {"rmsnorm_backward_weight", 1 << 6, RMSNORM_WIDE, 1e-6, 1e-13, rmsnorm_sizes, rmsnorm_forward_call,
     rmsnorm_weight_call},
    {"rope", 1 << 0, 1 << 1 | 1 << 2, 5e-7, 1e-14, rope_sizes, NULL, rope_call},
    {"attention_forward", 1 << 3 | 1 << 4, 1 << 4, 2e-6, 1e-13, attention_sizes, NULL, attention_forward_call},
    {"attention_backward", 1 << 6 | 1 << 7 | 1 << 8, 1 << 4, 4e-6, 1e-13, attention_sizes, attention_forward_call,
     attention_backward_call},
    {"swiglu_forward", 1 << 2, 0, 5e-7, 1e-14, swiglu_sizes, NULL, swiglu_forward_call},
    {"swiglu_backward", 1 << 3 | 1 << 4, 0, 5e-7, 1e-14, swiglu_sizes, NULL, swiglu_backward_call},
    {"add", 1 << 2, 0, 0, 0, elementwise_sizes, NULL, add_call},
    {"scale", 1 << 2, 0, 1.5e-7, 0, elementwise_sizes, NULL, scale_call},
    {"zero", 1 << 2, 0, 0, 0, elementwise_sizes, NULL, zero_call},
    {"narrow", 1 << 2, 1 << 0, 0, 0, elementwise_sizes, NULL, narrow_call},
    {"accumulate", 1 << 2, ALL_WIDE, 0, 0, elementwise_sizes, NULL, accumulate_call},
    {"sum_squares", 0, ALL_WIDE, 1e-12, 1e-13, elementwise_sizes, NULL, sum_squares_call},
    {"embedding_forward", 1 << 1, 0, 0, 0, embedding_sizes, NULL, embedding_forward_call},
    {"embedding_backward_weight", 1 << 2, 1 << 2, 0, 0, embedding_sizes, NULL, embedding_backward_call},
    {"cross_entropy", 1 << 0, 0, 1e-6, 1e-13, cross_entropy_sizes, cross_entropy_prepare, cross_entropy_call},
    {"adamw", 1 << 1 | 1 << 2 | 1 << 3, ALL_WIDE, 5e-7, 1e-14, adamw_sizes, adamw_prepare, adamw_call},
    {"clip", 0, 0, 0, 0, clip_sizes, NULL, clip_call},
};

static const struct subject *subject_of(const struct kernel_case *c)
{
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++)
        if (strcmp(subjects[i].kernel, c->kernel) == 0) return &subjects[i];
    BUG("no subject for the kernel %s in tests/kernels/cases.c", c->kernel);
}

/* ---- runs ---- */

/* In (-1, 1), the same for every type: it fits in a float. */
static double value_of(int array, int64_t i)
{
    uint64_t bits = hash_mix((uint64_t)i * CASE_ARRAYS + (uint64_t)array + 1);

    return ((double)(bits >> 41) - 0x400000 + 0.5) / 0x400000;
}

static int64_t indices_of(const struct kernel_case *c)
{
    return c->attention.heads ? c->attention.sequences * c->attention.length : c->t;
}

/* document_start; hidden queries start behind themselves. */
static void fill_documents(struct kernel_run *r)
{
    const struct kernel_case *c = r->c;

    for (int64_t token = 0; token < indices_of(c); token++) {
        int64_t i = token % c->attention.length;

        r->indices[token] = (int32_t)(i - i % c->document_length);
        if (c->has_hidden_rows && i % 5 == 3) r->indices[token] = (int32_t)i + 1;
    }
    r->attention.document_start = r->indices;
}

void kernel_run_init(struct kernel_run *r, const struct kernel_case *c, const struct kernels *reference,
                     struct kernel_context *context)
{
    const struct subject *s = subject_of(c);
    struct attention *a = &r->attention;

    *r = (struct kernel_run){.c = c, .type = reference->type, .context = context, .attention = c->attention};
    r->sum = mem_zalloc(1 + CASE_SCALARS, sizeof *r->sum);
    BUG_ON(!r->sum);
    r->scalar = r->sum + 1;
    r->scalar[0] = 0.7;
    a->scale = 3 / sqrt((double)(a->d_qk > 0 ? a->d_qk : 1));
    a->ld_q = a->heads * a->d_qk + c->pad;
    a->ld_k = a->kv_heads * a->d_qk + c->pad;
    a->ld_v = a->kv_heads * a->d_v + c->pad;
    a->ld_out = a->heads * a->d_v + c->pad;
    s->sizes(c, r->count);
    for (int array = 0; array < CASE_ARRAYS; array++) {
        r->array[array] = mem_alloc((size_t)r->count[array] * dtype_bytes(type_of(r, array)));
        BUG_ON(!r->array[array]);
        for (int64_t i = 0; i < r->count[array]; i++) set(r, array, i, value_of(array, i));
    }
    r->indices = mem_alloc((size_t)indices_of(c) * sizeof *r->indices);
    BUG_ON(!r->indices);
    for (int64_t i = 0; i < indices_of(c); i++)
        r->indices[i] = (int32_t)(hash_mix((uint64_t)i) % (uint64_t)(c->v > 0 ? c->v : c->t > 0 ? c->t : 1));
    if (c->document_length > 0) fill_documents(r);
    if (s->prepare) s->prepare(r, reference);
}

void kernel_run_release(struct kernel_run *r)
{
    for (int i = 0; i < CASE_ARRAYS; i++) mem_free(r->array[i]);
    mem_free(r->indices);
    mem_free(r->sum);
    *r = (struct kernel_run){0};
}

void kernel_run_call(struct kernel_run *r, const struct kernels *k) { subject_of(r->c)->call(r, k); }

/* ---- runs on a device ---- */

/* The pieces of a run: its arrays, the indices, the doubles. */
static void *piece(const struct kernel_run *r, int i, size_t *bytes)
{
    if (i < CASE_ARRAYS) {
        *bytes = (size_t)r->count[i] * dtype_bytes(type_of(r, i));
        return r->array[i];
    }
    *bytes = i == CASE_ARRAYS ? (size_t)indices_of(r->c) * sizeof *r->indices : (1 + CASE_SCALARS) * sizeof *r->sum;
    return i == CASE_ARRAYS ? (void *)r->indices : (void *)r->sum;
}

static size_t shift_bytes(const struct kernel_run *r, int i, int64_t shift)
{
    return i < CASE_ARRAYS ? (size_t)shift * dtype_bytes(type_of(r, i)) : 0;
}

err_t kernel_run_upload(struct kernel_run *r, const struct kernel_run *host, struct kernel_context *context,
                        int64_t shift, struct error *e)
{
    struct device *d = context->device;
    err_t rc = ERR_NONE;

    *r = *host;
    r->context = context;
    memset(r->memory, 0, sizeof r->memory);
    for (int i = 0; i < CASE_MEMORY && !rc; i++) {
        size_t bytes, before = shift_bytes(host, i, shift);
        const void *from = piece(host, i, &bytes);

        r->memory_bytes[i] = before + bytes;
        if (before + bytes > 0) rc = d->ops->segment_alloc(d, before + bytes, &r->memory[i], e);
        if (!rc && bytes > 0) rc = device_write(d, (char *)r->memory[i] + before, from, bytes, e);
        if (i < CASE_ARRAYS) r->array[i] = (char *)r->memory[i] + before;
    }
    r->indices = r->memory[CASE_ARRAYS];
    r->sum = r->memory[CASE_ARRAYS + 1];
    r->scalar = r->sum + 1;
    if (host->attention.document_start) r->attention.document_start = r->indices;
    if (rc) kernel_run_drop(r);
    return rc;
}

err_t kernel_run_download(struct kernel_run *host, const struct kernel_run *r, struct error *e)
{
    err_t rc = ERR_NONE;

    for (int i = 0; i < CASE_MEMORY && !rc; i++) {
        size_t bytes;
        void *to = piece(host, i, &bytes);

        if (bytes > 0)
            rc = device_read(r->context->device, to, (char *)r->memory[i] + r->memory_bytes[i] - bytes, bytes, e);
    }
    return rc;
}

void kernel_run_drop(struct kernel_run *r)
{
    struct device *d = r->context->device;

    for (int i = 0; i < CASE_MEMORY; i++)
        if (r->memory[i]) d->ops->segment_free(d, r->memory[i], r->memory_bytes[i]);
    *r = (struct kernel_run){0};
}

/* ---- numbers ---- */

void kernel_run_copy(struct kernel_run *to, const struct kernel_run *from)
{
    for (int array = 0; array < CASE_ARRAYS; array++)
        for (int64_t i = 0; i < to->count[array]; i++) set(to, array, i, get(from, array, i));
}

void kernel_run_round(struct kernel_run *r, enum dtype type)
{
    struct kernel_run rounded = {.c = r->c, .type = type};
    double room;

    for (int array = 0; array < CASE_ARRAYS; array++)
        for (int64_t i = 0; i < r->count[array]; i++) {
            rounded.array[array] = &room;
            set(&rounded, array, 0, get(r, array, i));
            set(r, array, i, get(&rounded, array, 0));
        }
}

static double difference(const struct kernel_run *got, const struct kernel_run *want, int array)
{
    double error = 0, size = 0;

    for (int64_t i = 0; i < want->count[array]; i++) {
        double g = get(got, array, i), w = get(want, array, i);

        if (g != w) error += (g - w) * (g - w); /* equal infinities do not differ */
        if (isfinite(w)) size += w * w;
    }
    return sqrt(size > 0 ? error / size : error);
}

double kernel_run_difference(const struct kernel_run *got, const struct kernel_run *want, int *worst)
{
    double most = *want->sum != 0 ? fabs(*got->sum - *want->sum) / fabs(*want->sum) : fabs(*got->sum);

    *worst = -1;
    for (int i = 0; i < CASE_SCALARS; i++)
        if (got->scalar[i] != want->scalar[i]) return INFINITY; /* one number, computed in one way */
    for (int array = 0; array < CASE_ARRAYS; array++) {
        double d = subject_of(want->c)->outputs >> array & 1 ? difference(got, want, array) : 0;

        if (d <= most) continue; /* written so that a NaN is the worst */
        most = d;
        *worst = array;
        if (isnan(d)) break;
    }
    return most;
}

bool kernel_run_same_bits(const struct kernel_run *a, const struct kernel_run *b)
{
    bool same = memcmp(a->sum, b->sum, (1 + CASE_SCALARS) * sizeof *a->sum) == 0;

    for (int i = 0; i < CASE_ARRAYS && same; i++)
        same = memcmp(a->array[i], b->array[i], (size_t)a->count[i] * dtype_bytes(type_of(a, i))) == 0;
    return same;
}

/* ---- figures ---- */

double kernel_case_tolerance(const struct kernel_case *c, enum dtype type)
{
    const struct subject *s = subject_of(c);

    if (type == DTYPE_FLOAT64) return s->tolerance64;
    if (type == DTYPE_FLOAT32 || s->tolerance32 == 0 || !(s->outputs & ~s->wide)) return s->tolerance32;
    return TOLERANCE16;
}

static double visible_pairs(const struct attention *a)
{
    double n = (double)a->length;

    return (double)(a->sequences * a->heads) * (a->causal ? n * (n + 1) / 2 : n * n);
}

double kernel_case_flops(const struct kernel_case *c)
{
    const struct attention *a = &c->attention;

    if (strncmp(c->kernel, "gemm", 4) == 0) return 2.0 * (double)c->m * (double)c->n * (double)c->k;
    if (strcmp(c->kernel, "attention_forward") == 0) return 2 * visible_pairs(a) * (double)(a->d_qk + a->d_v);
    if (strcmp(c->kernel, "attention_backward") == 0) return 2 * visible_pairs(a) * (double)(3 * a->d_qk + 2 * a->d_v);
    return 0;
}

double kernel_case_bytes(const struct kernel_case *c, enum dtype type)
{
    const struct subject *s = subject_of(c);
    int64_t count[CASE_ARRAYS] = {0};
    double total = 0;

    s->sizes(c, count);
    for (int i = 0; i < CASE_ARRAYS; i++)
        total += (double)count[i] * (double)dtype_bytes(s->wide >> i & 1 ? dtype_wide(type) : type);
    return total;
}

void kernel_case_text(const struct kernel_case *c, char text[CASE_TEXT_BYTES])
{
    const struct attention *a = &c->attention;

    if (strncmp(c->kernel, "gemm", 4) == 0)
        snprintf(text, CASE_TEXT_BYTES, "%c%c m=%jd n=%jd k=%jd pad=%jd%s", c->transpose_a ? 'T' : 'N',
                 c->transpose_b ? 'T' : 'N', (intmax_t)c->m, (intmax_t)c->n, (intmax_t)c->k, (intmax_t)c->pad,
                 c->accumulate ? " accumulate" : "");
    else if (a->heads)
        snprintf(text, CASE_TEXT_BYTES,
                 "%jd x %jd tokens, heads %jd/%jd, dims %jd/%jd, window=%jd documents=%jd pad=%jd%s",
                 (intmax_t)a->sequences, (intmax_t)a->length, (intmax_t)a->heads, (intmax_t)a->kv_heads,
                 (intmax_t)a->d_qk, (intmax_t)a->d_v, (intmax_t)a->window, (intmax_t)c->document_length,
                 (intmax_t)c->pad, a->causal ? " causal" : "");
    else
        snprintf(text, CASE_TEXT_BYTES, "t=%jd d=%jd v=%jd heads=%jd pad=%jd%s", (intmax_t)c->t, (intmax_t)c->d,
                 (intmax_t)c->v, (intmax_t)c->n, (intmax_t)c->pad, c->accumulate ? " accumulate" : "");
}
