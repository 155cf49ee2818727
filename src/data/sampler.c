/* SPDX-License-Identifier: MIT */
/* The order of samples and their tokens; see sampler.h. */
#include "data/sampler.h"

#include "base/rng.h"

enum { FEISTEL_ROUNDS = 8 };

err_t sampler_init(struct sampler *s, const struct token_cache *cache, int seq_len, bool document_mask, bool shuffle,
                   uint64_t seed, bool drop_tail, struct error *e)
{
    int64_t n_tokens = token_cache_tokens(cache), labels = n_tokens > 0 ? n_tokens - 1 : 0;

    *s = (struct sampler){
        .cache = cache, .seq_len = seq_len, .document_mask = document_mask, .shuffle = shuffle, .seed = seed};
    if (seq_len < 1) return FAIL(e, ERR_RANGE, "the sequence length is %d: it must be at least 1", seq_len);
    s->n_samples = labels / seq_len;
    s->n_dropped = labels % seq_len;
    if (!drop_tail && s->n_dropped) {
        s->n_samples++;
        s->n_dropped = 0;
    }
    if (s->n_samples > 0) return ERR_NONE;
    return FAIL(e, ERR_CONFIG,
                "%s holds %lld tokens, which is not one sample: %d are needed (a sequence of %d and the label of its "
                "last token); "
                "give more text%s",
                token_cache_name(cache), (long long)n_tokens, drop_tail ? seq_len + 1 : 2, drop_tail ? seq_len : 1,
                drop_tail ? " or a smaller training.seq_len" : "");
}

/* A balanced Feistel network permutes [0, 4^half_bits), at most four times n; stepping on until the value falls into
 * [0, n) makes it a permutation of that (Black, Rogaway: "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). */
int64_t sampler_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    struct rng_key key = rng_key_of(seed, "data/shuffle");
    uint64_t x = (uint64_t)i, mask;
    unsigned half_bits = 1;
    uint32_t r[4];

    if (n < 2) return 0;
    while (half_bits < 32 && ((uint64_t)(n - 1) >> (2 * half_bits))) half_bits++;
    mask = ((uint64_t)1 << half_bits) - 1;
    do {
        uint64_t left = x >> half_bits, right = x & mask;

        for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
            uint64_t moved = right;

            rng_block(key, right, (uint64_t)epoch * FEISTEL_ROUNDS + round, r);
            right = left ^ (r[0] & mask);
            left = moved;
        }
        x = left << half_bits | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t sampler_order(const struct sampler *s, int64_t epoch, int64_t position)
{
    return s->shuffle ? sampler_permute(s->seed, epoch, s->n_samples, position) : position;
}

/* Document by document: label off at its last token, positions from its start. */
static void mark_documents(const struct sampler *s, int64_t first, int32_t *labels, int32_t *positions,
                           int32_t *document_start)
{
    int T = s->seq_len, t = 0, start = 0;

    while (t < T) {
        int64_t next = token_cache_next_document(s->cache, first + t) - first;
        int end;

        if (next <= t) next = INT64_MAX; /* behind the data: padding is one document */
        end = next < T ? (int)next : T;
        for (; t < end; t++) {
            positions[t] = t - start;
            if (document_start) document_start[t] = start;
        }
        if (next <= T) labels[end - 1] = LABEL_IGNORED; /* the next token belongs to another document */
        start = end;
    }
}

err_t sampler_fill(const struct sampler *s, int64_t sample, int32_t *scratch, int32_t *tokens, int32_t *labels,
                   int32_t *positions, int32_t *document_start, int64_t *n_valid, struct error *e)
{
    int T = s->seq_len;
    int64_t first = sample * T, left = token_cache_tokens(s->cache) - first, valid = 0;
    int n = left < T + 1 ? (int)left : T + 1;
    err_t rc;

    BUG_ON(sample < 0 || sample >= s->n_samples);
    rc = token_cache_read(s->cache, first, n, scratch, e);
    if (rc) return rc;
    for (int t = 0; t < T; t++) {
        tokens[t] = t < n ? scratch[t] : 0;
        labels[t] = t + 1 < n ? scratch[t + 1] : LABEL_IGNORED;
        positions[t] = t;
    }
    if (s->document_mask) mark_documents(s, first, labels, positions, document_start);
    for (int t = 0; t < T; t++) valid += labels[t] != LABEL_IGNORED;
    *n_valid += valid;
    return ERR_NONE;
}

void sampler_fill_blank(const struct sampler *s, int32_t *tokens, int32_t *labels, int32_t *positions,
                        int32_t *document_start)
{
    for (int t = 0; t < s->seq_len; t++) {
        tokens[t] = 0;
        labels[t] = LABEL_IGNORED;
        positions[t] = t;
        if (document_start) document_start[t] = 0;
    }
}
