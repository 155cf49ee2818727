/* SPDX-License-Identifier: MIT */
/*
 * Attention as a graph of operations on tensors, as data: what cuDNN is asked for. cudnn_plan.c lowers it to cuDNN's
 * descriptors; the tests evaluate the same data and compare with the reference kernel, so that its mathematics is known
 * to be right without a GPU.
 *
 * All tensors have four dimensions: [sequences, heads, rows, columns]. An operand that has 1 where the output has n is
 * repeated; in a product an operand with fewer heads serves groups of heads (grouped queries). A reduction goes over
 * the columns, or over the heads of a group: whichever are fewer in its output.
 *
 * The pattern of operations is one that cuDNN's fused attention engines know; another order of the same mathematics is
 * refused.
 */
#ifndef CUDA_ATTENTION_GRAPH_H
#define CUDA_ATTENTION_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum graph_type { GRAPH_BFLOAT16, GRAPH_FLOAT32, GRAPH_INT32, GRAPH_BOOLEAN };

/* Whose memory a tensor is. */
enum graph_role {
    GRAPH_INNER, /* nobody's: it exists within the fused kernel only */
    GRAPH_Q,
    GRAPH_K,
    GRAPH_V,
    GRAPH_OUT,
    GRAPH_LSE,            /* [sequences, heads, length, 1], wide */
    GRAPH_DOCUMENT_START, /* [sequences, 1, length, 1], int32 */
    GRAPH_DOUT,
    GRAPH_DQ,
    GRAPH_DK,
    GRAPH_DV,
    GRAPH_DELTA,  /* scratch memory: sum of dout * out, [sequences, heads, length, 1] float32 */
    GRAPH_DQ_SUM, /* scratch memory, zero before each run: [sequences, heads, length, d_qk] float32 */
    GRAPH_SCALE,  /* single numbers, float32, given by the host with each run */
    GRAPH_LOWEST, /* -inf */
    GRAPH_ONE,
    GRAPH_ROLES
};

struct graph_tensor {
    enum graph_role role;
    enum graph_type type;
    int64_t dim[4], stride[4]; /* strides in elements */
};

enum graph_kind {
    GRAPH_MATMUL,   /* out = a b, [rows of a, columns of b] */
    GRAPH_MULTIPLY, /* out = a * b, element by element, as all below */
    GRAPH_ADD,
    GRAPH_SUBTRACT,
    GRAPH_DIVIDE,
    GRAPH_EXP,
    GRAPH_LOG,
    GRAPH_IDENTITY,
    GRAPH_INDEX,    /* out = the element's own index along `axis`; a only says where */
    GRAPH_AT_LEAST, /* out = a >= b */
    GRAPH_SELECT,   /* out = choice ? a : b */
    GRAPH_MAX,      /* reductions of a */
    GRAPH_SUM,
    GRAPH_TRANSPOSE, /* out[.., i, j] = a[.., j, i] */
    GRAPH_KINDS
};

enum { GRAPH_NONE = -1 };

struct graph_op {
    enum graph_kind kind;
    int a, b, choice, out; /* tensors by number, or GRAPH_NONE */
    int axis;
};

enum { GRAPH_MOST_TENSORS = 48, GRAPH_MOST_OPS = 32 };

struct attention_graph {
    struct graph_tensor tensors[GRAPH_MOST_TENSORS];
    struct graph_op ops[GRAPH_MOST_OPS];
    int n_tensors, n_ops;
};

/*
 * The graphs of kernels.def's attention_forward and attention_backward in bfloat16, causal; with documents where
 * a->document_start is not NULL. A window is not described: cudnn.h refuses it.
 * Blocks of keys add to dq in the order in which they come, hence other bits in each run; fixed_order: dq is computed
 * by one product of all of ds, for which cuDNN wants a workspace of sequences * heads * length^2 bfloat16 elements.
 */
void attention_graph_forward(struct attention_graph *g, const struct attention *a);
void attention_graph_backward(struct attention_graph *g, const struct attention *a, bool fixed_order);

/* The tensor of a role, GRAPH_NONE where the graph has none. */
int attention_graph_find(const struct attention_graph *g, enum graph_role role);

#endif
