/* SPDX-License-Identifier: MIT */
/* The graphs of attention; see attention_graph.h. */
#include "cuda/attention_graph.h"

#include <string.h>

/* ---- building ---- */
struct shape {
    int64_t dim[4], stride[4];
};

static int add_tensor(struct attention_graph *g, enum graph_role role, enum graph_type type, const struct shape *s)
{
    struct graph_tensor *t = &g->tensors[g->n_tensors];

    BUG_ON(g->n_tensors == GRAPH_MOST_TENSORS);
    t->role = role;
    t->type = type;
    memcpy(t->dim, s->dim, sizeof t->dim);
    memcpy(t->stride, s->stride, sizeof t->stride);
    return g->n_tensors++;
}

static void add_op(struct attention_graph *g, struct graph_op op)
{
    BUG_ON(g->n_ops == GRAPH_MOST_OPS);
    g->ops[g->n_ops++] = op;
}

/* An operation into `out`, which it returns. */
static int into(struct attention_graph *g, enum graph_kind kind, int a, int b, int out)
{
    add_op(g, (struct graph_op){kind, a, b, GRAPH_NONE, out, 0});
    return out;
}

/* The same into a new inner tensor. */
static int inner(struct attention_graph *g, enum graph_kind kind, int a, int b, enum graph_type type,
                 const struct shape *s)
{
    return into(g, kind, a, b, add_tensor(g, GRAPH_INNER, type, s));
}

/* ---- shapes ---- */

/* Heads of `width` elements in rows of tokens, ld apart: as the model keeps them. */
static struct shape tokens(const struct attention *a, int64_t heads, int64_t width, int64_t ld)
{
    return (struct shape){{a->sequences, heads, a->length, width}, {a->length * ld, width, ld, 1}};
}

static struct shape transposed(struct shape s)
{
    return (struct shape){{s.dim[0], s.dim[1], s.dim[3], s.dim[2]},
                          {s.stride[0], s.stride[1], s.stride[3], s.stride[2]}};
}

static struct shape scores(const struct attention *a)
{
    int64_t t = a->length;

    return (struct shape){{a->sequences, a->heads, t, t}, {a->heads * t * t, t * t, t, 1}};
}

static struct shape rows(const struct attention *a)
{
    return (struct shape){{a->sequences, a->heads, a->length, 1}, {a->heads * a->length, a->length, 1, 1}};
}

static struct shape starts(const struct attention *a)
{
    return (struct shape){{a->sequences, 1, a->length, 1}, {a->length, a->length, 1, 1}};
}

static const struct shape single = {{1, 1, 1, 1}, {1, 1, 1, 1}};

/* Inner tensors of whole heads: [sequences, heads, length, width], dense. */
static struct shape by_heads(const struct attention *a, int64_t width)
{
    int64_t t = a->length;

    return (struct shape){{a->sequences, a->heads, t, width}, {a->heads * t * width, t * width, width, 1}};
}

/* ---- what both directions have ---- */

/* Where key <= query, and the key is in the query's document, the scores stay; elsewhere they become -inf. */
static int mask(struct attention_graph *g, const struct attention *a, int score)
{
    struct shape square = scores(a), start = starts(a);
    int lowest = add_tensor(g, GRAPH_LOWEST, GRAPH_FLOAT32, &single);
    int row = add_tensor(g, GRAPH_INNER, GRAPH_INT32, &square),
        column = add_tensor(g, GRAPH_INNER, GRAPH_INT32, &square);
    int sees, out;

    add_op(g, (struct graph_op){GRAPH_INDEX, score, GRAPH_NONE, GRAPH_NONE, row, 2});
    add_op(g, (struct graph_op){GRAPH_INDEX, score, GRAPH_NONE, GRAPH_NONE, column, 3});
    sees = inner(g, GRAPH_AT_LEAST, row, column, GRAPH_BOOLEAN, &square);
    out = add_tensor(g, GRAPH_INNER, GRAPH_FLOAT32, &square);
    add_op(g, (struct graph_op){GRAPH_SELECT, score, lowest, sees, out, 0});
    if (!a->document_start) return out;
    score = out;
    sees = inner(g, GRAPH_AT_LEAST, column, add_tensor(g, GRAPH_DOCUMENT_START, GRAPH_INT32, &start), GRAPH_BOOLEAN,
                 &square);
    out = add_tensor(g, GRAPH_INNER, GRAPH_FLOAT32, &square);
    add_op(g, (struct graph_op){GRAPH_SELECT, score, lowest, sees, out, 0});
    return out;
}

void attention_graph_forward(struct attention_graph *g, const struct attention *a)
{
    struct shape square = scores(a), row = rows(a), s_q = tokens(a, a->heads, a->d_qk, a->ld_q),
                 s_k = transposed(tokens(a, a->kv_heads, a->d_qk, a->ld_k)),
                 s_v = tokens(a, a->kv_heads, a->d_v, a->ld_v), s_out = tokens(a, a->heads, a->d_v, a->ld_out);
    int q, k, v, scale, score, most, power, sum, log_sum, p;

    memset(g, 0, sizeof *g);
    q = add_tensor(g, GRAPH_Q, GRAPH_BFLOAT16, &s_q);
    k = add_tensor(g, GRAPH_K, GRAPH_BFLOAT16, &s_k);
    v = add_tensor(g, GRAPH_V, GRAPH_BFLOAT16, &s_v);
    scale = add_tensor(g, GRAPH_SCALE, GRAPH_FLOAT32, &single);
    score = inner(g, GRAPH_MATMUL, q, k, GRAPH_FLOAT32, &square);
    score = inner(g, GRAPH_MULTIPLY, score, scale, GRAPH_FLOAT32, &square);
    score = mask(g, a, score);
    most = inner(g, GRAPH_MAX, score, GRAPH_NONE, GRAPH_FLOAT32, &row);
    power = inner(g, GRAPH_SUBTRACT, score, most, GRAPH_FLOAT32, &square);
    power = inner(g, GRAPH_EXP, power, GRAPH_NONE, GRAPH_FLOAT32, &square);
    sum = inner(g, GRAPH_SUM, power, GRAPH_NONE, GRAPH_FLOAT32, &row);
    log_sum = inner(g, GRAPH_LOG, sum, GRAPH_NONE, GRAPH_FLOAT32, &row);
    into(g, GRAPH_ADD, most, log_sum, add_tensor(g, GRAPH_LSE, GRAPH_FLOAT32, &row));
    p = inner(g, GRAPH_DIVIDE, power, sum, GRAPH_BFLOAT16, &square);
    into(g, GRAPH_MATMUL, p, v, add_tensor(g, GRAPH_OUT, GRAPH_BFLOAT16, &s_out));
}

/* delta = sum of dout * out over each row. */
static int add_delta(struct attention_graph *g, const struct attention *a, int dout, int out)
{
    struct shape s_out = tokens(a, a->heads, a->d_v, a->ld_out), row = rows(a);
    int product = inner(g, GRAPH_MULTIPLY, dout, out, GRAPH_FLOAT32, &s_out);
    int sum = inner(g, GRAPH_SUM, product, GRAPH_NONE, GRAPH_FLOAT32, &row);

    /* times one: here cuDNN's pattern has the factor of dropout */
    return into(g, GRAPH_MULTIPLY, sum, add_tensor(g, GRAPH_ONE, GRAPH_FLOAT32, &single),
                add_tensor(g, GRAPH_DELTA, GRAPH_FLOAT32, &row));
}

/* p = exp(scale q k^T - lse), 0 where masked. */
static int add_probabilities(struct attention_graph *g, const struct attention *a, int q, int k, int scale)
{
    struct shape square = scores(a), row = rows(a);
    int lse = add_tensor(g, GRAPH_LSE, GRAPH_FLOAT32, &row);
    int score = inner(g, GRAPH_MATMUL, q, k, GRAPH_FLOAT32, &square);

    score = inner(g, GRAPH_MULTIPLY, score, scale, GRAPH_FLOAT32, &square);
    score = inner(g, GRAPH_SUBTRACT, score, lse, GRAPH_FLOAT32, &square);
    return inner(g, GRAPH_EXP, mask(g, a, score), GRAPH_NONE, GRAPH_FLOAT32, &square);
}

/* The gradient of keys or values, whose shape is s: p^T b for each query head, summed over the heads of a group. */
static void add_key_gradient(struct attention_graph *g, const struct attention *a, int p, int b, enum graph_role role,
                             const struct shape *s)
{
    struct shape turned = scores(a), whole = by_heads(a, s->dim[3]);
    int p_turned, out, heads;

    turned.stride[2] = 1; /* the memory of the scores, read by columns */
    turned.stride[3] = a->length;
    p_turned = inner(g, GRAPH_TRANSPOSE, p, GRAPH_NONE, GRAPH_BFLOAT16, &turned);
    out = add_tensor(g, role, GRAPH_BFLOAT16, s);
    if (a->heads == a->kv_heads) {
        into(g, GRAPH_MATMUL, p_turned, b, out);
        return;
    }
    heads = inner(g, GRAPH_MATMUL, p_turned, b, GRAPH_BFLOAT16, &whole);
    into(g, GRAPH_SUM, heads, GRAPH_NONE, out);
}

void attention_graph_backward(struct attention_graph *g, const struct attention *a, bool fixed_order)
{
    struct shape square = scores(a), s_q = tokens(a, a->heads, a->d_qk, a->ld_q),
                 s_k = tokens(a, a->kv_heads, a->d_qk, a->ld_k), s_kt = transposed(s_k),
                 s_v = tokens(a, a->kv_heads, a->d_v, a->ld_v), s_vt = transposed(s_v),
                 s_out = tokens(a, a->heads, a->d_v, a->ld_out), s_sum = by_heads(a, a->d_qk);
    int q, k, v, out, dout, scale, delta, p, ds, dq;

    memset(g, 0, sizeof *g);
    q = add_tensor(g, GRAPH_Q, GRAPH_BFLOAT16, &s_q);
    k = add_tensor(g, GRAPH_K, GRAPH_BFLOAT16, &s_kt);
    v = add_tensor(g, GRAPH_V, GRAPH_BFLOAT16, &s_vt);
    out = add_tensor(g, GRAPH_OUT, GRAPH_BFLOAT16, &s_out);
    dout = add_tensor(g, GRAPH_DOUT, GRAPH_BFLOAT16, &s_out);
    scale = add_tensor(g, GRAPH_SCALE, GRAPH_FLOAT32, &single);
    delta = add_delta(g, a, dout, out);
    p = add_probabilities(g, a, q, k, scale);
    add_key_gradient(g, a, p, dout, GRAPH_DV, &s_v);
    ds = inner(g, GRAPH_MATMUL, dout, v, GRAPH_FLOAT32, &square);
    ds = inner(g, GRAPH_SUBTRACT, ds, delta, GRAPH_FLOAT32, &square);
    ds = inner(g, GRAPH_MULTIPLY, ds, p, GRAPH_FLOAT32, &square);
    ds = inner(g, GRAPH_MULTIPLY, ds, scale, GRAPH_FLOAT32, &square);
    add_key_gradient(g, a, ds, q, GRAPH_DK, &s_k);
    k = inner(g, GRAPH_TRANSPOSE, k, GRAPH_NONE, GRAPH_FLOAT32, &s_k);
    dq = add_tensor(g, GRAPH_DQ, GRAPH_BFLOAT16, &s_q);
    if (fixed_order)
        into(g, GRAPH_MATMUL, ds, k, dq);
    else
        into(g, GRAPH_IDENTITY, into(g, GRAPH_MATMUL, ds, k, add_tensor(g, GRAPH_DQ_SUM, GRAPH_FLOAT32, &s_sum)),
             GRAPH_NONE, dq);
}

int attention_graph_find(const struct attention_graph *g, enum graph_role role)
{
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].role == role) return i;
    return GRAPH_NONE;
}
