/* SPDX-License-Identifier: MIT */
/*
 * The graphs that cuDNN is asked for, evaluated here operation by operation in double and compared with the reference
 * kernel of the CPU: masks, scale, grouped queries, log-sum-exps, strides and all gradients, without a GPU.
 *
 * Memory of the roles is of double, laid out by the graph's strides; what no tensor covers holds NaN, and must hold it
 * still at the end.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "cuda/attention_graph.h"
#include "kernels/cpu/cpu.h"

/* ---- the interpreter ---- */
struct values {
    const struct graph_tensor *tensor;
    double *at; /* [dim0, dim1, dim2, dim3], dense; NULL: nothing wrote it yet */
};

struct machine {
    const struct attention_graph *g;
    struct values values[GRAPH_MOST_TENSORS];
    double *memory[GRAPH_ROLES]; /* borrowed */
};

static int64_t count(const struct graph_tensor *t) { return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]; }

static void split(const struct graph_tensor *t, int64_t i, int64_t index[4])
{
    for (int d = 3; d >= 0; d--) {
        index[d] = i % t->dim[d];
        i /= t->dim[d];
    }
}

static int64_t place(const struct graph_tensor *t, int64_t i)
{
    int64_t index[4], sum = 0;

    split(t, i, index);
    for (int d = 0; d < 4; d++) sum += index[d] * t->stride[d];
    return sum;
}

/* The element that belongs to the place `index` of an operation's output: where the tensor has 1 it is repeated. */
static double element(const struct values *v, const int64_t index[4])
{
    int64_t i = 0;

    for (int d = 0; d < 4; d++) {
        int64_t dim = v->tensor->dim[d];

        assert_true(dim == 1 || index[d] < dim);
        i = i * dim + (dim == 1 ? 0 : index[d]);
    }
    return v->at[i];
}

static bool is_output(enum graph_role role)
{
    return role == GRAPH_OUT || role == GRAPH_LSE || role == GRAPH_DQ || role == GRAPH_DK || role == GRAPH_DV ||
           role == GRAPH_DELTA || role == GRAPH_DQ_SUM;
}

static bool is_written(const struct attention_graph *g, int tensor)
{
    for (int i = 0; i < g->n_ops; i++)
        if (g->ops[i].out == tensor) return true;
    return false;
}

/* Inputs are read from memory; a tensor that nothing writes must be one. */
static void load(struct machine *m)
{
    for (int i = 0; i < m->g->n_tensors; i++) {
        struct values *v = &m->values[i];

        v->tensor = &m->g->tensors[i];
        if (is_written(m->g, i)) {
            assert_true(v->tensor->role == GRAPH_INNER || is_output(v->tensor->role));
            continue;
        }
        assert_int_not_equal(v->tensor->role, GRAPH_INNER);
        assert_non_null(m->memory[v->tensor->role]);
        v->at = mem_alloc((size_t)count(v->tensor) * sizeof(double));
        assert_non_null(v->at);
        for (int64_t k = 0; k < count(v->tensor); k++) v->at[k] = m->memory[v->tensor->role][place(v->tensor, k)];
    }
}

static double matmul(const struct machine *m, const struct graph_op *op, const int64_t index[4])
{
    const struct values *a = &m->values[op->a], *b = &m->values[op->b], *out = &m->values[op->out];
    const int64_t *da = a->tensor->dim, *db = b->tensor->dim, *to = out->tensor->dim;
    double sum = 0;

    assert_true(da[3] == db[2] && da[2] == to[2] && db[3] == to[3] && to[1] % da[1] == 0 && to[1] % db[1] == 0);
    for (int64_t x = 0; x < da[3]; x++) {
        const int64_t ia[4] = {index[0], index[1] / (to[1] / da[1]), index[2], x},
                      ib[4] = {index[0], index[1] / (to[1] / db[1]), x, index[3]};

        sum += element(a, ia) * element(b, ib);
    }
    return sum;
}

/* Over the columns where the output has one, over the heads of a group where it has fewer. */
static double reduce(const struct machine *m, const struct graph_op *op, const int64_t index[4])
{
    const struct values *a = &m->values[op->a];
    const int64_t *from = a->tensor->dim, *to = m->values[op->out].tensor->dim;
    int64_t heads = from[1] / to[1], columns = from[3] / to[3];
    double result = op->kind == GRAPH_MAX ? -INFINITY : 0;

    assert_true(from[0] == to[0] && from[2] == to[2] && (to[3] == 1 || columns == 1) && heads * to[1] == from[1]);
    assert_true(heads == 1 || columns == 1);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t x = 0; x < columns; x++) {
            const int64_t ia[4] = {index[0], index[1] * heads + h, index[2], columns > 1 ? x : index[3]};
            double value = element(a, ia);

            result = op->kind == GRAPH_MAX ? fmax(result, value) : result + value;
        }
    return result;
}

static double evaluate(const struct machine *m, const struct graph_op *op, const int64_t index[4])
{
    const int64_t turned[4] = {index[0], index[1], index[3], index[2]};
    double a = 0, b = 0;

    if (op->kind == GRAPH_MATMUL) return matmul(m, op, index);
    if (op->kind == GRAPH_MAX || op->kind == GRAPH_SUM) return reduce(m, op, index);
    if (op->kind == GRAPH_TRANSPOSE) return element(&m->values[op->a], turned);
    if (op->kind == GRAPH_INDEX) return (double)index[op->axis];
    a = element(&m->values[op->a], index);
    if (op->b != GRAPH_NONE) b = element(&m->values[op->b], index);
    switch (op->kind) {
    case GRAPH_MULTIPLY: return a * b;
    case GRAPH_ADD: return a + b;
    case GRAPH_SUBTRACT: return a - b;
    case GRAPH_DIVIDE: return a / b;
    case GRAPH_EXP: return exp(a);
    case GRAPH_LOG: return log(a);
    case GRAPH_IDENTITY: return a;
    case GRAPH_AT_LEAST: return a >= b;
    case GRAPH_SELECT: return element(&m->values[op->choice], index) != 0 ? a : b;
    default: fail_msg("operation %d is not known", (int)op->kind); return NAN;
    }
}

/* Every operand was written before, every output only now. */
static void step(struct machine *m, const struct graph_op *op)
{
    const int operands[] = {op->a, op->b, op->choice};
    struct values *out = &m->values[op->out];
    int64_t n = count(out->tensor);
    double *at;

    for (int i = 0; i < 3; i++) assert_true(operands[i] == GRAPH_NONE || m->values[operands[i]].at);
    assert_null(out->at);
    at = mem_alloc((size_t)n * sizeof(double));
    assert_non_null(at);
    for (int64_t i = 0; i < n; i++) {
        int64_t index[4];

        split(out->tensor, i, index);
        at[i] = evaluate(m, op, index);
    }
    out->at = at;
    if (out->tensor->role == GRAPH_INNER) return;
    assert_non_null(m->memory[out->tensor->role]);
    for (int64_t i = 0; i < n; i++) m->memory[out->tensor->role][place(out->tensor, i)] = at[i];
}

static void interpret(const struct attention_graph *g, double *const memory[GRAPH_ROLES])
{
    struct machine m = {.g = g};

    memcpy(m.memory, memory, sizeof m.memory);
    load(&m);
    for (int i = 0; i < g->n_ops; i++) step(&m, &g->ops[i]);
    for (int i = 0; i < g->n_tensors; i++) mem_free(m.values[i].at);
}

/* ---- the comparison ---- */
enum { PAD = 8 };

struct fixture {
    struct attention a;
    int32_t *starts;
    int64_t count[GRAPH_ROLES];
    double *got[GRAPH_ROLES], *want[GRAPH_ROLES]; /* inputs are the same array */
};

static double *array(int64_t n)
{
    double *x = mem_alloc((size_t)n * sizeof *x);

    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = NAN;
    return x;
}

/* Numbers about as large as a model's, in rows of `width` that are ld apart. */
static double *input(int64_t n_rows, int64_t width, int64_t ld, uint64_t seed)
{
    double *x = array(n_rows * ld);

    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t k = 0; k < width; k++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            x[i * ld + k] = ((double)(seed >> 33) / 0x1p30 - 1) * 1.5;
        }
    return x;
}

static void set_up(struct fixture *f, const struct attention *shape, int64_t document_length)
{
    struct attention *a = &f->a;
    int64_t n;

    memset(f, 0, sizeof *f);
    *a = *shape;
    n = a->sequences * a->length;
    a->ld_q = a->heads * a->d_qk + PAD;
    a->ld_k = a->kv_heads * a->d_qk + 2 * PAD;
    a->ld_v = a->kv_heads * a->d_v + 3 * PAD;
    a->ld_out = a->heads * a->d_v + 4 * PAD;
    a->causal = true;
    a->scale = 0.7 / sqrt((double)a->d_qk);
    f->got[GRAPH_Q] = input(n, a->heads * a->d_qk, a->ld_q, 1);
    f->got[GRAPH_K] = input(n, a->kv_heads * a->d_qk, a->ld_k, 2);
    f->got[GRAPH_V] = input(n, a->kv_heads * a->d_v, a->ld_v, 3);
    f->got[GRAPH_DOUT] = input(n, a->heads * a->d_v, a->ld_out, 4);
    f->got[GRAPH_DELTA] = array(n * a->heads);
    f->got[GRAPH_DQ_SUM] = array(n * a->heads * a->d_qk);
    f->count[GRAPH_OUT] = n * a->ld_out;
    f->count[GRAPH_LSE] = n * a->heads;
    f->count[GRAPH_DQ] = n * a->ld_q;
    f->count[GRAPH_DK] = n * a->ld_k;
    f->count[GRAPH_DV] = n * a->ld_v;
    for (int r = 0; r < GRAPH_ROLES; r++) {
        f->want[r] = f->count[r] ? array(f->count[r]) : f->got[r];
        if (f->count[r]) f->got[r] = array(f->count[r]);
    }
    f->got[GRAPH_SCALE] = array(1);
    f->got[GRAPH_LOWEST] = array(1);
    f->got[GRAPH_ONE] = array(1);
    *f->got[GRAPH_SCALE] = a->scale;
    *f->got[GRAPH_LOWEST] = -INFINITY;
    *f->got[GRAPH_ONE] = 1;
    if (!document_length) return;
    f->starts = mem_alloc((size_t)n * sizeof *f->starts);
    assert_non_null(f->starts);
    f->got[GRAPH_DOCUMENT_START] = array(n);
    for (int64_t i = 0; i < n; i++) { /* documents of other lengths in each sequence */
        int64_t within = i % a->length, length = document_length + i / a->length;

        f->starts[i] = (int32_t)(within - within % length);
        f->got[GRAPH_DOCUMENT_START][i] = f->starts[i];
    }
    a->document_start = f->starts;
}

static void tear_down(struct fixture *f)
{
    for (int r = 0; r < GRAPH_ROLES; r++) {
        mem_free(f->got[r]);
        if (f->count[r]) mem_free(f->want[r]);
    }
    mem_free(f->starts);
}

static void assert_same(const struct fixture *f, enum graph_role role, const char *name)
{
    double worst = 0, size = 1; /* of gradients that are about 0 too */

    for (int64_t i = 0; i < f->count[role]; i++) {
        double got = f->got[role][i], want = f->want[role][i];

        if (isnan(want) != isnan(got)) fail_msg("%s[%lld] is %g, not %g", name, (long long)i, got, want);
        if (isnan(want)) continue;
        worst = fmax(worst, fabs(got - want));
        size = fmax(size, fabs(want));
    }
    if (!(worst <= 1e-12 * size)) fail_msg("%s differs by %g of %g", name, worst, size);
}

static void compare(const struct attention *shape, int64_t document_length, bool fixed_order)
{
    struct kernel_context context = {0};
    struct device device = {0};
    struct attention_graph g;
    struct fixture f;

    context.device = &device;
    set_up(&f, shape, document_length);
    attention_forward_float64(&context, &f.a, f.got[GRAPH_Q], f.got[GRAPH_K], f.got[GRAPH_V], f.want[GRAPH_OUT],
                              f.want[GRAPH_LSE]);
    attention_graph_forward(&g, &f.a);
    interpret(&g, f.got);
    assert_same(&f, GRAPH_OUT, "out");
    assert_same(&f, GRAPH_LSE, "lse");
    attention_backward_float64(&context, &f.a, f.got[GRAPH_Q], f.got[GRAPH_K], f.got[GRAPH_V], f.want[GRAPH_OUT],
                               f.want[GRAPH_LSE], f.got[GRAPH_DOUT], f.want[GRAPH_DQ], f.want[GRAPH_DK],
                               f.want[GRAPH_DV]);
    attention_graph_backward(&g, &f.a, fixed_order);
    assert_int_equal(attention_graph_find(&g, GRAPH_DQ_SUM) == GRAPH_NONE, fixed_order);
    interpret(&g, f.got);
    assert_same(&f, GRAPH_DQ, "dq");
    assert_same(&f, GRAPH_DK, "dk");
    assert_same(&f, GRAPH_DV, "dv");
    tear_down(&f);
}

static const struct attention shapes[] = {
    {.sequences = 1, .length = 1, .heads = 1, .kv_heads = 1, .d_qk = 8, .d_v = 8},
    {.sequences = 2, .length = 13, .heads = 4, .kv_heads = 4, .d_qk = 16, .d_v = 16},
    {.sequences = 2, .length = 10, .heads = 6, .kv_heads = 2, .d_qk = 8, .d_v = 16}, /* grouped, two widths */
    {.sequences = 1, .length = 9, .heads = 8, .kv_heads = 1, .d_qk = 24, .d_v = 8},
};

static void for_all(int64_t document_length, bool fixed_order)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) compare(&shapes[i], document_length, fixed_order);
}

static void test_causal(void **state)
{
    (void)state;
    for_all(0, false);
}

static void test_documents(void **state)
{
    (void)state;
    for_all(1, false); /* each token sees itself alone */
    for_all(4, false);
}

static void test_fixed_order(void **state)
{
    (void)state;
    for_all(0, true);
    for_all(3, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causal),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_fixed_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
