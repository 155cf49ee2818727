/* SPDX-License-Identifier: MIT */
/*
 * Matrix product on vectors (Goto, van de Geijn 2008; Van Zee, van de Geijn 2015), for float, bfloat16 (widened when
 * packed: from there on it is the product of floats) and double, and the instruction set it is compiled for.
 *
 * k is cut into slices; a slice of b is packed into panels of NR columns (shared, in the workspace), then tiles of out
 * are computed in parallel: each packs its rows of a into panels of MR rows (own scratch), and a kernel in registers
 * adds a MR x NR patch of out. How tiles are cut may depend on the threads: each element of out is computed by the same
 * instructions in any tile. The slices depend on k alone, so that the order of its sum does too.
 */
#ifndef REAL
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

enum {
    GEMM_DEPTH = 256,              /* most of k in a slice: a panel of b then fills half of a 32 KiB cache */
    GEMM_PANELS = 24,              /* most panels of a in a tile: a quarter of a 512 KiB cache */
    MR = VEC_WIDTH == 16 ? 12 : 6, /* 2 MR sums, 2 vectors of b and one of a fill the registers */
};

/* For bfloat16: sums of at most so many columns and elements of out are kept as floats until they are whole. */
enum { SUM_COLUMNS = 1536, SUM_ELEMENTS = 2 << 20 };

#define REAL float
#define STORED float
#define GET(x) (x)
#define NAME(name) VEC_LEVEL(name##_float32)
#define VECTOR(function) vec##function
#define WIDTH VEC_WIDTH
#include "kernels/cpu/gemm_fast.c"
#undef STORED
#undef GET
#undef NAME
#define STORED bfloat16
#define GET(x) bfloat16_to_float(x)
#define NAME(name) VEC_LEVEL(name##_bfloat16)
#define IS_NARROW
#include "kernels/cpu/gemm_fast.c"
#undef REAL
#undef STORED
#undef GET
#undef NAME
#undef VECTOR
#undef WIDTH
#undef IS_NARROW
#define REAL double
#define STORED double
#define GET(x) (x)
#define NAME(name) VEC_LEVEL(name##_float64)
#define VECTOR(function) vecd##function
#define WIDTH VECD_WIDTH
#define IS_DOUBLE
#include "kernels/cpu/gemm_fast.c"
#else

enum {
    NAME(NR) = 2 * WIDTH,
    NAME(NC) = 12288 / sizeof(REAL), /* columns of b packed at a time */
    /* the packed b, and a tile's packed a, each with what packing may write too far */
    NAME(B_ELEMENTS) = 12288 / sizeof(REAL) * GEMM_DEPTH + 64 / sizeof(REAL),
    NAME(A_ELEMENTS) = GEMM_PANELS * MR * GEMM_DEPTH + 64 / sizeof(REAL),
#ifdef IS_NARROW
    NAME(SUMS) = SUM_ELEMENTS,
#else
    NAME(SUMS) = 0,
#endif
};

struct NAME(gemm) {
    int64_t m, n, k;
    const STORED *a, *b;
    int64_t a_row, a_column, b_row, b_column; /* strides of op(a) and op(b) in elements */
    REAL *out;
    int64_t ldo;
    bool add;              /* to what out holds */
    REAL *packed;          /* the slice of b, [panels][depth][NR] */
    int64_t first, depth;  /* the slice: k in [first, first + depth) */
    int64_t left, columns; /* the columns of b that are packed: [left, left + columns) */
    int64_t tiles_m, tiles_n;
};

/* panel[k][i] = p[i * across + k] for i < n, zero for n <= i < r, for the k that come in whole eights; returns how
 * many. Stores are 8 wide: what they write too far is written over by the next, since later rows come first and later k
 * last. */
INLINE int64_t NAME(pack_transposed)(const STORED *p, int64_t across, int64_t n, int64_t depth, const int64_t r,
                                     REAL *panel)
{
    int64_t k = 0;

#ifdef IS_DOUBLE /* doubles are for tests: the plain loop serves */
    (void)p, (void)across, (void)n, (void)depth, (void)r, (void)panel;
#else
    for (; k + 8 <= depth; k += 8)
        for (int64_t first = (r - 1) / 8 * 8; first >= 0; first -= 8) {
            __m256 rows[8];

            for (int i = 0; i < 8; i++)
                rows[i] = first + i < n ? load_8(p + (first + i) * across + k) : _mm256_setzero_ps();
            transpose_8x8(rows);
            for (int i = 0; i < 8; i++) _mm256_storeu_ps(panel + (k + i) * r + first, rows[i]);
        }
#endif
    return k;
}

/* panel[i] = p[i] for i < r */
INLINE void NAME(pack_row)(const STORED *p, const int64_t r, REAL *panel)
{
#ifdef IS_NARROW
    int64_t i = 0;

    for (; i + 8 <= r; i += 8) _mm256_storeu_ps(panel + i, load_8(p + i));
    for (; i < r; i++) panel[i] = GET(p[i]);
#else
    memcpy(panel, p, (size_t)r * sizeof *p);
#endif
}

/* Copies panel[k][i] = p[i * across + k * along] for i < n, zero for n <= i < r; k < depth. */
INLINE void NAME(pack)(const STORED *p, int64_t across, int64_t along, int64_t n, int64_t depth, const int64_t r,
                       REAL *panel)
{
    int64_t k = 0;

    if (across == 1 && n == r) {
        for (; k < depth; k++) NAME(pack_row)(p + k * along, r, panel + k * r);
        return;
    }
    if (along == 1) k = NAME(pack_transposed)(p, across, n, depth, r, panel);
    for (; k < depth; k++)
        for (int64_t i = 0; i < r; i++) panel[k * r + i] = i < n ? GET(p[i * across + k * along]) : 0;
}

static void NAME(pack_b)(void *arg, int64_t panel)
{
    const struct NAME(gemm) *s = arg;
    int64_t column = panel * NAME(NR), n = s->columns - column < NAME(NR) ? s->columns - column : NAME(NR);

    NAME(pack)
    (s->b + (s->left + column) * s->b_column + s->first * s->b_row, s->b_column, s->b_row, n, s->depth, NAME(NR),
     s->packed + column * s->depth);
}

/* out[MR, NR] (+)= a[depth, MR]^T b[depth, NR]; rows and columns beyond those given are not touched. */
INLINE void NAME(patch)(int64_t depth, const REAL *a, const REAL *b, REAL *out, int64_t ldo, bool add, int64_t rows,
                        int64_t columns)
{
    VECTOR() sum[MR][2];
    REAL edge[MR][2 * WIDTH];

#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        _mm_prefetch((const char *)(out + (i < rows ? i : 0) * ldo), _MM_HINT_T0);
        sum[i][0] = sum[i][1] = VECTOR(_zero)();
    }
    for (int64_t k = 0; k < depth; k++, a += MR, b += NAME(NR)) {
        VECTOR() left = VECTOR(_load)(b), right = VECTOR(_load)(b + WIDTH);

#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            VECTOR() x = VECTOR(_of)(a[i]);

            sum[i][0] = VECTOR(_fma)(x, left, sum[i][0]);
            sum[i][1] = VECTOR(_fma)(x, right, sum[i][1]);
        }
    }
    if (rows == MR && columns == NAME(NR)) {
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++, out += ldo) {
            VECTOR(_store)(out, add ? VECTOR(_add)(VECTOR(_load)(out), sum[i][0]) : sum[i][0]);
            VECTOR(_store)(out + WIDTH, add ? VECTOR(_add)(VECTOR(_load)(out + WIDTH), sum[i][1]) : sum[i][1]);
        }
        return;
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        VECTOR(_store)(edge[i], sum[i][0]);
        VECTOR(_store)(edge[i] + WIDTH, sum[i][1]);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) out[i * ldo + j] = (add ? out[i * ldo + j] : 0) + edge[i][j];
}

/* One tile: rows [top, bottom) and columns [begin, end) of the packed ones, in panels. */
static void NAME(tile)(void *arg, int64_t item, void *scratch)
{
    const struct NAME(gemm) *s = arg;
    int64_t row = item / s->tiles_n, column = item % s->tiles_n;
    int64_t panels_m = (s->m + MR - 1) / MR, panels_n = (s->columns + NAME(NR) - 1) / NAME(NR);
    int64_t top = panels_m * row / s->tiles_m, bottom = panels_m * (row + 1) / s->tiles_m;
    int64_t begin = panels_n * column / s->tiles_n, end = panels_n * (column + 1) / s->tiles_n;
    REAL *a = scratch;

    for (int64_t i = top; i < bottom; i++) NAME(pack)
    (s->a + i * MR * s->a_row + s->first * s->a_column, s->a_row, s->a_column, s->m - i * MR < MR ? s->m - i * MR : MR,
     s->depth, MR, a + (i - top) * MR * s->depth);
    for (int64_t j = begin; j < end; j++)
        for (int64_t i = top; i < bottom; i++) NAME(patch)
    (s->depth, a + (i - top) * MR * s->depth, s->packed + j * NAME(NR) * s->depth,
     s->out + i * MR * s->ldo + s->left + j * NAME(NR), s->ldo, s->add, s->m - i * MR < MR ? s->m - i * MR : MR,
     s->columns - j * NAME(NR) < NAME(NR) ? s->columns - j * NAME(NR) : NAME(NR));
}

/* Enough tiles for the threads, of even size, rows first: a tile of few columns packs a for little work. */
static void NAME(cut)(struct NAME(gemm) * s, int64_t threads)
{
    int64_t panels_m = (s->m + MR - 1) / MR, panels_n = (s->columns + NAME(NR) - 1) / NAME(NR), rows, columns;

    rows = (panels_m + GEMM_PANELS - 1) / GEMM_PANELS;
    if (rows % threads && rows < 4 * threads) rows += threads - rows % threads;
    if (rows > panels_m) rows = panels_m;
    columns = rows < threads ? (threads + rows - 1) / rows : 1;
    s->tiles_m = rows;
    s->tiles_n = columns < panels_n ? columns : panels_n;
}

static void NAME(clear)(const struct NAME(gemm) * s)
{
    for (int64_t i = 0; i < s->m && !s->add; i++) memset(s->out + i * s->ldo, 0, (size_t)s->n * sizeof(REAL));
}

size_t NAME(gemm_workspace)(int threads)
{
    return sizeof(REAL) * (NAME(SUMS) + NAME(B_ELEMENTS) + (size_t)threads * NAME(A_ELEMENTS));
}

#ifdef IS_NARROW
void NAME(gemm_wide)(struct kernel_context *c, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                     const void *a, int64_t lda, const void *b, int64_t ldb, bool accumulate, wide *out, int64_t ldo)
#else
void NAME(gemm)(struct kernel_context *c, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                const void *a, int64_t lda, const void *b, int64_t ldb, bool accumulate, void *out, int64_t ldo)
#endif
{
    struct NAME(gemm) s = {.m = m,
                           .n = n,
                           .k = k,
                           .a = a,
                           .b = b,
                           .out = out,
                           .ldo = ldo,
                           .add = accumulate,
                           .packed = (REAL *)c->workspace + NAME(SUMS),
                           .a_row = transpose_a ? 1 : lda,
                           .a_column = transpose_a ? lda : 1,
                           .b_row = transpose_b ? 1 : ldb,
                           .b_column = transpose_b ? ldb : 1};
    struct pool *pool = m * n * k < 32768 ? NULL : cpu_pool(c); /* waking threads takes longer than a small product */
    int threads = pool_threads(pool);
    int64_t slices = (k + GEMM_DEPTH - 1) / GEMM_DEPTH;

    if (m == 0 || n == 0) return;
    if (k == 0) NAME(clear)(&s);
    BUG_ON(c->workspace_bytes < NAME(gemm_workspace)(threads));
    for (s.left = 0; s.left < n; s.left += NAME(NC)) {
        s.columns = n - s.left < NAME(NC) ? n - s.left : NAME(NC);
        for (int64_t slice = 0; slice < slices; slice++) {
            s.first = k * slice / slices;
            s.depth = k * (slice + 1) / slices - s.first;
            s.add = accumulate || slice > 0;
            NAME(cut)(&s, threads);
            pool_run(pool, NAME(pack_b), &s, (s.columns + NAME(NR) - 1) / NAME(NR));
            cpu_for_items(pool, s.tiles_m * s.tiles_n, s.packed + NAME(B_ELEMENTS), sizeof(REAL) * NAME(A_ELEMENTS),
                          NAME(tile), &s);
        }
    }
}

#ifdef IS_NARROW
/* Whole sums, and where they go. */
struct NAME(rounding) {
    const REAL *sums; /* [m, n] */
    int64_t n;
    STORED *out;
    int64_t ldo;
    bool add; /* to what out holds */
};

static void NAME(round_rows)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(rounding) *s = arg;

    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < s->n; j += WIDTH) {
            vec x = vec_load_n(s->sums + i * s->n + j, s->n - j);
            STORED *out = s->out + i * s->ldo + j;

            vec_store_n(out, s->n - j, s->add ? vec_add(vec_load_n(out, s->n - j), x) : x);
        }
}

/* By blocks of out whose sums are kept as floats until they are whole. */
void NAME(gemm)(struct kernel_context *c, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                const void *a, int64_t lda, const void *b, int64_t ldb, bool accumulate, void *out, int64_t ldo)
{
    int64_t columns = n < SUM_COLUMNS ? n : SUM_COLUMNS, rows = columns ? SUM_ELEMENTS / columns : 0;

    for (int64_t left = 0; left < n; left += columns)
        for (int64_t top = 0; top < m; top += rows) {
            int64_t high = m - top < rows ? m - top : rows;
            struct NAME(rounding) s = {.sums = c->workspace,
                                       .n = n - left < columns ? n - left : columns,
                                       .out = (STORED *)out + top * ldo + left,
                                       .ldo = ldo,
                                       .add = accumulate};

            NAME(gemm_wide)
            (c, transpose_a, transpose_b, high, s.n, k, (const STORED *)a + top * (transpose_a ? 1 : lda), lda,
             (const STORED *)b + left * (transpose_b ? ldb : 1), ldb, false, c->workspace, s.n);
            cpu_for_ranges(c, high, cpu_rows_grain(s.n), NAME(round_rows), &s);
        }
}
#endif
#endif
