/* SPDX-License-Identifier: MIT */
/* Shapes, shards and initial values of parameters; see parameter.h. */
#include "tensor/parameter.h"

#include <stdio.h>

#include "base/rng.h"

int64_t parameter_row_elements(const struct parameter *p)
{
    int64_t n = 1;

    for (int i = 1; i < p->n_dims; i++) n *= p->dim[i];
    return n;
}

int64_t parameter_elements(const struct parameter *p) { return p->dim[0] * parameter_row_elements(p); }

int64_t parameter_chunk_rows(const struct parameter *p, int n_shards) { return (p->dim[0] + n_shards - 1) / n_shards; }

void parameter_shard(struct parameter *p, int index, int n_shards)
{
    int64_t chunk = parameter_chunk_rows(p, n_shards), first = chunk * index;

    if (first > p->dim[0]) first = p->dim[0];
    p->shard_first = first;
    p->shard_rows = p->dim[0] - first < chunk ? p->dim[0] - first : chunk;
}

void parameter_initialise(const struct parameter *p, uint64_t seed, enum dtype type, void *out)
{
    int64_t row = parameter_row_elements(p), first = p->shard_first * row, n = p->shard_rows * row;
    char purpose[PARAMETER_NAME_BYTES + 8];
    struct rng_key key;

    snprintf(purpose, sizeof purpose, "init/%s", p->name);
    key = rng_key_of(seed, purpose);
    for (int64_t i = 0; i < n; i++) {
        double value = p->init == INIT_ZERO  ? 0.0
                       : p->init == INIT_ONE ? 1.0
                                             : rng_normal(key, (uint64_t)(first + i), p->init_std, p->init_cut);

        if (type == DTYPE_FLOAT64)
            ((double *)out)[i] = value;
        else if (type == DTYPE_FLOAT32)
            ((float *)out)[i] = (float)value;
        else
            BUG("initial values of type %s", dtype_name(type));
    }
}
