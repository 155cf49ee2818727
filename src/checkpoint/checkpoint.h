/* SPDX-License-Identifier: MIT */
/*
 * What a checkpoint holds, in memory: the words shared by save.h, load.h, folder.h and manifest.h.
 *
 * On disk: <folder>/step-N/ with one safetensors file per writing rank and kind,
 * rank_NNNNN_of_NNNNN.<kind>.safetensors, and manifest.json, which says which rows of which tensor lie where.
 * A folder called step-N is complete or not there. While it is written it is called step-N.tmp-<run id>.
 */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "tensor/parameter.h"

enum { CHECKPOINT_ID_BYTES = 16, CHECKPOINT_PATH_BYTES = 4096 };

#define CHECKPOINT_KINDS(X)                                                                                            \
    X(CHECKPOINT_PARAMETERS, "parameters")                                                                             \
    X(CHECKPOINT_OPTIMIZER, "optimizer")

enum checkpoint_kind {
#define X(id, name) id,
    CHECKPOINT_KINDS(X)
#undef X
        CHECKPOINT_KIND_COUNT
};
const char *checkpoint_kind_name(enum checkpoint_kind kind);
bool checkpoint_kind_parse(const char *name, enum checkpoint_kind *out);

/* Run ids become names of folders: 1..15 letters and digits of ASCII. */
bool checkpoint_id_ok(const char *id);

/* One tensor as this rank holds it: rows [first_row, first_row + n_rows) of dim 0, contiguous, in host
 * memory. A scalar (n_dims 0) has one row. A name is unique within its kind ("layers.0.attention.wq.weight";
 * for the optimizer "layers.0.attention.wq.weight.exp_avg"). */
struct checkpoint_tensor {
    const char *name;
    enum checkpoint_kind kind;
    enum dtype type;
    int n_dims;
    int64_t dim[PARAMETER_MAX_DIMS]; /* global shape */
    int64_t first_row, n_rows;       /* n_rows may be 0 */
    void *data;                      /* [n_rows][dim1][dim2].. ; read by save, filled by load */
};

int64_t checkpoint_tensor_rows(const struct checkpoint_tensor *t);      /* of the whole tensor */
int64_t checkpoint_tensor_row_bytes(const struct checkpoint_tensor *t); /* of one row of dim 0 */

/* Where a run stands; everything but the tensors that is needed to go on. */
struct checkpoint_state {
    int64_t step;           /* steps done: the next one is step + 1 */
    int64_t tokens_seen;    /* over all ranks */
    int64_t epoch, sample;  /* the data cursor: the next sample is number `sample` of this epoch, counted over
                               all ranks */
    uint64_t shuffle_seed;  /* of the data cursor */
    uint64_t seed;          /* key of every random draw of the run */
    int64_t optimizer_step; /* updates done (AdamW's t); less than step where updates were skipped */
    int64_t schedule_step;  /* position in the learning-rate schedule */
    uint64_t data_hash, tokenizer_hash; /* of the text that the cursor counts in, and of what made tokens of it;
                                           0 = not known */
    bool unhealthy; /* the last loss or gradient norm was not finite; save also sets it for non-finite
                       parameters */
};

/* The mesh a checkpoint was written on, for messages and reports: rows are stored by range, so loading does
 * not depend on it. */
struct checkpoint_axis {
    const char *name; /* "dp_shard" */
    int degree;
};

#endif
