/* SPDX-License-Identifier: MIT */
/* The RMSNorm module; see norm.h. */
#include "nn/norm.h"

static const struct norm *self(const struct module *m) { return (const struct norm *)m; }

static void norm_forward(const struct module *m, struct exec *x, void *frame, const void *in, void *out)
{
    const struct norm *n = self(m);
    struct norm_frame *f = frame;

    f->in = in;
    f->rstd = exec_stash_wide(x, exec_tokens(x));
    x->k->rmsnorm_forward(x->kernel, exec_tokens(x), n->width, n->eps, in, n->weight->value, out, f->rstd);
}

void norm_recompute(const struct norm *n, struct exec *x, const struct norm_frame *frame, void *out)
{
    x->k->rmsnorm_forward(x->kernel, exec_tokens(x), n->width, n->eps, frame->in, n->weight->value, out, NULL);
}

static void norm_backward_input(const struct module *m, struct exec *x, void *frame, const void *dout, void *din)
{
    const struct norm *n = self(m);
    struct norm_frame *f = frame;

    f->dout = dout;
    x->k->rmsnorm_backward_input(x->kernel, exec_tokens(x), n->width, dout, f->in, n->weight->value, f->rstd, false,
                                 din);
}

static void norm_backward_weight(const struct module *m, struct exec *x, void *frame)
{
    const struct norm *n = self(m);
    struct norm_frame *f = frame;

    x->k->rmsnorm_backward_weight(x->kernel, exec_tokens(x), n->width, f->dout, f->in, f->rstd, n->weight->gradient);
}

void norm_init(struct norm *n, struct parameter_list *list, const char *name, int64_t width, double eps)
{
    *n = (struct norm){.module = {&module_ops_norm}, .width = width, .eps = eps};
    n->weight = parameter_list_add(list, name, "weight", 1, width, 1, INIT_ONE, 0, 0);
}

const struct module_ops module_ops_norm = {
    .kind = "norm",
    .frame_bytes = sizeof(struct norm_frame),
    .forward = norm_forward,
    .backward_input = norm_backward_input,
    .backward_weight = norm_backward_weight,
};
