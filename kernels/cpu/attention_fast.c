/* SPDX-License-Identifier: MIT */
/*
 * Attention on vectors (Dao et al. 2022, Dao 2023).
 *
 * Scores are kept transposed: a row for each key, queries along the lanes. So the softmax's maxima and sums need no
 * work across lanes, masks are comparisons of a key's number with two vectors, and keys and values are used as they lie
 * in memory. All five products of the backward pass and both of the forward pass are one function: sum[i][j] += a[i] *
 * b[j], a broadcast, b a vector (patch).
 *
 * Whatever the compute type, blocks are packed as floats and results are summed in floats, so that what is stored is
 * rounded once.
 *
 * Exponentials are powers of two: queries are multiplied by scale * log2(e) when packed.
 */
#ifndef REAL
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

enum {
    LANES = 3 * VEC_WIDTH,                     /* queries in a tile */
    SCORE_ROWS = VEC_WIDTH / 2,                /* keys x 3 vectors of queries in registers */
    SUM_ROWS = VEC_WIDTH == 16 ? 12 : 6,       /* rows x 2 vectors of d in registers */
    KEY_STEP = 2 * (VEC_WIDTH == 16 ? 12 : 6), /* a multiple of SCORE_ROWS and of SUM_ROWS */
    QUERIES = 48,                              /* in a block: a multiple of LANES */
    KEYS = 72,                                 /* in a block: a multiple of KEY_STEP */
    PARTS = 8, /* most blocks of queries that share a packed block of keys in the forward pass */
    TILES = QUERIES / LANES,
    MOST_D = 256, /* wider heads go to the reference */
};

static const float LOG2_E = 0x1.715476p+0f;

/* A block of queries of one head. */
struct block {
    int64_t first, count;
    int64_t tile_first[TILES], tile_end[TILES];       /* keys that any query of the tile sees */
    int64_t tile_whole[TILES], tile_whole_end[TILES]; /* keys that every query of it sees */
    float key_first[QUERIES], key_end[QUERIES];       /* of each query */
};

static int64_t padded(int64_t d) { return (d + VEC_WIDTH - 1) / VEC_WIDTH * VEC_WIDTH; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* sum[rows][vectors] = a b, where a[i][k] = a[i * a_row + k * a_depth] and b[k][j] = b[k * ldb + j]. rows, vectors:
 * constants. */
INLINE void patch(const int rows, const int vectors, int64_t depth, const float *a, int64_t a_row, int64_t a_depth,
                  const float *b, int64_t ldb, vec sum[][3])
{
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < vectors; j++) sum[i][j] = vec_zero();
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; k++, a += a_depth, b += ldb) {
        vec x[3];

#pragma GCC unroll 16
        for (int j = 0; j < vectors; j++) x[j] = vec_load(b + j * VEC_WIDTH);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            vec y = vec_of(a[i * a_row]);

#pragma GCC unroll 16
            for (int j = 0; j < vectors; j++) sum[i][j] = vec_fma(y, x[j], sum[i][j]);
        }
    }
}

/* out[i][j] = keep[i] * out[i][j] + (a b)[i][j] for SUM_ROWS rows and `vectors` vectors. keep NULL: 1. */
INLINE void add_columns(const int vectors, int64_t depth, const float *a, const int64_t a_row, const int64_t a_depth,
                        const float *b, float *out, int64_t ld, const float *keep)
{
    vec sum[SUM_ROWS][3];

    patch(SUM_ROWS, vectors, depth, a, a_row, a_depth, b, ld, sum);
#pragma GCC unroll 16
    for (int i = 0; i < SUM_ROWS; i++)
#pragma GCC unroll 16
        for (int j = 0; j < vectors; j++) {
            float *p = out + i * ld + j * VEC_WIDTH;

            vec_store(p, keep ? vec_fma(vec_load(p), vec_of(keep[i]), sum[i][j]) : vec_add(vec_load(p), sum[i][j]));
        }
}

/* The same for whole rows of b and out, which have ld elements. */
INLINE void add_product(int64_t depth, const float *a, const int64_t a_row, const int64_t a_depth, const float *b,
                        float *out, int64_t ld, const float *keep)
{
    int64_t j = 0;

    for (; ld - j > VEC_WIDTH; j += 2 * VEC_WIDTH) add_columns(2, depth, a, a_row, a_depth, b + j, out + j, ld, keep);
    if (j < ld) add_columns(1, depth, a, a_row, a_depth, b + j, out + j, ld, keep);
}

static void block_init(struct block *b, const struct attention *a, const int32_t *start, int64_t first)
{
    b->first = first;
    b->count = smaller(QUERIES, a->length - first);
    for (int tile = 0; tile < TILES; tile++) {
        b->tile_first[tile] = b->tile_whole_end[tile] = a->length;
        b->tile_end[tile] = b->tile_whole[tile] = 0;
        for (int64_t i = tile * LANES; i < (tile + 1) * LANES; i++) {
            int64_t key_first = 0, key_end = 0;

            if (i < b->count) {
                attention_keys(a, start, first + i, &key_first, &key_end);
                b->tile_whole[tile] = larger(b->tile_whole[tile], key_first);
                b->tile_whole_end[tile] = smaller(b->tile_whole_end[tile], key_end);
            }
            if (key_first < key_end) {
                b->tile_first[tile] = smaller(b->tile_first[tile], key_first);
                b->tile_end[tile] = larger(b->tile_end[tile], key_end);
            }
            b->key_first[i] = (float)key_first;
            b->key_end[i] = (float)key_end;
        }
    }
}

/* The keys that any query of the block sees, in whole blocks of KEYS. */
static void block_keys(const struct block *b, int64_t *first, int64_t *end)
{
    *first = b->tile_first[0];
    *end = b->tile_end[0];
    for (int tile = 1; tile < TILES; tile++) {
        *first = smaller(*first, b->tile_first[tile]);
        *end = larger(*end, b->tile_end[tile]);
    }
    *first = *first / KEYS * KEYS;
}

/* Rows [*from, *to) of the key block at `key` that the tile needs, rounded outwards to KEY_STEP. */
static void tile_rows(const struct block *b, int tile, int64_t key, int64_t *from, int64_t *to)
{
    *from = larger(0, b->tile_first[tile] - key) / KEY_STEP * KEY_STEP;
    *to = smaller(KEYS, (larger(0, b->tile_end[tile] - key) + KEY_STEP - 1) / KEY_STEP * KEY_STEP);
    if (*from >= *to) *from = *to = 0;
}

/* x where the key may be seen by the lane's query, else `hidden`. */
INLINE vec masked(vec x, int64_t key, const struct block *b, int64_t query, vec hidden)
{
    vec j = vec_of((float)key);

    return vec_select(vec_and(vec_le(vec_load(b->key_first + query), j), vec_lt(j, vec_load(b->key_end + query))), x,
                      hidden);
}

INLINE bool is_whole(const struct block *b, int tile, int64_t key)
{
    return key >= b->tile_whole[tile] && key + SCORE_ROWS <= b->tile_whole_end[tile];
}

/* ---- forward ---- */

/* What a block of queries of one head has gathered so far. */
struct forward_part {
    struct block block;
    float q[MOST_D * QUERIES]; /* [TILES][d_qk][LANES] */
    float out[QUERIES * MOST_D];
    float most[QUERIES], sum[QUERIES], keep[QUERIES];
};

struct forward_scratch {
    float k[KEYS * MOST_D], v[KEYS * MOST_D];
    float p[KEYS * LANES]; /* scores, then exponentials */
    struct forward_part part[PARTS];
};

/* Scores of the tile's queries with the packed keys, in s->p; most[] grows with them. */
static void score_tile(struct forward_scratch *s, struct forward_part *part, const struct attention *a, int tile,
                       int64_t key, int64_t from, int64_t to)
{
    int64_t ld = padded(a->d_qk), query = tile * LANES;
    vec top[3], sum[SCORE_ROWS][3];

    for (int j = 0; j < 3; j++) top[j] = vec_load(part->most + query + j * VEC_WIDTH);
    for (int64_t row = from; row < to; row += SCORE_ROWS) {
        bool whole = is_whole(&part->block, tile, key + row);

        patch(SCORE_ROWS, 3, a->d_qk, s->k + row * ld, ld, 1, part->q + query * a->d_qk, LANES, sum);
#pragma GCC unroll 16
        for (int i = 0; i < SCORE_ROWS; i++)
#pragma GCC unroll 16
            for (int j = 0; j < 3; j++) {
                vec x = sum[i][j];

                if (!whole) x = masked(x, key + row + i, &part->block, query + j * VEC_WIDTH, vec_of(-INFINITY));
                top[j] = vec_max(top[j], x);
                vec_store(s->p + (row + i) * LANES + j * VEC_WIDTH, x);
            }
    }
    for (int j = 0; j < 3; j++) vec_store(part->keep + query + j * VEC_WIDTH, top[j]); /* for now; see soften_tile */
}

/* p becomes 2^(p - most); sum and keep (what earlier sums are multiplied with) follow. */
static void soften_tile(struct forward_scratch *s, struct forward_part *part, int tile, int64_t from, int64_t to)
{
    for (int64_t query = tile * LANES; query < (tile + 1) * LANES; query += VEC_WIDTH) {
        vec top = vec_load(part->keep + query), total = vec_zero(), base, kept;
        float *p = s->p + query % LANES;

        base =
            vec_select(vec_lt(vec_of(-INFINITY), top), top, vec_zero()); /* a query that saw no key yet: no inf - inf */
        kept = vec_exp2(vec_sub(vec_load(part->most + query), base));
        for (int64_t row = from; row < to; row++) {
            vec x = vec_exp2(vec_sub(vec_load(p + row * LANES), base));

            total = vec_add(total, x);
            vec_store(p + row * LANES, x);
        }
        vec_store(part->most + query, top);
        vec_store(part->keep + query, kept);
        vec_store(part->sum + query, vec_fma(vec_load(part->sum + query), kept, total));
    }
}

/* The packed keys, which start at `key`, for the queries of one part. */
static void forward_keys(struct forward_scratch *s, struct forward_part *part, const struct attention *a, int64_t key)
{
    int64_t ld = padded(a->d_v), from, to;

    for (int tile = 0; tile < TILES; tile++) {
        tile_rows(&part->block, tile, key, &from, &to);
        if (from == to) continue;
        score_tile(s, part, a, tile, key, from, to);
        soften_tile(s, part, tile, from, to);
        for (int64_t i = 0; i < LANES; i += SUM_ROWS)
            add_product(to - from, s->p + from * LANES + i, 1, LANES, s->v + from * ld,
                        part->out + (tile * LANES + i) * ld, ld, part->keep + tile * LANES + i);
    }
}

/* ---- backward ---- */

struct backward_scratch {
    struct block block;
    float q_lanes[MOST_D * QUERIES], dout_lanes[MOST_D * QUERIES]; /* [TILES][d][LANES]; q times scale * log2(e) */
    float q[QUERIES * MOST_D], dout[QUERIES * MOST_D];             /* [QUERIES][padded d]; q times scale */
    float *k, *v, *dk, *dv;                                        /* [keys of the chunk][padded d], in chunks */
    float p[KEYS * QUERIES], ds[KEYS * QUERIES];
    float dq[QUERIES * MOST_D];
    float lse[QUERIES], delta[QUERIES];
    float chunks[];
};

/* p = 2^(q k - lse) and ds = p * (dout v - delta) for the tile's queries and the packed keys [from, to); zero for the
 * others. */
static void score_gradients(struct backward_scratch *s, const struct attention *a, int tile, int64_t key,
                            const float *k, const float *v, int64_t from, int64_t to)
{
    int64_t ld_k = padded(a->d_qk), ld_v = padded(a->d_v), query = tile * LANES;
    vec sum[SCORE_ROWS][3];

    for (int64_t row = 0; row < KEYS; row++) {
        if (row == from) row = to;
        if (row == KEYS) break;
        memset(s->p + row * QUERIES + query, 0, LANES * sizeof(float));
        memset(s->ds + row * QUERIES + query, 0, LANES * sizeof(float));
    }
    for (int64_t row = from; row < to; row += SCORE_ROWS) {
        float *p = s->p + row * QUERIES + query, *ds = s->ds + row * QUERIES + query;
        bool whole = is_whole(&s->block, tile, key + row);

        patch(SCORE_ROWS, 3, a->d_qk, k + row * ld_k, ld_k, 1, s->q_lanes + query * a->d_qk, LANES, sum);
#pragma GCC unroll 16
        for (int j = 0; j < 3; j++) {
            vec lse = vec_load(s->lse + query + j * VEC_WIDTH);

#pragma GCC unroll 16
            for (int i = 0; i < SCORE_ROWS; i++) {
                vec x = vec_exp2(vec_sub(sum[i][j], lse));

                if (!whole) x = masked(x, key + row + i, &s->block, query + j * VEC_WIDTH, vec_zero());
                vec_store(p + i * QUERIES + j * VEC_WIDTH, x);
            }
        }
        patch(SCORE_ROWS, 3, a->d_v, v + row * ld_v, ld_v, 1, s->dout_lanes + query * a->d_v, LANES, sum);
#pragma GCC unroll 16
        for (int j = 0; j < 3; j++) {
            vec delta = vec_load(s->delta + query + j * VEC_WIDTH);

#pragma GCC unroll 16
            for (int i = 0; i < SCORE_ROWS; i++)
                vec_store(ds + i * QUERIES + j * VEC_WIDTH,
                          vec_mul(vec_load(p + i * QUERIES + j * VEC_WIDTH), vec_sub(sum[i][j], delta)));
        }
    }
}

/* One block of keys, which starts at `row` of the chunk and is number `key` of the sequence: adds to dk and dv of the
 * chunk if with_keys, and to dq if with_queries. */
static void backward_keys(struct backward_scratch *s, const struct attention *a, int64_t key, int64_t row,
                          bool with_keys, bool with_queries)
{
    int64_t ld_k = padded(a->d_qk), ld_v = padded(a->d_v), least = KEYS, most = 0, from, to;
    const float *k = s->k + row * ld_k, *v = s->v + row * ld_v;

    for (int tile = 0; tile < TILES; tile++) {
        tile_rows(&s->block, tile, key, &from, &to);
        score_gradients(s, a, tile, key, k, v, from, to);
        if (from == to) continue;
        least = smaller(least, from);
        most = larger(most, to);
        for (int64_t i = tile * LANES; with_queries && i < (tile + 1) * LANES; i += SUM_ROWS)
            add_product(to - from, s->ds + from * QUERIES + i, 1, QUERIES, k + from * ld_k, s->dq + i * ld_k, ld_k,
                        NULL);
    }
    for (int64_t i = least; with_keys && i < most; i += SUM_ROWS) {
        add_product(QUERIES, s->p + i * QUERIES, QUERIES, 1, s->dout, s->dv + (row + i) * ld_v, ld_v, NULL);
        add_product(QUERIES, s->ds + i * QUERIES, QUERIES, 1, s->q, s->dk + (row + i) * ld_k, ld_k, NULL);
    }
}

static bool is_fast(const struct attention *a) { return a->d_qk <= MOST_D && a->d_v <= MOST_D && a->length < 1 << 24; }

#define FAMILY "kernels/cpu/attention_fast.c"
#include "kernels/cpu/each_fast_type.h"
#else

enum {
    /* elements of packed keys in the backward pass, at least KEYS * MOST_D: enough for most sequences, where further
     * chunks cost more than a cache that is too small */
    NAME(CHUNK) = sizeof(REAL) < sizeof(float) ? 131072 : 32768,
    NAME(BACKWARD_BYTES) = sizeof(struct backward_scratch) + 4 * NAME(CHUNK) * sizeof(float),
};

/* to[i][0, ld) = factor * from[i][0, d), zero where there is nothing; rows [0, n) exist. */
static void NAME(pack_rows)(const REAL *from, int64_t stride, int64_t n, int64_t rows, int64_t d, float factor,
                            float *to, int64_t ld)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t x = 0; x < ld; x += VEC_WIDTH)
            vec_store(to + i * ld + x, vec_mul(vec_of(factor), vec_load_n(from + i * stride + x, d - x)));
    memset(to + n * ld, 0, (size_t)((rows - n) * ld) * sizeof *to);
}

/* to[i][0, d) (+)= factor * from[i][0, d) for n rows: the way back. */
INLINE void NAME(unpack_rows)(const float *from, int64_t ld, int64_t n, int64_t d, float factor, bool add, REAL *to,
                              int64_t stride)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t x = 0; x < d; x += VEC_WIDTH) {
            vec y = vec_mul(vec_load(from + i * ld + x), vec_of(factor));
            REAL *p = to + i * stride + x;

            vec_store_n(p, d - x, add ? vec_add(vec_load_n(p, d - x), y) : y);
        }
}

/* to[tile][x][lane] = factor * from[tile * LANES + lane][x], zero where there is no row; rows [0, n) exist. */
static void NAME(pack_lanes)(const REAL *from, int64_t stride, int64_t n, int64_t d, float factor, float *to)
{
    for (int64_t i = 0; i < QUERIES; i += 8) {
        float *tile = to + i / LANES * LANES * d + i % LANES;
        int64_t x = 0;

        for (; x + 8 <= d; x += 8) {
            __m256 rows[8];

            for (int j = 0; j < 8; j++)
                rows[j] = i + j < n ? _mm256_mul_ps(_mm256_set1_ps(factor), load_8(from + (i + j) * stride + x))
                                    : _mm256_setzero_ps();
            transpose_8x8(rows);
            for (int j = 0; j < 8; j++) _mm256_storeu_ps(tile + (x + j) * LANES, rows[j]);
        }
        for (; x < d; x++)
            for (int j = 0; j < 8; j++) tile[x * LANES + j] = i + j < n ? factor * GET(from[(i + j) * stride + x]) : 0;
    }
}

/* ---- forward ---- */

static void NAME(write_out)(const struct forward_part *part, const struct attention *a, REAL *out, float *lse)
{
    for (int64_t i = 0; i < part->block.count; i++) {
        float sum = part->sum[i], inverse = sum > 0 ? 1 / sum : sum; /* 0 for no key, NaN stays */

        NAME(unpack_rows)(part->out + i * padded(a->d_v), 0, 1, a->d_v, inverse, false, out + i * a->ld_out, 0);
        lse[i] = (float)((part->most[i] + log2((double)sum)) * (double)0x1.62e42fefa39efp-1);
    }
}

struct NAME(forward) {
    const struct attention *a;
    const REAL *q, *k, *v;
    REAL *out;
    float *lse;
    int64_t parts; /* of an item, at most PARTS */
};

/* Item: `parts` blocks of queries of one head of one sequence. Later blocks see more keys under a causal mask: they
 * come first. */
static void NAME(forward_blocks)(void *arg, int64_t item, void *scratch)
{
    const struct NAME(forward) *f = arg;
    const struct attention *a = f->a;
    struct forward_scratch *s = scratch;
    int64_t heads = a->sequences * a->heads, rows = f->parts * QUERIES, begin = a->length, end = 0;
    int64_t first = ((a->length + rows - 1) / rows - 1 - item / heads) * rows,
            n = smaller(f->parts, (a->length - first + QUERIES - 1) / QUERIES);
    int64_t sequence = item % heads / a->heads, head = item % heads % a->heads,
            kv_head = head / (a->heads / a->kv_heads);
    int64_t token = sequence * a->length, ld_k = padded(a->d_qk), ld_v = padded(a->d_v);
    const REAL *q = f->q + (token + first) * a->ld_q + head * a->d_qk;
    const REAL *k = f->k + token * a->ld_k + kv_head * a->d_qk, *v = f->v + token * a->ld_v + kv_head * a->d_v;

    for (int64_t i = 0; i < n; i++) {
        struct forward_part *part = &s->part[i];
        int64_t part_begin, part_end;

        block_init(&part->block, a, a->document_start ? a->document_start + token : NULL, first + i * QUERIES);
        NAME(pack_lanes)
        (q + i * QUERIES * a->ld_q, a->ld_q, part->block.count, a->d_qk, (float)(a->scale * LOG2_E), part->q);
        memset(part->out, 0, (size_t)(QUERIES * ld_v) * sizeof part->out[0]);
        memset(part->sum, 0, sizeof part->sum);
        for (int j = 0; j < QUERIES; j++) part->most[j] = -INFINITY;
        block_keys(&part->block, &part_begin, &part_end);
        begin = smaller(begin, part_begin);
        end = larger(end, part_end);
    }
    for (int64_t key = begin; key < end; key += KEYS) {
        int64_t count = smaller(KEYS, a->length - key);

        NAME(pack_rows)(k + key * a->ld_k, a->ld_k, count, KEYS, a->d_qk, 1, s->k, ld_k);
        NAME(pack_rows)(v + key * a->ld_v, a->ld_v, count, KEYS, a->d_v, 1, s->v, ld_v);
        for (int64_t i = 0; i < n; i++) forward_keys(s, &s->part[i], a, key);
    }
    for (int64_t i = 0; i < n; i++) NAME(write_out)
    (&s->part[i], a, f->out + (token + first + i * QUERIES) * a->ld_out + head * a->d_v,
     f->lse + (sequence * a->heads + head) * a->length + first + i * QUERIES);
}

/* A result does not depend on its item's other parts, so their number may follow the threads: enough items to share out
 * evenly. */
void NAME(attention_forward)(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                             const void *v, void *out, wide *lse)
{
    struct NAME(forward) f = {.a = a, .q = q, .k = k, .v = v, .out = out, .lse = lse};
    int64_t heads = a->sequences * a->heads, threads = pool_threads(cpu_pool(c));

    if (!is_fast(a)) {
        REFERENCE(attention_forward)(c, a, q, k, v, out, lse);
        return;
    }
    BUG_ON(c->workspace_bytes < NAME(attention_workspace)((int)threads));
    f.parts = larger(1, smaller(PARTS, heads * a->length / (QUERIES * 8 * threads)));
    cpu_for_items(cpu_pool(c), heads * ((a->length + f.parts * QUERIES - 1) / (f.parts * QUERIES)), c->workspace,
                  sizeof(struct forward_scratch), NAME(forward_blocks), &f);
}

/* ---- backward ---- */

struct NAME(backward) {
    const struct attention *a;
    const REAL *q, *k, *v, *out, *dout;
    const float *lse;
    REAL *dq, *dk, *dv;
};

/* Packs a block of queries of one head: everything that does not depend on the keys. */
static void NAME(pack_queries)(struct backward_scratch *s, const struct NAME(backward) * f, int64_t token,
                               int64_t sequence, int64_t head, int64_t first)
{
    const struct attention *a = f->a;
    const REAL *q = f->q + (token + first) * a->ld_q + head * a->d_qk;
    const REAL *out = f->out + (token + first) * a->ld_out + head * a->d_v;
    const REAL *dout = f->dout + (token + first) * a->ld_out + head * a->d_v;
    const float *lse = f->lse + (sequence * a->heads + head) * a->length + first;

    NAME(pack_lanes)(q, a->ld_q, s->block.count, a->d_qk, (float)(a->scale * LOG2_E), s->q_lanes);
    NAME(pack_lanes)(dout, a->ld_out, s->block.count, a->d_v, 1, s->dout_lanes);
    NAME(pack_rows)(q, a->ld_q, s->block.count, QUERIES, a->d_qk, (float)a->scale, s->q, padded(a->d_qk));
    NAME(pack_rows)(dout, a->ld_out, s->block.count, QUERIES, a->d_v, 1, s->dout, padded(a->d_v));
    memset(s->dq, 0, (size_t)(QUERIES * padded(a->d_qk)) * sizeof s->dq[0]);
    for (int64_t i = 0; i < QUERIES; i++) {
        vec delta = vec_zero();

        for (int64_t x = 0; i < s->block.count && x < a->d_v; x += VEC_WIDTH)
            delta = vec_fma(vec_load_n(out + i * a->ld_out + x, a->d_v - x),
                            vec_load_n(dout + i * a->ld_out + x, a->d_v - x), delta);
        s->delta[i] = vec_sum(delta);
        s->lse[i] = i < s->block.count && lse[i] != -INFINITY ? lse[i] * LOG2_E : INFINITY; /* no key: every p is 0 */
    }
}

/* A block of queries and the keys [chunk, chunk_end), which are packed. With dq, the first chunk sets it and later ones
 * add to it. */
static void NAME(backward_queries)(struct backward_scratch *s, const struct NAME(backward) * f, int64_t sequence,
                                   int64_t head, int64_t first, int64_t chunk, int64_t chunk_end, bool with_dq)
{
    const struct attention *a = f->a;
    int64_t token = sequence * a->length, begin, end;

    block_init(&s->block, a, a->document_start ? a->document_start + token : NULL, first);
    block_keys(&s->block, &begin, &end);
    begin = larger(begin, chunk);
    end = smaller(end, chunk_end);
    if (begin >= end && chunk > 0) return;
    NAME(pack_queries)(s, f, token, sequence, head, first);
    for (int64_t key = begin; key < end; key += KEYS) backward_keys(s, a, key, key - chunk, true, with_dq);
    if (with_dq) NAME(unpack_rows)
    (s->dq, padded(a->d_qk), s->block.count, a->d_qk, (float)a->scale, chunk > 0,
     f->dq + (token + first) * a->ld_q + head * a->d_qk, a->ld_q);
}

/* dq alone of a block of queries, for all keys at once. */
static void NAME(query_gradients)(struct backward_scratch *s, const struct NAME(backward) * f, int64_t sequence,
                                  int64_t head, int64_t first)
{
    const struct attention *a = f->a;
    int64_t token = sequence * a->length, kv_head = head / (a->heads / a->kv_heads), begin, end;

    block_init(&s->block, a, a->document_start ? a->document_start + token : NULL, first);
    block_keys(&s->block, &begin, &end);
    NAME(pack_queries)(s, f, token, sequence, head, first);
    for (int64_t key = begin; key < end; key += KEYS) {
        int64_t n = smaller(KEYS, a->length - key);

        NAME(pack_rows)
        (f->k + (token + key) * a->ld_k + kv_head * a->d_qk, a->ld_k, n, KEYS, a->d_qk, 1, s->k, padded(a->d_qk));
        NAME(pack_rows)
        (f->v + (token + key) * a->ld_v + kv_head * a->d_v, a->ld_v, n, KEYS, a->d_v, 1, s->v, padded(a->d_v));
        backward_keys(s, a, key, 0, false, true);
    }
    NAME(unpack_rows)
    (s->dq, padded(a->d_qk), s->block.count, a->d_qk, (float)a->scale, false,
     f->dq + (token + first) * a->ld_q + head * a->d_qk, a->ld_q);
}

/* Item: one key-value head of one sequence, with the query heads of its group, which add to the same dk and dv. Keys
 * come in chunks; where dq is no float, what is summed over chunks would be rounded with each: it takes a pass of its
 * own. */
static void NAME(backward_group)(void *arg, int64_t item, void *scratch)
{
    const struct NAME(backward) *f = arg;
    const struct attention *a = f->a;
    struct backward_scratch *s = scratch;
    int64_t sequence = item / a->kv_heads, kv_head = item % a->kv_heads, group = a->heads / a->kv_heads,
            token = sequence * a->length;
    int64_t ld_k = padded(a->d_qk), ld_v = padded(a->d_v),
            chunk = NAME(CHUNK) / larger(VEC_WIDTH, larger(ld_k, ld_v)) / KEYS * KEYS;
    bool dq_apart = chunk < a->length && sizeof(REAL) < sizeof(float);

    s->k = s->chunks;
    s->v = s->k + NAME(CHUNK);
    s->dk = s->v + NAME(CHUNK);
    s->dv = s->dk + NAME(CHUNK);
    for (int64_t key = 0; key < a->length; key += chunk) {
        int64_t n = smaller(chunk, a->length - key), rows = (n + KEYS - 1) / KEYS * KEYS;
        int64_t at_k = (token + key) * a->ld_k + kv_head * a->d_qk, at_v = (token + key) * a->ld_v + kv_head * a->d_v;

        NAME(pack_rows)(f->k + at_k, a->ld_k, n, rows, a->d_qk, 1, s->k, ld_k);
        NAME(pack_rows)(f->v + at_v, a->ld_v, n, rows, a->d_v, 1, s->v, ld_v);
        memset(s->dk, 0, (size_t)(rows * ld_k) * sizeof s->dk[0]);
        memset(s->dv, 0, (size_t)(rows * ld_v) * sizeof s->dv[0]);
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
            for (int64_t first = 0; first < a->length; first += QUERIES)
                NAME(backward_queries)(s, f, sequence, head, first, key, key + n, !dq_apart);
        NAME(unpack_rows)(s->dk, ld_k, n, a->d_qk, 1, false, f->dk + at_k, a->ld_k);
        NAME(unpack_rows)(s->dv, ld_v, n, a->d_v, 1, false, f->dv + at_v, a->ld_v);
    }
    for (int64_t head = kv_head * group; dq_apart && head < (kv_head + 1) * group; head++)
        for (int64_t first = 0; first < a->length; first += QUERIES) NAME(query_gradients)(s, f, sequence, head, first);
}

void NAME(attention_backward)(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                              const void *v, const void *out, const wide *lse, const void *dout, void *dq, void *dk,
                              void *dv)
{
    struct NAME(backward)
        f = {.a = a, .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv};

    if (!is_fast(a)) {
        REFERENCE(attention_backward)(c, a, q, k, v, out, lse, dout, dq, dk, dv);
        return;
    }
    BUG_ON(c->workspace_bytes < NAME(attention_workspace)(pool_threads(cpu_pool(c))));
    cpu_for_items(cpu_pool(c), a->sequences * a->kv_heads, c->workspace, NAME(BACKWARD_BYTES), NAME(backward_group),
                  &f);
}

size_t NAME(attention_workspace)(int threads)
{
    size_t forward = sizeof(struct forward_scratch), backward = NAME(BACKWARD_BYTES);

    return (size_t)threads * (forward > backward ? forward : backward);
}
#endif
