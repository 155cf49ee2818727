/* SPDX-License-Identifier: MIT */
/* The embedding module; see embedding.h. */
#include "nn/embedding.h"

static const struct embedding *self(const struct module *m) { return (const struct embedding *)m; }

static void embedding_forward(const struct module *m, struct exec *x, void *frame, const void *in, void *out)
{
    const struct embedding *w = self(m);
    struct embedding_frame *f = frame;

    (void)in;
    f->tokens = x->batch.tokens;
    x->k->embedding_forward(x->kernel, exec_tokens(x), w->width, w->vocabulary, f->tokens, w->weight->value, out);
}

static void embedding_backward_input(const struct module *m, struct exec *x, void *frame, const void *dout, void *din)
{
    struct embedding_frame *f = frame;

    (void)m, (void)x, (void)din; /* tokens have no gradient */
    f->dout = dout;
}

static void embedding_backward_weight(const struct module *m, struct exec *x, void *frame)
{
    const struct embedding *w = self(m);
    struct embedding_frame *f = frame;

    x->k->embedding_backward_weight(x->kernel, exec_tokens(x), w->width, w->vocabulary, f->tokens, f->dout,
                                    w->weight->gradient);
}

void embedding_init(struct embedding *m, struct parameter_list *list, const char *name, int64_t vocabulary,
                    int64_t width, double std, double cut)
{
    *m = (struct embedding){.module = {&module_ops_embedding}, .vocabulary = vocabulary, .width = width};
    m->weight = parameter_list_add(list, name, "weight", 2, vocabulary, width, INIT_NORMAL, std, cut);
}

const struct module_ops module_ops_embedding = {
    .kind = "embedding",
    .frame_bytes = sizeof(struct embedding_frame),
    .forward = embedding_forward,
    .backward_input = embedding_backward_input,
    .backward_weight = embedding_backward_weight,
};
