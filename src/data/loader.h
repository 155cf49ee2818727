/* SPDX-License-Identifier: MIT */
/*
 * The stream of microbatches of one data-parallel rank, filled ahead by a prefetch thread.
 *
 * All ranks read one global order of samples. Global microbatch i (counted from the start cursor) takes the D*B samples
 * after start + i*D*B; rank r of D gets B of them: start + (i*D + r)*B + b. So the samples of a step depend on its
 * first sample and the global batch alone, not on how it is split over ranks, rows and accumulation, and the cursor
 * knows no number of ranks. Opening costs the same at every cursor: nothing is read over.
 */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "data/sampler.h"
#include "data/token_cache.h"

/* Where the job stands in the data: the next sample of the global order, 0 <= sample < samples of an epoch. */
struct data_cursor {
    int64_t epoch;
    int64_t sample;
};

struct batch {
    int32_t *tokens;         /* [rows, seq_len] input ids */
    int32_t *labels;         /* [rows, seq_len] the next ids, LABEL_IGNORED (-100) where not scored */
    int32_t *positions;      /* [rows, seq_len] */
    int32_t *document_start; /* [rows, seq_len] index in the row at which the token's document starts; NULL without
                                document_mask */
    int rows, seq_len;
    int64_t n_valid;      /* labels that are scored, of this rank's microbatch */
    int64_t n_tokens;     /* rows that hold data * seq_len */
    int64_t first_sample; /* place of row 0 in its epoch's order */
    int64_t epoch;        /* of row 0; a batch may run on into the next epoch */
};

struct loader_spec {
    const struct token_cache *cache; /* borrowed; must outlive the loader */
    int seq_len;
    int local_batch;      /* B, rows of a microbatch */
    int n_microbatches;   /* A, microbatches of a step: that many may be held unreleased at a time */
    int dp_rank, dp_size; /* r, D */
    uint64_t seed;
    bool shuffle, document_mask;
    bool repeat; /* training: epochs without end, the tail shorter than a sample dropped. Else one finite pass: each
                    label exactly once, missing rows and places padded with LABEL_IGNORED, equally many batches on every
                    rank */
    struct data_cursor start;
    int prefetch; /* microbatches made ready beyond those handed out; >= 1 */
};

struct loader;

err_t loader_open(struct loader **out, const struct loader_spec *spec, struct error *e) MUST_CHECK;
void loader_close(struct loader *l); /* at any moment; joins the thread within one batch's time */

/* The next microbatch, owned by the loader until loader_release. *out = NULL: a finite pass is over. Blocks only while
 * the prefetch thread is behind. An error of the thread is reported here, and again by every later call. */
err_t loader_next(struct loader *l, struct batch **out, struct error *e) MUST_CHECK;
void loader_release(struct loader *l, struct batch *b); /* NULL is fine; any order */

struct data_cursor loader_cursor(const struct loader *l); /* after the last microbatch handed out: save this */
int64_t loader_samples(const struct loader *l);           /* of one epoch */

/* The cursor `n_samples` further on, for a data set of `samples_per_epoch`. */
struct data_cursor data_cursor_advance(struct data_cursor c, int64_t n_samples, int64_t samples_per_epoch);

#endif
