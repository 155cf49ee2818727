/* SPDX-License-Identifier: MIT */
/* The gated feed-forward module; see mlp.h. */
#include "nn/mlp.h"

#include <stdio.h>

static const struct mlp *self(const struct module *m) { return (const struct mlp *)m; }

static void mlp_forward(const struct module *m, struct exec *x, void *frame, const void *in, void *out)
{
    const struct mlp *p = self(m);
    struct mlp_frame *f = frame;
    int64_t n = exec_tokens(x) * p->hidden;
    size_t mark;
    void *h;

    f->gate = exec_stash(x, n);
    f->up = exec_stash(x, n);
    module_forward(&p->w1.module, x, &f->w1, in, f->gate);
    module_forward(&p->w3.module, x, &f->w3, in, f->up);
    mark = x->scratch.used;
    h = exec_scratch(x, n);
    x->k->swiglu_forward(x->kernel, n, f->gate, f->up, h);
    module_forward(&p->w2.module, x, &f->w2, h, out);
    x->scratch.used = mark;
}

static void mlp_backward_input(const struct module *m, struct exec *x, void *frame, const void *dout, void *din)
{
    const struct mlp *p = self(m);
    struct mlp_frame *f = frame;
    int64_t n = exec_tokens(x) * p->hidden;
    void *dgate = exec_kept(x, n), *dup = exec_kept(x, n), *h = exec_kept(x, n), *dh;
    size_t mark = x->scratch.used;

    x->k->swiglu_forward(x->kernel, n, f->gate, f->up, h);
    f->w2.in = h;
    dh = exec_scratch(x, n);
    module_backward_input(&p->w2.module, x, &f->w2, dout, dh);
    x->k->swiglu_backward(x->kernel, n, dh, f->gate, f->up, dgate, dup);
    x->scratch.used = mark;
    module_backward_input(&p->w1.module, x, &f->w1, dgate, din);
    linear_backward_input_add(&p->w3, x, &f->w3, dup, din);
}

static void mlp_backward_weight(const struct module *m, struct exec *x, void *frame)
{
    const struct mlp *p = self(m);
    struct mlp_frame *f = frame;

    module_backward_weight(&p->w2.module, x, &f->w2);
    module_backward_weight(&p->w1.module, x, &f->w1);
    module_backward_weight(&p->w3.module, x, &f->w3);
}

void mlp_set_input(struct mlp_frame *f, const void *in) { f->w1.in = f->w3.in = in; }

void mlp_init(struct mlp *m, struct parameter_list *list, const char *name, const struct mlp_spec *spec)
{
    char path[PARAMETER_NAME_BYTES];

    *m = (struct mlp){.module = {&module_ops_mlp}, .hidden = spec->hidden};
    snprintf(path, sizeof path, "%s.w1", name);
    linear_init(&m->w1, list, path, spec->width, spec->hidden, spec->std, spec->cut);
    snprintf(path, sizeof path, "%s.w2", name);
    linear_init(&m->w2, list, path, spec->hidden, spec->width, spec->std_out, spec->cut);
    snprintf(path, sizeof path, "%s.w3", name);
    linear_init(&m->w3, list, path, spec->width, spec->hidden, spec->std_out, spec->cut);
}

const struct module_ops module_ops_mlp = {
    .kind = "mlp",
    .frame_bytes = sizeof(struct mlp_frame),
    .forward = mlp_forward,
    .backward_input = mlp_backward_input,
    .backward_weight = mlp_backward_weight,
};
