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

static void draw(const struct parameter *p, struct rng_key key, int64_t first, int n, double *out)
{
    double constant = p->init == INIT_ONE ? 1.0 : 0.0;

    if (p->init == INIT_ZERO || p->init == INIT_ONE)
        for (int i = 0; i < n; i++) out[i] = constant;
    else
        rng_normals(key, (uint64_t)first, (size_t)n, p->init_std, p->init_cut, out);
}

void parameter_initialise(const struct parameter *p, uint64_t seed, enum dtype type, void *out)
{
    enum { BATCH = 256 };
    int64_t row = parameter_row_elements(p), first = p->shard_first * row, n = p->shard_rows * row;
    char purpose[PARAMETER_NAME_BYTES + 8];
    double batch[BATCH];
    struct rng_key key;

    snprintf(purpose, sizeof purpose, "init/%s", p->name);
    key = rng_key_of(seed, purpose);
    for (int64_t done = 0; done < n; done += BATCH) {
        int m = n - done < BATCH ? (int)(n - done) : BATCH;

        draw(p, key, first + done, m, batch);
        for (int i = 0; i < m; i++) {
            if (type == DTYPE_FLOAT64)
                ((double *)out)[done + i] = batch[i];
            else if (type == DTYPE_FLOAT32)
                ((float *)out)[done + i] = (float)batch[i];
            else
                BUG("initial values of type %s", dtype_name(type));
        }
    }
}
