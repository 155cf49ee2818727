/* SPDX-License-Identifier: MIT */
/*
 * Scaled dot product attention, reference twin: one query at a time, keys in blocks, with an online softmax (Milakov,
 * Gimelshein 2018; Dao et al. 2022). Nothing is larger than a block of scores and one row of sums.
 *
 * Backward, with P = exp(scale q k^T - lse), delta = sum(dout * out):
 *   dv = P^T dout,  dS = P * (dout v^T - delta),  dq = scale dS k,  dk = scale dS^T q.
 * The query heads of one group add to the same dk and dv. So the gradients of keys and values are found key by key,
 * those of queries query by query, each from its own probabilities.
 */
#ifndef REAL
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { KEY_BLOCK = 64 };

#define FAMILY "kernels/cpu/attention.c"
#include "kernels/cpu/each_type.h"
#else

struct NAME(attention) {
    const struct attention *a;
    const REAL *q, *k, *v, *out, *dout;
    const WIDE *lse;
    REAL *out_w, *dq, *dk, *dv;
    WIDE *lse_w;
};

static double NAME(dot)(const REAL *x, const REAL *y, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (double)GET(x[i]) * GET(y[i]);
    return sum;
}

/* Adds one block of keys to the running softmax: most = the largest score so far, sum = of exp(score - most), row = of
 * exp * v. */
static void NAME(attend_block)(const struct attention *a, const REAL *q, const REAL *k, const REAL *v, int64_t n,
                               double *most, double *sum, double *row)
{
    double score[KEY_BLOCK], top = *most, keep;

    for (int64_t j = 0; j < n; j++) {
        score[j] = a->scale * NAME(dot)(q, k + j * a->ld_k, a->d_qk);
        if (!(score[j] <= top)) top = score[j]; /* a NaN gets through */
    }
    if (top == -INFINITY) return; /* every score is -inf: nothing to add */
    keep = exp(*most - top);
    *most = top;
    *sum *= keep;
    for (int64_t i = 0; i < a->d_v; i++) row[i] *= keep;
    for (int64_t j = 0; j < n; j++) {
        double p = exp(score[j] - top);

        *sum += p;
        for (int64_t i = 0; i < a->d_v; i++) row[i] += p * GET(v[j * a->ld_v + i]);
    }
}

/* Item: one query of one head; numbered [sequence, head, query] like lse. */
static void NAME(attend_queries)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(attention) *s = arg;
    const struct attention *a = s->a;

    for (int64_t item = begin; item < end; item++) {
        int64_t i = item % a->length, head = item / a->length % a->heads, sequence = item / a->length / a->heads;
        int64_t token = sequence * a->length, kv_head = head / (a->heads / a->kv_heads), first, stop;
        const REAL *q = s->q + (token + i) * a->ld_q + head * a->d_qk;
        REAL *out = s->out_w + (token + i) * a->ld_out + head * a->d_v;
        double most = -INFINITY, sum = 0, row[ATTENTION_MAX_D];

        memset(row, 0, (size_t)a->d_v * sizeof row[0]);
        attention_keys(a, a->document_start ? a->document_start + token : NULL, i, &first, &stop);
        for (int64_t j = first; j < stop; j += KEY_BLOCK) NAME(attend_block)
        (a, q, s->k + (token + j) * a->ld_k + kv_head * a->d_qk, s->v + (token + j) * a->ld_v + kv_head * a->d_v,
         stop - j < KEY_BLOCK ? stop - j : KEY_BLOCK, &most, &sum, row);
        for (int64_t x = 0; x < a->d_v; x++) out[x] = PUT(sum > 0 ? row[x] / sum : sum);
        s->lse_w[item] = (WIDE)(most + log(sum));
    }
}

void NAME(attention_forward)(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                             const void *v, void *out, wide *lse)
{
    struct NAME(attention) s = {.a = a, .q = q, .k = k, .v = v, .out_w = out, .lse_w = lse};

    BUG_ON(a->d_v > ATTENTION_MAX_D || a->d_qk > ATTENTION_MAX_D);
    cpu_for_ranges(c, a->sequences * a->heads * a->length, 16, NAME(attend_queries), &s);
}

/* What query i and key j of one head have to do with each other, from their rows. */
struct NAME(pair) {
    const REAL *q, *dout, *k, *v;
    double lse, delta;
};

static void NAME(pair_query)(const struct NAME(attention) * s, struct NAME(pair) * pair, int64_t sequence, int64_t head,
                             int64_t i)
{
    const struct attention *a = s->a;
    int64_t token = sequence * a->length + i, at = token * a->ld_out + head * a->d_v;

    pair->q = s->q + token * a->ld_q + head * a->d_qk;
    pair->dout = s->dout + at;
    pair->lse = s->lse[(sequence * a->heads + head) * a->length + i];
    pair->delta = NAME(dot)(pair->dout, s->out + at, a->d_v);
}

static void NAME(pair_key)(const struct NAME(attention) * s, struct NAME(pair) * pair, int64_t sequence,
                           int64_t kv_head, int64_t j)
{
    const struct attention *a = s->a;
    int64_t token = sequence * a->length + j;

    pair->k = s->k + token * a->ld_k + kv_head * a->d_qk;
    pair->v = s->v + token * a->ld_v + kv_head * a->d_v;
}

/* The probability, and in *ds the gradient of the score. */
static double NAME(pair_gradient)(const struct attention *a, const struct NAME(pair) * pair, double *ds)
{
    double p = exp(a->scale * NAME(dot)(pair->q, pair->k, a->d_qk) - pair->lse);

    *ds = a->scale * p * (NAME(dot)(pair->dout, pair->v, a->d_v) - pair->delta);
    return p;
}

/* Item: one query of one head; numbered [sequence, head, query] like lse. */
static void NAME(backward_queries)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(attention) *s = arg;
    const struct attention *a = s->a;

    for (int64_t item = begin; item < end; item++) {
        int64_t i = item % a->length, head = item / a->length % a->heads, sequence = item / a->length / a->heads;
        int64_t token = sequence * a->length, first, stop;
        double row[ATTENTION_MAX_D], ds;
        REAL *dq = s->dq + (token + i) * a->ld_q + head * a->d_qk;
        struct NAME(pair) pair;

        memset(row, 0, (size_t)a->d_qk * sizeof row[0]);
        NAME(pair_query)(s, &pair, sequence, head, i);
        attention_keys(a, a->document_start ? a->document_start + token : NULL, i, &first, &stop);
        for (int64_t j = first; j < stop && pair.lse != -INFINITY; j++) {
            NAME(pair_key)(s, &pair, sequence, head / (a->heads / a->kv_heads), j);
            NAME(pair_gradient)(a, &pair, &ds);
            for (int64_t x = 0; x < a->d_qk; x++) row[x] += ds * GET(pair.k[x]);
        }
        for (int64_t x = 0; x < a->d_qk; x++) dq[x] = PUT(row[x]);
    }
}

/* Adds to dk and dv of key j what the queries of one head bring. */
static void NAME(backward_key)(const struct NAME(attention) * s, int64_t sequence, int64_t head, int64_t j, WIDE *dk,
                               WIDE *dv)
{
    const struct attention *a = s->a;
    const int32_t *start = a->document_start ? a->document_start + sequence * a->length : NULL;
    struct NAME(pair) pair;

    NAME(pair_key)(s, &pair, sequence, head / (a->heads / a->kv_heads), j);
    for (int64_t i = a->causal ? j : 0; i < a->length; i++) {
        int64_t first, stop;
        double p, ds;

        attention_keys(a, start, i, &first, &stop);
        if (j < first || j >= stop) continue;
        NAME(pair_query)(s, &pair, sequence, head, i);
        if (pair.lse == -INFINITY) continue;
        p = NAME(pair_gradient)(a, &pair, &ds);
        for (int64_t x = 0; x < a->d_v; x++) dv[x] = (WIDE)(dv[x] + p * GET(pair.dout[x]));
        for (int64_t x = 0; x < a->d_qk; x++) dk[x] = (WIDE)(dk[x] + ds * GET(pair.q[x]));
    }
}

/* Item: one key of one key-value head; numbered [sequence, kv_head, key]. */
static void NAME(backward_keys)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(attention) *s = arg;
    const struct attention *a = s->a;
    int64_t group = a->heads / a->kv_heads;

    for (int64_t item = begin; item < end; item++) {
        int64_t j = item % a->length, kv_head = item / a->length % a->kv_heads,
                sequence = item / a->length / a->kv_heads;
        REAL *dk = s->dk + (sequence * a->length + j) * a->ld_k + kv_head * a->d_qk;
        REAL *dv = s->dv + (sequence * a->length + j) * a->ld_v + kv_head * a->d_v;
        WIDE sum_k[ATTENTION_MAX_D] = {0}, sum_v[ATTENTION_MAX_D] = {0};

        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
            NAME(backward_key)(s, sequence, head, j, sum_k, sum_v);
        for (int64_t x = 0; x < a->d_qk; x++) dk[x] = PUT(sum_k[x]);
        for (int64_t x = 0; x < a->d_v; x++) dv[x] = PUT(sum_v[x]);
    }
}

void NAME(attention_backward)(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                              const void *v, const void *out, const wide *lse, const void *dout, void *dq, void *dk,
                              void *dv)
{
    struct NAME(attention)
        s = {.a = a, .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv};

    BUG_ON(a->d_v > ATTENTION_MAX_D || a->d_qk > ATTENTION_MAX_D);
    cpu_for_ranges(c, a->sequences * a->heads * a->length, 16, NAME(backward_queries), &s);
    cpu_for_ranges(c, a->sequences * a->kv_heads * a->length, 16, NAME(backward_keys), &s);
}
#endif
