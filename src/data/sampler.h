/* SPDX-License-Identifier: MIT */
/*
 * From a global position to the tokens of one sample, without any state: the order of an epoch is a permutation
 * computed from (seed, epoch), and a sample is a window of the token run.
 *
 * Sample s covers tokens [s*T, s*T + T]: T inputs and, one further, T labels; neighbours share one token, so each token
 * but the first is a label exactly once. With drop_tail the last, shorter window is left out and counted (training);
 * without it the window is padded with unscored places (a finite pass counts every label once).
 */
#ifndef DATA_SAMPLER_H
#define DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/label.h"
#include "data/token_cache.h"

struct sampler {
    const struct token_cache *cache; /* borrowed */
    int seq_len;                     /* T */
    bool document_mask, shuffle;
    uint64_t seed;
    int64_t n_samples; /* of one epoch; > 0 after sampler_init */
    int64_t n_dropped; /* labels of the dropped tail */
};

/* ERR_CONFIG when there is not one sample: fewer than T+1 tokens (drop_tail), or fewer than 2. */
err_t sampler_init(struct sampler *s, const struct token_cache *cache, int seq_len, bool document_mask, bool shuffle,
                   uint64_t seed, bool drop_tail, struct error *e) MUST_CHECK;

/* The sample at place `position` of the epoch's order: a permutation of [0, n_samples) for each epoch. */
int64_t sampler_order(const struct sampler *s, int64_t epoch, int64_t position);

/* Permutation of [0, n) by a Feistel network with cycle walking: the place of element i. */
int64_t sampler_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

/* Writes the T entries of each array (document_start may be NULL; it is written with document_mask only); adds to
 * *n_valid the number of labels that are not LABEL_IGNORED. scratch: T+1 entries. With document_mask a document's last
 * token has no label and positions restart: positions[t] = t - document_start[t]; without it positions[t] = t. */
err_t sampler_fill(const struct sampler *s, int64_t sample, int32_t *scratch, int32_t *tokens, int32_t *labels,
                   int32_t *positions, int32_t *document_start, int64_t *n_valid, struct error *e) MUST_CHECK;

/* A sample that counts for nothing: token 0, all labels ignored, one document. */
void sampler_fill_blank(const struct sampler *s, int32_t *tokens, int32_t *labels, int32_t *positions,
                        int32_t *document_start);

#endif
