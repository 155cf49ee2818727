/* SPDX-License-Identifier: MIT */
/*
 * Scaled dot product attention, reference twin: one query at a time, keys in blocks, with an online softmax (Milakov,
 * Gimelshein 2018; Dao et al. 2022). Nothing is larger than a block of scores and one row of sums.
 *
 * Backward, with P = exp(scale q k^T - lse), delta = sum(dout * out):
 *   dv = P^T dout,  dS = P * (dout v^T - delta),  dq = scale dS k,  dk = scale dS^T q.
 * The query heads of one group add to the same dk and dv, so a group is one piece of work.
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
    const REAL *q, *k, *v, *out, *lse, *dout;
    REAL *out_w, *lse_w, *dq, *dk, *dv;
};

static double NAME(dot)(const REAL *x, const REAL *y, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * y[i];
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
        for (int64_t i = 0; i < a->d_v; i++) row[i] += p * v[j * a->ld_v + i];
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
        for (int64_t x = 0; x < a->d_v; x++) out[x] = (REAL)(sum > 0 ? row[x] / sum : sum);
        s->lse_w[item] = (REAL)(most + log(sum));
    }
}

void NAME(attention_forward)(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                             const void *v, void *out, wide *lse)
{
    struct NAME(attention) s = {.a = a, .q = q, .k = k, .v = v, .out_w = out, .lse_w = lse};

    BUG_ON(a->d_v > ATTENTION_MAX_D || a->d_qk > ATTENTION_MAX_D);
    cpu_for_ranges(c, a->sequences * a->heads * a->length, 16, NAME(attend_queries), &s);
}

/* The gradients of one query: dq whole, its part of dk and dv added. */
static void NAME(backward_query)(const struct NAME(attention) * s, int64_t sequence, int64_t head, int64_t i)
{
    const struct attention *a = s->a;
    int64_t token = sequence * a->length, kv_head = head / (a->heads / a->kv_heads), first, stop;
    const REAL *q = s->q + (token + i) * a->ld_q + head * a->d_qk;
    const REAL *dout = s->dout + (token + i) * a->ld_out + head * a->d_v;
    double lse = s->lse[(sequence * a->heads + head) * a->length + i];
    double delta = NAME(dot)(dout, s->out + (token + i) * a->ld_out + head * a->d_v, a->d_v), row[ATTENTION_MAX_D];
    REAL *dq = s->dq + (token + i) * a->ld_q + head * a->d_qk;

    memset(row, 0, (size_t)a->d_qk * sizeof row[0]);
    attention_keys(a, a->document_start ? a->document_start + token : NULL, i, &first, &stop);
    for (int64_t j = first; j < stop && lse != -INFINITY; j++) {
        const REAL *k = s->k + (token + j) * a->ld_k + kv_head * a->d_qk,
                   *v = s->v + (token + j) * a->ld_v + kv_head * a->d_v;
        REAL *dk = s->dk + (token + j) * a->ld_k + kv_head * a->d_qk,
             *dv = s->dv + (token + j) * a->ld_v + kv_head * a->d_v;
        double p = exp(a->scale * NAME(dot)(q, k, a->d_qk) - lse);
        double ds = a->scale * p * (NAME(dot)(dout, v, a->d_v) - delta);

        for (int64_t x = 0; x < a->d_v; x++) dv[x] = (REAL)(dv[x] + p * dout[x]);
        for (int64_t x = 0; x < a->d_qk; x++) {
            row[x] += ds * k[x];
            dk[x] = (REAL)(dk[x] + ds * q[x]);
        }
    }
    for (int64_t x = 0; x < a->d_qk; x++) dq[x] = (REAL)row[x];
}

/* Item: one key-value head of one sequence. */
static void NAME(backward_groups)(void *arg, int64_t begin, int64_t end)
{
    const struct NAME(attention) *s = arg;
    const struct attention *a = s->a;
    int64_t group = a->heads / a->kv_heads;

    for (int64_t item = begin; item < end; item++) {
        int64_t sequence = item / a->kv_heads, kv_head = item % a->kv_heads;

        for (int64_t j = sequence * a->length; j < (sequence + 1) * a->length; j++) {
            memset(s->dk + j * a->ld_k + kv_head * a->d_qk, 0, (size_t)a->d_qk * sizeof(REAL));
            memset(s->dv + j * a->ld_v + kv_head * a->d_v, 0, (size_t)a->d_v * sizeof(REAL));
        }
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
            for (int64_t i = 0; i < a->length; i++) NAME(backward_query)(s, sequence, head, i);
    }
}

void NAME(attention_backward)(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                              const void *v, const void *out, const wide *lse, const void *dout, void *dq, void *dk,
                              void *dv)
{
    struct NAME(attention)
        s = {.a = a, .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv};

    BUG_ON(a->d_v > ATTENTION_MAX_D || a->d_qk > ATTENTION_MAX_D);
    cpu_for_ranges(c, a->sequences * a->kv_heads, 1, NAME(backward_groups), &s);
}
#endif
