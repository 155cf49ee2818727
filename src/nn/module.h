/* SPDX-License-Identifier: MIT */
/*
 * Modules: the parts of a model, with explicit forward and backward passes. There is no tape.
 *
 * A module is a struct whose first member is `struct module`; its operations stand in one constant table. Between
 * forward and backward a module keeps what it needs in a *frame*, a small host struct of pointers whose memory the
 * caller provides (frame_bytes); a module that has children embeds their frames in its own. So one module can have many
 * microbatches in flight.
 *
 * The backward pass is in two parts, because zero-bubble schedules run them apart: backward_input gives the gradient of
 * the input, backward_weight adds to the gradients of the parameters. Each frame goes through forward, backward_input,
 * backward_weight, in this order, once.
 *
 * Data are dense row-major [tokens, width] arrays of the executor's compute type; gradients of parameters are of its
 * wide type. The caller keeps `in` valid until backward_weight, and `dout` from backward_input to backward_weight;
 * `out` and `din` are overwritten.
 *
 * Modules return nothing: memory was measured before the run (see exec.h), kernel failures are sticky in exec->kernel.
 */
#ifndef NN_MODULE_H
#define NN_MODULE_H

#include "base/mem.h"
#include "nn/exec.h"
#include "tensor/parameter.h"

struct module;

struct module_ops {
    const char *kind; /* "linear", "block" */
    size_t frame_bytes;
    void (*forward)(const struct module *m, struct exec *x, void *frame, const void *in, void *out);
    void (*backward_input)(const struct module *m, struct exec *x, void *frame, const void *dout, void *din);
    void (*backward_weight)(const struct module *m, struct exec *x,
                            void *frame); /* optional: NULL when there are no parameters */
};

struct module {
    const struct module_ops *ops;
};

/* Calls by the table, so that every pass through a module is greppable. */
static inline void module_forward(const struct module *m, struct exec *x, void *frame, const void *in, void *out)
{
    m->ops->forward(m, x, frame, in, out);
}
static inline void module_backward_input(const struct module *m, struct exec *x, void *frame, const void *dout,
                                         void *din)
{
    m->ops->backward_input(m, x, frame, dout, din);
}
static inline void module_backward_weight(const struct module *m, struct exec *x, void *frame)
{
    if (m->ops->backward_weight) m->ops->backward_weight(m, x, frame);
}

/* Where modules register their parameters while a model is built. */
struct parameter_list {
    struct arena *arena; /* borrowed; parameters live as long as it does */
    struct parameter **items;
    int n, capacity;
    bool failed;            /* out of memory: checked once, at the end of the build */
    struct parameter dummy; /* what a failed parameter_list_add returns */
};

/* Adds "<prefix>.<suffix>"; n_dims 1 ignores dim1. Never NULL: after a failure the list's dummy is returned. */
struct parameter *parameter_list_add(struct parameter_list *list, const char *prefix, const char *suffix, int n_dims,
                                     int64_t dim0, int64_t dim1, enum parameter_init init, double std, double cut);

#endif
