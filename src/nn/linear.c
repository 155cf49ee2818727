/* SPDX-License-Identifier: MIT */
/* The linear module; see linear.h. */
#include "nn/linear.h"

static const struct linear *self(const struct module *m) { return (const struct linear *)m; }

static void linear_forward(const struct module *m, struct exec *x, void *frame, const void *in, void *out)
{
    const struct linear *l = self(m);
    struct linear_frame *f = frame;

    f->in = in;
    x->k->gemm(x->kernel, false, true, exec_tokens(x), l->out, l->in, in, l->in, l->weight->value, l->in, false, out,
               l->out);
}

static void input_gradient(const struct linear *l, struct exec *x, struct linear_frame *f, const void *dout,
                           bool accumulate, void *din)
{
    f->dout = dout;
    x->k->gemm(x->kernel, false, false, exec_tokens(x), l->in, l->out, dout, l->out, l->weight->value, l->in,
               accumulate, din, l->in);
}

static void linear_backward_input(const struct module *m, struct exec *x, void *frame, const void *dout, void *din)
{
    input_gradient(self(m), x, frame, dout, false, din);
}

void linear_backward_input_add(const struct linear *l, struct exec *x, struct linear_frame *frame, const void *dout,
                               void *din)
{
    input_gradient(l, x, frame, dout, true, din);
}

static void linear_backward_weight(const struct module *m, struct exec *x, void *frame)
{
    const struct linear *l = self(m);
    struct linear_frame *f = frame;

    x->k->gemm_wide(x->kernel, true, false, l->out, l->in, exec_tokens(x), f->dout, l->out, f->in, l->in, true,
                    l->weight->gradient, l->in);
}

void linear_init(struct linear *l, struct parameter_list *list, const char *name, int64_t in, int64_t out, double std,
                 double cut)
{
    *l = (struct linear){.module = {&module_ops_linear}, .in = in, .out = out};
    l->weight = parameter_list_add(list, name, "weight", 2, out, in, INIT_NORMAL, std, cut);
}

const struct module_ops module_ops_linear = {
    .kind = "linear",
    .frame_bytes = sizeof(struct linear_frame),
    .forward = linear_forward,
    .backward_input = linear_backward_input,
    .backward_weight = linear_backward_weight,
};
