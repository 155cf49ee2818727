/* SPDX-License-Identifier: MIT */
/*
 * A parameter of a model: its name, global shape, how it starts, and where its values live.
 *
 * Sharding over a group of n ranks cuts dim 0 into chunks of ceil(dim0 / n) rows (FSDP2's rule): the last ranks may
 * hold fewer rows or none. Modules see the whole tensor (`value`, `gradient`) while its unit is gathered; optimizer and
 * checkpoint see this rank's rows (`shard`, `shard_gradient`).
 */
#ifndef TENSOR_PARAMETER_H
#define TENSOR_PARAMETER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"

enum { PARAMETER_MAX_DIMS = 4, PARAMETER_NAME_BYTES = 128 };

enum parameter_init { INIT_ZERO, INIT_ONE, INIT_NORMAL };

struct parameter {
    char name[PARAMETER_NAME_BYTES]; /* fully qualified: "layers.0.attention.wq.weight" */
    int n_dims;
    int64_t dim[PARAMETER_MAX_DIMS]; /* global shape */
    enum parameter_init init;
    double init_std,
        init_cut;   /* of INIT_NORMAL: deviation, and the absolute value at which draws are cut (0 = never) */
    bool trainable; /* planned: frozen ones; all are trained now */
    struct parameter *alias_of; /* planned, tied weights: the owner; an alias has no storage of its own */

    /* whole tensor, valid between gather and free; borrowed from the unit */
    void *value;    /* of the compute type */
    void *gradient; /* of the wide type */

    /* this rank's rows, of the wide type; borrowed from the unit */
    int64_t shard_first, shard_rows; /* global row range */
    void *shard;
    void *shard_gradient;
};

int64_t parameter_elements(const struct parameter *p);                 /* of the whole tensor */
int64_t parameter_row_elements(const struct parameter *p);             /* of one row of dim 0 */
int64_t parameter_chunk_rows(const struct parameter *p, int n_shards); /* ceil(dim0 / n) */

/* Sets shard_first and shard_rows for shard `index` of n. */
void parameter_shard(struct parameter *p, int index, int n_shards);

/* Writes this rank's rows of the initial value into out (host memory, `type`): keyed by (seed, name, global element),
 * hence the same bits for every mesh and machine. */
void parameter_initialise(const struct parameter *p, uint64_t seed, enum dtype type, void *out);

#endif
