/* SPDX-License-Identifier: MIT */
/* Kernels whose arguments are kept until their stream comes to them; see lazy.h. A new kernel needs a line here. */
#include "tests/support/lazy.h"

#define BODY(name, ...)                                                                                                \
    struct name##_arguments x = {__VA_ARGS__};                                                                         \
    lazy_defer_kernel(k, run_##name, &x, sizeof x);

#define RUN(name, ...)                                                                                                 \
    static void run_##name(struct kernel_context *k, const struct kernels *real, void *arguments)                      \
    {                                                                                                                  \
        const struct name##_arguments *x = arguments;                                                                  \
                                                                                                                       \
        real->name(k, __VA_ARGS__);                                                                                    \
    }

/* DEFERn: n arguments after the context, by their types. */
#define DEFER2(name, A, B)                                                                                             \
    struct name##_arguments {                                                                                          \
        A a;                                                                                                           \
        B b;                                                                                                           \
    };                                                                                                                 \
    RUN(name, x->a, x->b)                                                                                              \
    static void lazy_##name(struct kernel_context *k, A a, B b) { BODY(name, a, b) }
#define DEFER3(name, A, B, C)                                                                                          \
    struct name##_arguments {                                                                                          \
        A a;                                                                                                           \
        B b;                                                                                                           \
        C c;                                                                                                           \
    };                                                                                                                 \
    RUN(name, x->a, x->b, x->c)                                                                                        \
    static void lazy_##name(struct kernel_context *k, A a, B b, C c) { BODY(name, a, b, c) }
#define DEFER4(name, A, B, C, D)                                                                                       \
    struct name##_arguments {                                                                                          \
        A a;                                                                                                           \
        B b;                                                                                                           \
        C c;                                                                                                           \
        D d;                                                                                                           \
    };                                                                                                                 \
    RUN(name, x->a, x->b, x->c, x->d)                                                                                  \
    static void lazy_##name(struct kernel_context *k, A a, B b, C c, D d) { BODY(name, a, b, c, d) }
#define DEFER6(name, A, B, C, D, E, F)                                                                                 \
    struct name##_arguments {                                                                                          \
        A a;                                                                                                           \
        B b;                                                                                                           \
        C c;                                                                                                           \
        D d;                                                                                                           \
        E e;                                                                                                           \
        F f;                                                                                                           \
    };                                                                                                                 \
    RUN(name, x->a, x->b, x->c, x->d, x->e, x->f)                                                                      \
    static void lazy_##name(struct kernel_context *k, A a, B b, C c, D d, E e, F f) { BODY(name, a, b, c, d, e, f) }
#define DEFER7(name, A, B, C, D, E, F, G)                                                                              \
    struct name##_arguments {                                                                                          \
        A a;                                                                                                           \
        B b;                                                                                                           \
        C c;                                                                                                           \
        D d;                                                                                                           \
        E e;                                                                                                           \
        F f;                                                                                                           \
        G g;                                                                                                           \
    };                                                                                                                 \
    RUN(name, x->a, x->b, x->c, x->d, x->e, x->f, x->g)                                                                \
    static void lazy_##name(struct kernel_context *k, A a, B b, C c, D d, E e, F f, G g)                               \
    {                                                                                                                  \
        BODY(name, a, b, c, d, e, f, g)                                                                                \
    }
#define DEFER12(name, A, B, C, D, E, F, G, H, I, J, K, L)                                                              \
    struct name##_arguments {                                                                                          \
        A a;                                                                                                           \
        B b;                                                                                                           \
        C c;                                                                                                           \
        D d;                                                                                                           \
        E e;                                                                                                           \
        F f;                                                                                                           \
        G g;                                                                                                           \
        H h;                                                                                                           \
        I i;                                                                                                           \
        J j;                                                                                                           \
        K k;                                                                                                           \
        L l;                                                                                                           \
    };                                                                                                                 \
    RUN(name, x->a, x->b, x->c, x->d, x->e, x->f, x->g, x->h, x->i, x->j, x->k, x->l)                                  \
    static void lazy_##name(struct kernel_context *k, A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K kk, L l)     \
    {                                                                                                                  \
        BODY(name, a, b, c, d, e, f, g, h, i, j, kk, l)                                                                \
    }

typedef const void *in;
typedef void *out;
typedef int64_t n;
typedef const int32_t *indices;

DEFER12(gemm, bool, bool, n, n, n, in, n, in, n, bool, out, n)
DEFER12(gemm_wide, bool, bool, n, n, n, in, n, in, n, bool, out, n)
DEFER7(rmsnorm_forward, n, n, double, in, in, out, out)
DEFER6(rmsnorm_backward_weight, n, n, in, in, in, out)
DEFER4(swiglu_forward, n, in, in, out)
DEFER6(swiglu_backward, n, in, in, in, out, out)
DEFER4(add, n, in, in, out)
DEFER3(scale, n, double, out)
DEFER2(zero, n, out)
DEFER3(narrow, n, in, out)
DEFER3(accumulate, n, in, out)
DEFER6(embedding_forward, n, n, n, indices, in, out)
DEFER6(embedding_backward_weight, n, n, n, indices, in, out)
DEFER7(cross_entropy, n, n, out, indices, double, bool, double *)
DEFER4(clip, const double *, double, double *, double *)
DEFER3(sum_squares, n, in, double *)

/* ---- by hand: more arguments, or structures whose owner does not keep them ---- */
struct rmsnorm_backward_input_arguments {
    n t, d;
    in dy, x, weight, rstd;
    bool accumulate;
    out dx;
};
RUN(rmsnorm_backward_input, x->t, x->d, x->dy, x->x, x->weight, x->rstd, x->accumulate, x->dx)
static void lazy_rmsnorm_backward_input(struct kernel_context *k, n t, n d, in dy, in x_in, in weight, in rstd,
                                        bool accumulate, out dx)
{
    BODY(rmsnorm_backward_input, t, d, dy, x_in, weight, rstd, accumulate, dx)
}

struct rope_arguments {
    n t, heads, head_dim, ld;
    in cos_table, sin_table;
    indices positions;
    bool inverse;
    out x;
};
RUN(rope, x->t, x->heads, x->head_dim, x->ld, x->cos_table, x->sin_table, x->positions, x->inverse, x->x)
static void lazy_rope(struct kernel_context *k, n t, n heads, n head_dim, n ld, in cos_table, in sin_table,
                      indices positions, bool inverse, out x_in)
{
    BODY(rope, t, heads, head_dim, ld, cos_table, sin_table, positions, inverse, x_in)
}

struct attention_forward_arguments {
    struct attention shape;
    in q, k, v;
    out out, lse;
};
RUN(attention_forward, &x->shape, x->q, x->k, x->v, x->out, x->lse)
static void lazy_attention_forward(struct kernel_context *k, const struct attention *shape, in q, in key, in v, out o,
                                   out lse)
{
    BODY(attention_forward, *shape, q, key, v, o, lse)
}

struct attention_backward_arguments {
    struct attention shape;
    in q, k, v, out, lse, dout;
    out dq, dk, dv;
};
RUN(attention_backward, &x->shape, x->q, x->k, x->v, x->out, x->lse, x->dout, x->dq, x->dk, x->dv)
static void lazy_attention_backward(struct kernel_context *k, const struct attention *shape, in q, in key, in v, in o,
                                    in lse, in dout, out dq, out dk, out dv)
{
    BODY(attention_backward, *shape, q, key, v, o, lse, dout, dq, dk, dv)
}

struct adamw_arguments {
    struct adamw_step step;
    const double *gradient_scale;
    n n;
    in gradient;
    out parameter, first, second;
};
RUN(adamw, &x->step, x->gradient_scale, x->n, x->gradient, x->parameter, x->first, x->second)
static void lazy_adamw(struct kernel_context *k, const struct adamw_step *step, const double *gradient_scale, n count,
                       in gradient, out parameter, out first, out second)
{
    BODY(adamw, *step, gradient_scale, count, gradient, parameter, first, second)
}

#define KERNEL(name, family, arguments, help) .name = lazy_##name,
const struct kernels lazy_kernel_table = {
#include "kernels/kernels.def"
};
#undef KERNEL
