/* SPDX-License-Identifier: MIT */
/*
 * Matrix product, reference twin: each element of out is one sum over k, from first to last, in double. A block of
 * columns is kept in an array of sums so that the inner loop runs along rows of b.
 */
#ifndef REAL
#include "kernels/cpu/cpu.h"

enum { GEMM_COLUMNS = 64 };

#define FAMILY "kernels/cpu/gemm.c"
#include "kernels/cpu/each_type.h"
#else

struct NAME(gemm) {
    int64_t n, k;
    const REAL *a, *b;
    int64_t a_row, a_column, b_row, b_column; /* strides of op(a) and op(b) in elements */
    bool accumulate, is_wide;                 /* is_wide: out is, where there is a difference */
    void *out;                                /* [m, n], row stride ldo */
    int64_t ldo;
};

/* out[at] = sum, plus out[at] if asked, rounded once. */
static void NAME(gemm_store)(const struct NAME(gemm) * s, int64_t at, double sum)
{
    REAL *out = s->out;
    WIDE *wide_out = s->out;

    if (s->is_wide)
        wide_out[at] = (WIDE)(s->accumulate ? wide_out[at] + sum : sum);
    else
        out[at] = PUT(s->accumulate ? GET(out[at]) + sum : sum);
}

static void NAME(gemm_block)(const struct NAME(gemm) * s, int64_t i, int64_t first, int64_t width)
{
    double sum[GEMM_COLUMNS] = {0};

    for (int64_t k = 0; k < s->k; k++) {
        double a = GET(s->a[i * s->a_row + k * s->a_column]);
        const REAL *b = s->b + k * s->b_row + first * s->b_column;

        for (int64_t j = 0; j < width; j++) sum[j] += a * GET(b[j * s->b_column]);
    }
    for (int64_t j = 0; j < width; j++) NAME(gemm_store)(s, i * s->ldo + first + j, sum[j]);
}

static void NAME(gemm_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(gemm) *s = arg;

    for (int64_t first = 0; first < s->n; first += GEMM_COLUMNS)
        for (int64_t i = begin; i < end; i++)
            NAME(gemm_block)(s, i, first, s->n - first < GEMM_COLUMNS ? s->n - first : GEMM_COLUMNS);
}

static void NAME(gemm_any)(struct kernel_context *c, bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                           int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb, bool accumulate,
                           bool is_wide, void *out, int64_t ldo)
{
    struct NAME(gemm) s = {.n = n,
                           .k = k,
                           .a = a,
                           .b = b,
                           .accumulate = accumulate,
                           .is_wide = is_wide,
                           .out = out,
                           .ldo = ldo,
                           .a_row = transpose_a ? 1 : lda,
                           .a_column = transpose_a ? lda : 1,
                           .b_row = transpose_b ? 1 : ldb,
                           .b_column = transpose_b ? ldb : 1};

    cpu_for_ranges(c, m, 8, NAME(gemm_rows), &s);
}

void NAME(gemm)(struct kernel_context *c, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                const void *a, int64_t lda, const void *b, int64_t ldb, bool accumulate, void *out, int64_t ldo)
{
    NAME(gemm_any)(c, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, accumulate, false, out, ldo);
}

#ifndef IS_WIDE
void NAME(gemm_wide)(struct kernel_context *c, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                     const void *a, int64_t lda, const void *b, int64_t ldb, bool accumulate, wide *out, int64_t ldo)
{
    NAME(gemm_any)(c, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, accumulate, true, out, ldo);
}
#endif
#endif
