/* SPDX-License-Identifier: MIT */
/*
 * Llama 3. Initial values follow torchtitan: embeddings N(0, 1); wq, wk, wv, w1 with deviation 0.02; wo, w2, w3 with
 * 0.02 / sqrt(2 (i + 1)) in layer i (Depth-scaled, Zhang et al. 2019); output with dim^-1/2 cut at 3 deviations; the
 * others cut at +-2 absolute; a tied matrix starts as an output projection.
 */
#include "models/llama.h"

#include <math.h>
#include <stdio.h>

#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/head.h"

static const double INIT_STD = 0.02, INIT_CUT = 2.0;

static void add_unit(struct model *m, const char *name, const struct module *module, int group, int64_t out_width)
{
    struct unit *u = &m->units[m->n_units++];

    snprintf(u->name, sizeof u->name, "%s", name);
    u->module = module;
    u->group = group;
    u->out_width = out_width;
}

/* Parameters registered since `first` belong to `group`. */
static void assign_group(struct model *m, int first, int group)
{
    for (int i = first; i < m->parameters.n; i++) m->group_of[i] = group;
    if (group >= m->n_groups) m->n_groups = group + 1;
}

static struct block_spec block_spec_of(const struct model_spec *s, int64_t layer)
{
    double std_out = INIT_STD / sqrt(2.0 * (double)(layer + 1));

    return (struct block_spec){
        .attention = {.width = s->dim,
                      .heads = s->n_heads,
                      .kv_heads = s->n_kv_heads,
                      .head_dim = s->head_dim,
                      .std = INIT_STD,
                      .std_out = std_out,
                      .cut = INIT_CUT},
        .mlp = {.width = s->dim, .hidden = s->ffn_dim, .std = INIT_STD, .std_out = std_out, .cut = INIT_CUT},
        .norm_eps = s->norm_eps,
    };
}

err_t llama_build(struct model *m, struct error *e)
{
    enum { PARAMETERS_PER_BLOCK = 9, PARAMETERS_OUTSIDE = 3 };
    const struct model_spec *s = &m->spec;
    int n_blocks = (int)s->n_layers, head_group;
    size_t n_parameters = (size_t)n_blocks * PARAMETERS_PER_BLOCK + PARAMETERS_OUTSIDE;
    double output_std = 1.0 / sqrt((double)s->dim);
    struct embedding *embedding = arena_alloc(&m->arena, sizeof *embedding);
    struct block *blocks = arena_array(&m->arena, (size_t)n_blocks, sizeof *blocks);
    struct head *head = arena_alloc(&m->arena, sizeof *head);
    struct head_spec head_spec = {.width = s->dim,
                                  .vocabulary = s->vocab_size,
                                  .norm_eps = s->norm_eps,
                                  .std = output_std,
                                  .cut = 3.0 * output_std};
    char name[32];
    int first;

    m->units = arena_array(&m->arena, (size_t)n_blocks + 2, sizeof *m->units);
    m->group_of = arena_array(&m->arena, n_parameters, sizeof *m->group_of);
    if (!embedding || !blocks || !head || !m->units || !m->group_of) goto no_memory;

    embedding_init(embedding, &m->parameters, "tok_embeddings", s->vocab_size, s->dim, s->is_tied ? output_std : 1.0,
                   s->is_tied ? 3.0 * output_std : 0.0);
    assign_group(m, 0, 0);
    add_unit(m, "embedding", &embedding->module, 0, s->dim);
    for (int i = 0; i < n_blocks; i++) {
        struct block_spec spec = block_spec_of(s, i);

        snprintf(name, sizeof name, "layers.%d", i);
        first = m->parameters.n;
        block_init(&blocks[i], &m->parameters, name, &spec, &m->rope);
        assign_group(m, first, i + 1);
        add_unit(m, name, &blocks[i].module, i + 1, s->dim);
    }
    first = m->parameters.n;
    head_spec.tied = s->is_tied ? embedding->weight : NULL;
    head_init(head, &m->parameters, &head_spec);
    head_group = s->is_tied ? 0 : n_blocks + 1;
    assign_group(m, first, head_group);
    add_unit(m, "head", &head->module, head_group, 0);
    m->units[m->n_units - 1].is_gradient_in_forward = true;
    if (m->parameters.failed) goto no_memory;
    return ERR_NONE;
no_memory:
    return FAIL(e, ERR_MEMORY, "out of memory while building %s %s", s->family, s->flavor);
}
