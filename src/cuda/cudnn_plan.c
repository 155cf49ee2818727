/* SPDX-License-Identifier: MIT */
/*
 * Attention graphs, lowered to the descriptors of cuDNN's backend interface; see cudnn_plan.h.
 *
 * A failure while descriptors are made is kept, and nothing is done after it: it is looked at once, at the end.
 */
#include "cuda/cudnn_plan.h"

#include <stdio.h>
#include <string.h>

#include "cuda/library.h"

#define LIBRARY_FILE "libcudnn.so.9"
enum { OLDEST_VERSION = 91000, MOST_CONFIGURATIONS = 8 }; /* 9.10: -inf masks */

enum { REASON_BYTES = 1024 };

/* What the library says about its last refusal: of a trace of many lines the first that gives a reason; "" =
 * nothing. */
static void last_reason(const struct cudnn_target *t, char reason[REASON_BYTES])
{
    static const char mark[] = "Reason: ";
    char text[4 * REASON_BYTES] = "";
    const char *begin;

    t->cudnnGetLastErrorString(text, sizeof text);
    begin = strstr(text, mark);
    begin = begin ? begin + sizeof mark - 1 : text;
    snprintf(reason, REASON_BYTES, "%.*s", (int)strcspn(begin, "\n"), begin);
}

static err_t check(const struct cudnn_target *t, const char *what, cudnnStatus_t status, struct error *e)
{
    char reason[REASON_BYTES];

    if (status == CUDNN_STATUS_SUCCESS) return ERR_NONE;
    last_reason(t, reason);
    return FAIL(e, status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 ? ERR_UNSUPPORTED : ERR_DEVICE,
                "cuDNN: %s: %s%s%s", what, t->cudnnGetErrorString(status), *reason ? ": " : "", reason);
}

/* ---- descriptors ---- */
struct lowering {
    const struct cudnn_target *t;
    struct cudnn_plan *p;
    err_t failed;
    struct error *e;
};

static cudnnBackendDescriptor_t make(struct lowering *l, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;

    if (l->failed) return NULL;
    l->failed = check(l->t, "a descriptor", l->t->cudnnBackendCreateDescriptor(type, &d), l->e);
    if (l->failed) return NULL;
    BUG_ON(l->p->n_owned == CUDNN_MOST_DESCRIPTORS);
    return l->p->owned[l->p->n_owned++] = d;
}

static void set(struct lowering *l, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (!l->failed)
        l->failed = check(l->t, "an attribute", l->t->cudnnBackendSetAttribute(d, name, type, n, value), l->e);
}

static void set_descriptor(struct lowering *l, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value)
{
    set(l, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(struct lowering *l, cudnnBackendDescriptor_t d, const char *what)
{
    if (!l->failed) l->failed = check(l->t, what, l->t->cudnnBackendFinalize(d), l->e);
}

/* ---- tensors ---- */
static bool is_number(enum graph_role role) { return role == GRAPH_SCALE || role == GRAPH_LOWEST || role == GRAPH_ONE; }

static int64_t unique_id(int tensor) { return tensor + 1; }

static cudnnBackendDescriptor_t lower_tensor(struct lowering *l, int i)
{
    static const cudnnDataType_t types[] = {[GRAPH_BFLOAT16] = CUDNN_DATA_BFLOAT16,
                                            [GRAPH_FLOAT32] = CUDNN_DATA_FLOAT,
                                            [GRAPH_INT32] = CUDNN_DATA_INT32,
                                            [GRAPH_BOOLEAN] = CUDNN_DATA_BOOLEAN};
    const struct graph_tensor *tensor = &l->p->graph.tensors[i];
    cudnnBackendDescriptor_t d = make(l, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    bool is_inner = tensor->role == GRAPH_INNER, by_value = is_number(tensor->role);
    int64_t id = unique_id(i), alignment = 16;

    set(l, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(l, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &types[tensor->type]);
    set(l, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, tensor->dim);
    set(l, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, tensor->stride);
    set(l, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(l, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_inner);
    set(l, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finalize(l, d, "a tensor");
    return d;
}

/* ---- operations ---- */
static const cudnnDataType_t in_float32 = CUDNN_DATA_FLOAT;

static cudnnBackendDescriptor_t lower_matmul(struct lowering *l, const struct graph_op *op,
                                             const cudnnBackendDescriptor_t *tensors)
{
    cudnnBackendDescriptor_t m = make(l, CUDNN_BACKEND_MATMUL_DESCRIPTOR), d;

    set(l, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &in_float32);
    finalize(l, m, "a product");
    d = make(l, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(l, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors[op->a]);
    set_descriptor(l, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors[op->b]);
    set_descriptor(l, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors[op->out]);
    set_descriptor(l, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    return d;
}

static cudnnBackendDescriptor_t lower_reduction(struct lowering *l, const struct graph_op *op,
                                                const cudnnBackendDescriptor_t *tensors)
{
    cudnnReduceTensorOp_t how = op->kind == GRAPH_MAX ? CUDNN_REDUCE_TENSOR_MAX : CUDNN_REDUCE_TENSOR_ADD;
    cudnnBackendDescriptor_t r = make(l, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), d;

    set(l, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    set(l, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &in_float32);
    finalize(l, r, "a reduction");
    d = make(l, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(l, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors[op->a]);
    set_descriptor(l, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors[op->out]);
    set_descriptor(l, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
    return d;
}

static cudnnBackendDescriptor_t lower_transpose(struct lowering *l, const struct graph_op *op,
                                                const cudnnBackendDescriptor_t *tensors)
{
    cudnnBackendDescriptor_t d = make(l, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_descriptor(l, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors[op->a]);
    set_descriptor(l, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors[op->out]);
    return d;
}

static cudnnBackendDescriptor_t lower_pointwise(struct lowering *l, const struct graph_op *op,
                                                const cudnnBackendDescriptor_t *tensors)
{
    static const cudnnPointwiseMode_t modes[GRAPH_KINDS] = {
        [GRAPH_MULTIPLY] = CUDNN_POINTWISE_MUL,      [GRAPH_ADD] = CUDNN_POINTWISE_ADD,
        [GRAPH_SUBTRACT] = CUDNN_POINTWISE_SUB,      [GRAPH_DIVIDE] = CUDNN_POINTWISE_DIV,
        [GRAPH_EXP] = CUDNN_POINTWISE_EXP,           [GRAPH_LOG] = CUDNN_POINTWISE_LOG,
        [GRAPH_IDENTITY] = CUDNN_POINTWISE_IDENTITY, [GRAPH_INDEX] = CUDNN_POINTWISE_GEN_INDEX,
        [GRAPH_AT_LEAST] = CUDNN_POINTWISE_CMP_GE,   [GRAPH_SELECT] = CUDNN_POINTWISE_BINARY_SELECT,
    };
    cudnnBackendDescriptor_t m = make(l, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), d;
    int64_t axis = op->axis;

    set(l, m, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &modes[op->kind]);
    set(l, m, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &in_float32);
    if (op->kind == GRAPH_INDEX) set(l, m, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(l, m, "an operation by elements");
    d = make(l, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(l, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, m);
    set_descriptor(l, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors[op->a]);
    if (op->b != GRAPH_NONE) set_descriptor(l, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors[op->b]);
    if (op->choice != GRAPH_NONE) set_descriptor(l, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensors[op->choice]);
    set_descriptor(l, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors[op->out]);
    return d;
}

static cudnnBackendDescriptor_t lower_op(struct lowering *l, const struct graph_op *op,
                                         const cudnnBackendDescriptor_t *tensors)
{
    cudnnBackendDescriptor_t d;

    switch (op->kind) {
    case GRAPH_MATMUL: d = lower_matmul(l, op, tensors); break;
    case GRAPH_MAX:
    case GRAPH_SUM: d = lower_reduction(l, op, tensors); break;
    case GRAPH_TRANSPOSE: d = lower_transpose(l, op, tensors); break;
    default: d = lower_pointwise(l, op, tensors); break;
    }
    finalize(l, d, "an operation");
    return d;
}

/* ---- plans ---- */
static cudnnBackendDescriptor_t lower_graph(struct lowering *l)
{
    const struct attention_graph *g = &l->p->graph;
    cudnnBackendDescriptor_t tensors[GRAPH_MOST_TENSORS], ops[GRAPH_MOST_OPS], d;

    for (int i = 0; i < g->n_tensors; i++) tensors[i] = lower_tensor(l, i);
    for (int i = 0; i < g->n_ops; i++) ops[i] = lower_op(l, &g->ops[i], tensors);
    d = make(l, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(l, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, ops);
    if (l->t->handle) set(l, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &l->t->handle);
    finalize(l, d, "the graph of attention");
    return d;
}

/* The engines that cuDNN proposes, best first; their number. */
static int64_t find_engines(struct lowering *l, cudnnBackendDescriptor_t graph,
                            cudnnBackendDescriptor_t out[MOST_CONFIGURATIONS])
{
    cudnnBackendDescriptor_t h = make(l, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t n = 0;

    set_descriptor(l, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(l, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (l->t->device) set_descriptor(l, h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, l->t->device);
    finalize(l, h, "the choice of an engine");
    for (int i = 0; i < MOST_CONFIGURATIONS; i++) out[i] = make(l, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!l->failed)
        l->failed = check(l->t, "the choice of an engine",
                          l->t->cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CONFIGURATIONS, &n, out),
                          l->e);
    return l->failed ? 0 : n < MOST_CONFIGURATIONS ? n : MOST_CONFIGURATIONS;
}

/* The plan of one engine; NULL and a failure where it refuses. */
static cudnnBackendDescriptor_t plan_of(struct lowering *l, cudnnBackendDescriptor_t engine)
{
    cudnnBackendDescriptor_t plan = make(l, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

    if (l->t->handle) set(l, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &l->t->handle);
    set_descriptor(l, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
    if (l->t->device) set_descriptor(l, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, l->t->device);
    finalize(l, plan, "a plan");
    return l->failed ? NULL : plan;
}

err_t cudnn_plan_build(struct cudnn_plan *p, const struct cudnn_target *t, struct error *e)
{
    struct lowering l = {.t = t, .p = p, .e = e};
    cudnnBackendDescriptor_t engines[MOST_CONFIGURATIONS];
    int64_t n = find_engines(&l, lower_graph(&l), engines), bytes = 0, got;

    if (!l.failed && n == 0) {
        char reason[REASON_BYTES];

        last_reason(t, reason);
        l.failed = FAIL(e, ERR_UNSUPPORTED, "cuDNN: no engine takes this attention%s%s", *reason ? ": " : "", reason);
    }
    for (int64_t i = 0; i < n && !p->plan; i++) {
        l.failed = ERR_NONE; /* what the engine before refused */
        p->plan = plan_of(&l, engines[i]);
    }
    if (!l.failed)
        l.failed = check(t, "the plan's workspace",
                         t->cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                     CUDNN_TYPE_INT64, 1, &got, &bytes),
                         e);
    p->workspace_bytes = (size_t)bytes;
    if (!l.failed) return ERR_NONE;
    cudnn_plan_release(p, t);
    if (e) e->code = ERR_UNSUPPORTED; /* whatever it was: there is another way */
    return ERR_UNSUPPORTED;
}

void cudnn_plan_release(struct cudnn_plan *p, const struct cudnn_target *t)
{
    while (p->n_owned > 0) t->cudnnBackendDestroyDescriptor(p->owned[--p->n_owned]);
    p->plan = NULL;
}

err_t cudnn_plan_run(const struct cudnn_plan *p, const struct cudnn_target *t, const void *const data[GRAPH_ROLES],
                     void *workspace, struct error *e)
{
    cudnnBackendDescriptor_t pack;
    const void *pointers[GRAPH_MOST_TENSORS];
    int64_t ids[GRAPH_MOST_TENSORS], n = 0;
    err_t rc =
        check(t, "a descriptor", t->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), e);

    if (rc) return rc;
    for (int i = 0; i < p->graph.n_tensors; i++) {
        enum graph_role role = p->graph.tensors[i].role;

        if (role == GRAPH_INNER) continue;
        pointers[n] = data[role];
        ids[n++] = unique_id(i);
    }
    rc = check(t, "unique ids",
               t->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids), e);
    if (!rc)
        rc = check(
            t, "addresses",
            t->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers),
            e);
    if (!rc)
        rc = check(
            t, "workspace",
            t->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace),
            e);
    if (!rc) rc = check(t, "arguments", t->cudnnBackendFinalize(pack), e);
    if (!rc) rc = check(t, "attention", t->cudnnBackendExecute(t->handle, p->plan, pack), e);
    t->cudnnBackendDestroyDescriptor(pack);
    return rc;
}

/* ---- the library ---- */
static err_t describe_device(struct cudnn_target *t, const char *properties, struct error *e)
{
    err_t rc =
        check(t, "a descriptor", t->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &t->device), e);

    if (!rc)
        rc = check(t, "the GPU's description",
                   t->cudnnBackendSetAttribute(t->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                               (int64_t)strlen(properties), properties),
                   e);
    if (!rc) rc = check(t, "the GPU's description", t->cudnnBackendFinalize(t->device), e);
    return rc;
}

err_t cudnn_target_open(struct cudnn_target *t, const char *properties, struct error *e)
{
    void *library;
    int version;
    err_t rc;

    memset(t, 0, sizeof *t);
    rc = cuda_library_open(LIBRARY_FILE, "cudnn", "the fast way of attention", &library, e);
#define X(fn)                                                                                                          \
    if (!rc) rc = cuda_library_symbol(library, LIBRARY_FILE, #fn, (void **)&t->fn, e);
    CUDNN_FUNCTIONS(X)
#undef X
    if (rc) return rc;
    version = (int)t->cudnnGetVersion();
    if (version < OLDEST_VERSION)
        rc = FAIL(e, ERR_UNSUPPORTED, "cuDNN %d.%d.%d is too old: attention needs 9.10 or newer", version / 10000,
                  version / 100 % 100, version % 100);
    else if (properties)
        rc = describe_device(t, properties, e);
    else
        rc = check(t, "the GPU", t->cudnnCreate(&t->handle), e);
    if (rc) cudnn_target_close(t);
    return rc;
}

void cudnn_target_close(struct cudnn_target *t)
{
    if (t->device) t->cudnnBackendDestroyDescriptor(t->device);
    if (t->handle) t->cudnnDestroy(t->handle);
    t->device = NULL;
    t->handle = NULL;
}
