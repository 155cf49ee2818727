/* SPDX-License-Identifier: MIT */
/* Families and flavours: the table of sizes, and the rules that tie a model to the rest of the configuration. */
#include <string.h>

#include "base/str.h"
#include "models/llama.h"
#include "models/model.h"

/* Llama 3's feed-forward width: 2/3 of 4*dim, times a factor, rounded up (values as published for each size). */
static const struct model_spec flavors[] = {
#define LLAMA3                                                                                                         \
    .family = "llama3", .norm_eps = 1e-5, .rope_theta = 500000, .max_seq_len = 131072, .rope_scaling = {8, 1, 4, 8192}
    {LLAMA3, .flavor = "debugmodel", .dim = 256, .n_layers = 6, .n_heads = 16, .n_kv_heads = 16, .ffn_dim = 768,
     .vocab_size = 2048},
    {LLAMA3, .flavor = "1B", .dim = 2048, .n_layers = 16, .n_heads = 32, .n_kv_heads = 8, .ffn_dim = 8192,
     .vocab_size = 128256, .is_tied = true},
    {LLAMA3, .flavor = "3B", .dim = 3072, .n_layers = 28, .n_heads = 24, .n_kv_heads = 8, .ffn_dim = 8192,
     .vocab_size = 128256, .is_tied = true},
    {LLAMA3, .flavor = "8B", .dim = 4096, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .ffn_dim = 14336,
     .vocab_size = 128256},
    {LLAMA3, .flavor = "70B", .dim = 8192, .n_layers = 80, .n_heads = 64, .n_kv_heads = 8, .ffn_dim = 28672,
     .vocab_size = 128256},
    {LLAMA3, .flavor = "405B", .dim = 16384, .n_layers = 126, .n_heads = 128, .n_kv_heads = 8, .ffn_dim = 53248,
     .vocab_size = 128256},
#undef LLAMA3
};
enum { N_FLAVORS = (int)(sizeof flavors / sizeof *flavors) };

const struct model_spec *model_flavor(int i) { return i >= 0 && i < N_FLAVORS ? &flavors[i] : NULL; }

static const struct model_spec *find(const char *family, const char *flavor, struct config_problems *p)
{
    const char *names[N_FLAVORS], *nearest;
    struct str list = {0};
    int n = 0;

    for (int i = 0; i < N_FLAVORS; i++) {
        if (strcmp(flavors[i].family, family) != 0) continue;
        if (strcmp(flavors[i].flavor, flavor) == 0) return &flavors[i];
        names[n++] = flavors[i].flavor;
    }
    for (int i = 0; i < n; i++) str_addf(&list, "%s%s", i ? ", " : "", names[i]);
    nearest = n ? str_nearest(flavor, names, n) : NULL;
    if (!n)
        config_problem(p, "model.name=%s: this build has the family llama3", family);
    else
        config_problem(p, "model.flavor=%s: %s has %s%s%s%s", flavor, family, str_text(&list),
                       nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    str_release(&list);
    return NULL;
}

static void check_sizes(const struct model_spec *s, const struct config *cfg, struct config_problems *p)
{
    if (s->dim % s->n_heads != 0)
        config_problem(p, "model.dim=%lld must be a multiple of model.n_heads=%lld", (long long)s->dim,
                       (long long)s->n_heads);
    else if (s->head_dim % 2 != 0)
        config_problem(p, "model.dim=%lld / model.n_heads=%lld = %lld must be even, for rotary positions",
                       (long long)s->dim, (long long)s->n_heads, (long long)s->head_dim);
    if (s->n_heads % s->n_kv_heads != 0)
        config_problem(p, "model.n_heads=%lld must be a multiple of model.n_kv_heads=%lld", (long long)s->n_heads,
                       (long long)s->n_kv_heads);
    if (cfg->training.seq_len > s->max_seq_len)
        config_problem(p, "training.seq_len=%lld is longer than the context of %s %s, %lld",
                       (long long)cfg->training.seq_len, s->family, s->flavor, (long long)s->max_seq_len);
    if (cfg->validation.enable && cfg->validation.seq_len > s->max_seq_len)
        config_problem(p, "validation.seq_len=%lld is longer than the context of %s %s, %lld",
                       (long long)cfg->validation.seq_len, s->family, s->flavor, (long long)s->max_seq_len);
}

void model_spec_resolve(struct model_spec *spec, const struct config *cfg, struct config_problems *p)
{
    const struct model_spec *flavor = find(cfg->model.name, cfg->model.flavor, p);

    if (!flavor) return;
    *spec = *flavor;
#define OVERRIDE(member, key)                                                                                          \
    if (cfg->model.key.is_set) spec->member = cfg->model.key.value
    OVERRIDE(dim, dim);
    OVERRIDE(n_layers, n_layers);
    OVERRIDE(n_heads, n_heads);
    if (cfg->model.n_heads.is_set && !cfg->model.n_kv_heads.is_set) spec->n_kv_heads = spec->n_heads;
    OVERRIDE(n_kv_heads, n_kv_heads);
    OVERRIDE(ffn_dim, ffn_dim);
    OVERRIDE(vocab_size, vocab_size);
    OVERRIDE(rope_theta, rope_theta);
    OVERRIDE(norm_eps, norm_eps);
    OVERRIDE(is_tied, tie_embeddings);
#undef OVERRIDE
    spec->head_dim = spec->dim / spec->n_heads;
    check_sizes(spec, cfg, p);
}

err_t model_create(struct model **out, const struct model_spec *spec, struct device *d, enum dtype type,
                   int64_t seq_len, struct error *e)
{
    struct model *m = mem_zalloc(1, sizeof *m);
    err_t rc;

    *out = NULL;
    if (!m) return FAIL(e, ERR_MEMORY, "out of memory while building the model");
    m->spec = *spec;
    m->parameters.arena = &m->arena;
    rc = rope_open(&m->rope, d, dtype_wide(type), seq_len, spec->head_dim, spec->rope_theta, &spec->rope_scaling, e);
    if (!rc) rc = llama_build(m, e);
    if (rc) {
        model_destroy(m);
        return rc;
    }
    *out = m;
    return ERR_NONE;
}

void model_destroy(struct model *m)
{
    if (!m) return;
    rope_close(&m->rope);
    arena_release(&m->arena);
    mem_free(m);
}

int64_t model_parameters(const struct model *m)
{
    int64_t n = 0;

    for (int i = 0; i < m->parameters.n; i++) n += parameter_elements(m->parameters.items[i]);
    return n;
}

int64_t model_embedding_parameters(const struct model *m) { return m->spec.vocab_size * m->spec.dim; }
