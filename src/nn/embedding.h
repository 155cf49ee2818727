/* SPDX-License-Identifier: MIT */
/* Token embedding: y[t] = W[tokens[t]], W [vocabulary, width]. Takes its tokens from the batch; `in` and `din` are
 * NULL. */
#ifndef NN_EMBEDDING_H
#define NN_EMBEDDING_H

#include "nn/module.h"

struct embedding {
    struct module module;
    struct parameter *weight; /* [vocabulary, width] */
    int64_t vocabulary, width;
};

struct embedding_frame {
    const int32_t *tokens; /* of the microbatch */
    const void *dout;      /* [tokens, width] */
};

extern const struct module_ops module_ops_embedding;

/* Normal start with deviation std, cut at +-cut (0 = not cut). */
void embedding_init(struct embedding *m, struct parameter_list *list, const char *name, int64_t vocabulary,
                    int64_t width, double std, double cut);

#endif
