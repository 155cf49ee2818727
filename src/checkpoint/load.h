/* SPDX-License-Identifier: MIT */
/*
 * Loading a checkpoint, on the mesh that wrote it (bitwise) or on any other: rows are stored by range, and
 * every rank reads the ranges it needs from whichever files hold them.
 */
#ifndef CHECKPOINT_LOAD_H
#define CHECKPOINT_LOAD_H

#include "base/error.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "comm/comm.h"

/* The keys of checkpoint.exclude_from_loading; a part that is left out keeps what the caller put there. */
#define CHECKPOINT_PARTS(X)                                                                                            \
    X(CHECKPOINT_PART_OPTIMIZER, 1, "optimizer")   /* optimizer tensors and optimizer_step */                          \
    X(CHECKPOINT_PART_SCHEDULE, 2, "lr_scheduler") /* schedule_step */                                                 \
    X(CHECKPOINT_PART_DATA, 4, "dataloader")       /* epoch, sample, shuffle_seed */                                   \
    X(CHECKPOINT_PART_TRAIN, 8, "train_state")     /* step, tokens_seen, seed */

enum checkpoint_part {
#define X(id, bit, name) id = bit,
    CHECKPOINT_PARTS(X)
#undef X
        CHECKPOINT_PARTS_ALL = 15
};
/* "optimizer" -> its bit; false: unknown name. */
bool checkpoint_part_parse(const char *name, enum checkpoint_part *out);

/*
 * Collective over c. path: ".../step-N". Fills the data of every tensor given (parameters always, optimizer
 * tensors if asked for by `parts`, a mask) and those members of *state that `parts` names. Returns the same
 * code on every rank; after a failure the data are undefined.
 *
 * Refused, each with one message that lists all of it: tensors that are missing in the checkpoint, that it
 * has and the model does not, that differ in shape or type; damaged files (checksums are verified over every
 * piece that is read). A checkpoint of the model only (a seed, or last_save_model_only) has no optimizer: a
 * seed (step 0) loads without it, any other asks to exclude "optimizer".
 */
err_t checkpoint_load(const char *path, const struct checkpoint_tensor *tensors, int n_tensors, unsigned parts,
                      struct checkpoint_state *state, struct comm *c, struct error *e) MUST_CHECK;

/* Reads the whole checkpoint at `path` and compares every checksum; no memory beyond a buffer. *out_bytes:
 * bytes read. */
err_t checkpoint_verify(const char *path, int64_t *out_bytes, struct error *e) MUST_CHECK;

#endif
