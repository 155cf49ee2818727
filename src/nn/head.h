/* SPDX-License-Identifier: MIT */
/*
 * The end of a model: final norm, vocabulary projection and cross-entropy, fused over chunks of tokens so that full
 * logits never exist.
 *
 * forward gives no `out` (NULL): it adds the microbatch's summed loss to *exec->loss_sum. With gradients wanted it also
 * computes, chunk by chunk, the gradient of the normed input (kept in the stash) and adds the projection's weight
 * gradient, because the logits are gone afterwards; so this module needs its gradient buffers in forward.
 * backward_input then takes no `dout`. Loss gradients carry exec->loss_scale.
 */
#ifndef NN_HEAD_H
#define NN_HEAD_H

#include "nn/linear.h"
#include "nn/norm.h"

enum { HEAD_CHUNK_TOKENS = 256 }; /* unless the kernels want more for products worth their while */

struct head {
    struct module module;
    struct norm norm;
    struct linear output;
    int64_t width, vocabulary;
};

struct head_frame {
    struct norm_frame norm;
    void *dnormed; /* [tokens, width]; stash */
};

extern const struct module_ops module_ops_head;

struct head_spec {
    int64_t width, vocabulary;
    double norm_eps, std, cut;
    struct parameter *tied; /* the embedding's weight to share, or NULL */
};

void head_init(struct head *h, struct parameter_list *list, const struct head_spec *spec);

/* Logits of the microbatch, [tokens, vocabulary], for tests and (planned) sampling; the norm's output is computed on
 * the way. */
void head_logits(const struct head *h, struct exec *x, const void *in, void *logits);

#endif
