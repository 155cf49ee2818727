/* SPDX-License-Identifier: MIT */
/* Kernels that do nothing, for code that is run to see what it takes; see kernels_dry in kernels.h. */
#include "kernels/kernels.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define KERNEL(name, family, arguments, help)                                                                          \
    static void nothing_##name arguments {}
#include "kernels.def"
#undef KERNEL

static void plan_attention(struct kernel_context *c, const struct attention *a, bool is_backward)
{
    const struct kernels *k = c->planned;
    size_t bytes = 0;

    if (!k || !k->prepare_attention || c->failed) return;
    c->failed = k->prepare_attention(k->owner, a, is_backward, &bytes, &c->error);
    if (bytes > c->wanted_bytes) c->wanted_bytes = bytes;
}

static void plan_attention_forward(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                                   const void *v, void *out, wide *lse)
{
    plan_attention(c, a, false);
}

static void plan_attention_backward(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                                    const void *v, const void *out, const wide *lse, const void *dout, void *dq,
                                    void *dk, void *dv)
{
    plan_attention(c, a, true);
}
#pragma GCC diagnostic pop

struct kernels kernels_dry(const struct kernels *like)
{
    struct kernels k = *like;

#define KERNEL(name, family, arguments, help) k.name = nothing_##name;
#include "kernels.def"
#undef KERNEL
    k.attention_forward = plan_attention_forward;
    k.attention_backward = plan_attention_backward;
    return k;
}
