/* SPDX-License-Identifier: MIT */
/*
 * Byte-pair merging: a vocabulary of byte strings, the merges in order of rank, and what applies them to a piece.
 *
 * Built once (bpe_set_token, bpe_index, bpe_add_merge, in this order), then constant.
 */
#ifndef DATA_BPE_H
#define DATA_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"
#include "data/tokenizer.h"

struct bpe_token {
    const char *bytes; /* NULL: unused id */
    uint32_t n;
    bool is_raw; /* its text is not in the byte alphabet: no text encodes to it, it decodes to its text */
};
struct bpe_merge {
    int32_t left, right, result;
};
struct bpe_pair {
    uint64_t key; /* left << 32 | right */
    int32_t rank; /* -1: empty slot */
    int32_t result;
};

struct bpe {
    struct arena arena; /* bytes of the tokens */
    struct bpe_token *tokens;
    int32_t n_tokens, token_capacity;
    struct bpe_merge *merges; /* by rank */
    int32_t n_merges, merge_capacity;
    struct bpe_pair *pairs; /* open addressing */
    size_t pair_mask;       /* slots - 1; 0: no table yet */
    int32_t *by_text;       /* ids hashed by their bytes, -1: empty slot */
    size_t text_mask;
    int32_t byte_id[256]; /* -1: the vocabulary lacks the byte */
    bool ignore_merges;   /* a piece that is in the vocabulary is taken whole */
};

/* Copies the bytes. ERR_FORMAT: the id is taken or outside [0, TOKENIZER_MAX_VOCAB). */
err_t bpe_set_token(struct bpe *b, int32_t id, const char *bytes, size_t n, bool is_raw, struct error *e) MUST_CHECK;
/* n_merges_expected: how many merges and appended tokens to make room for. */
err_t bpe_index(struct bpe *b, int32_t n_merges_expected, struct error *e) MUST_CHECK;
/* The next rank; result is the id of both tokens' bytes in a row. A pair given twice keeps its later rank, as the
 * reference does. */
err_t bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t result, struct error *e) MUST_CHECK;
/* While learning: a token after the last, whose text is not in the vocabulary yet, found by bpe_find from now on. */
err_t bpe_append(struct bpe *b, const char *bytes, size_t n, struct error *e) MUST_CHECK;
void bpe_release(struct bpe *b);

int32_t bpe_find(const struct bpe *b, const char *bytes, size_t n); /* -1: not in the vocabulary */

/* Working memory for long pieces; zeroed = empty. */
struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t n_symbols;
    struct bpe_candidate *heap;
    size_t n_heap, heap_capacity;
};
void bpe_scratch_release(struct bpe_scratch *s);

/* Appends the ids of one piece. ERR_FORMAT when the vocabulary lacks one of its bytes. */
err_t bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *piece, size_t n, struct token_list *out,
                 struct error *e) MUST_CHECK;

#endif
