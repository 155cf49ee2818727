/* SPDX-License-Identifier: MIT */
/*
 * How the ranks of a checkpoint agree: on success or failure, and on texts. Nothing here allocates between
 * two collective calls without agreeing on the outcome, so that a rank that is out of memory cannot leave the
 * others waiting.
 */
#ifndef CHECKPOINT_AGREE_H
#define CHECKPOINT_AGREE_H

#include "base/str.h"
#include "comm/comm.h"

/* Every rank passes its own result (with its message in e, if it failed). If any failed, all get the code and
 * the message of the lowest such rank, "rank N: ..". */
err_t checkpoint_agree(struct comm *c, err_t mine, struct error *e) MUST_CHECK;

/* The texts of all ranks, on every rank: *out = [size] blocks of *block_bytes, each a NUL-terminated text;
 * the caller frees it. */
err_t checkpoint_gather_texts(struct comm *c, const struct str *mine, char **out, size_t *block_bytes,
                              struct error *e) MUST_CHECK;

/* Rank 0's text on every rank; the others pass an empty one. */
err_t checkpoint_share_text(struct comm *c, struct str *text, struct error *e) MUST_CHECK;

#endif
