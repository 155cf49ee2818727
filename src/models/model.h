/* SPDX-License-Identifier: MIT */
/*
 * A model: a chain of units built from modules, its parameters, and the groups in which parameters are gathered and
 * reduced.
 *
 * A *unit* is the grain of scheduling and recomputation: the embedding, each block, the head. The output of a unit is
 * the input of the next, so no general graph is needed. A *group* is the grain of sharding; usually one per unit, but
 * tied weights put the embedding and the head into one group.
 *
 * Families are thin files (llama.c) that compose modules; their flavours are rows of a table in registry.c.
 */
#ifndef MODELS_MODEL_H
#define MODELS_MODEL_H

#include <stdbool.h>

#include "base/mem.h"
#include "config/config.h"
#include "nn/module.h"
#include "nn/rope.h"

struct model_spec {
    const char *family, *flavor;
    int64_t dim, n_layers, n_heads, n_kv_heads, head_dim, ffn_dim, vocab_size;
    double norm_eps, rope_theta;
    struct rope_scaling rope_scaling;
    int64_t max_seq_len; /* longest context of the family */
    bool is_tied;        /* output projection = embedding */
};

struct unit {
    char name[32]; /* "embedding", "layers.3", "head" */
    const struct module *module;
    int group;                   /* the parameters it needs */
    bool is_gradient_in_forward; /* its forward adds to gradients already (see nn/head.h) */
    int64_t out_width;           /* elements of its output per token; 0 = none (the head) */
};

struct model {
    struct arena arena; /* modules, parameters, names */
    struct model_spec spec;
    struct parameter_list parameters;
    int *group_of; /* [parameters.n] */
    int n_groups;
    struct unit *units;
    int n_units;
    struct rope rope; /* device memory */
};

/* The flavour's sizes with the overrides of cfg->model. Problems (unknown family or flavour with the nearest name,
 * sizes that do not divide, a sequence longer than the family's context) are added to p; the result is usable only if
 * there were none. */
void model_spec_resolve(struct model_spec *spec, const struct config *cfg, struct config_problems *p);

/* The flavours of all families, one after the other, NULL after the last. What follows from the sizes (head_dim) is
 * 0. */
const struct model_spec *model_flavor(int i);

/* Builds the model for sequences of at most seq_len positions; parameters have no storage yet. type: the
 * compute type. */
err_t model_create(struct model **out, const struct model_spec *spec, struct device *d, enum dtype type,
                   int64_t seq_len, struct error *e) MUST_CHECK;
void model_destroy(struct model *m);

int64_t model_parameters(const struct model *m);           /* elements, tied weights once */
int64_t model_embedding_parameters(const struct model *m); /* of them, the token embedding */

#endif
