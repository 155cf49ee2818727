/* SPDX-License-Identifier: MIT */
/*
 * A data set as one long run of token ids with the places where documents start: memory-mapped from a file, or computed
 * on demand
 * (`synthetic`). Reading is pure and thread-safe; ranks that are threads share one object.
 *
 * File (little endian): struct token_cache_header, tokens as uint16 (where the vocabulary fits) or int32, padding to 8
 * bytes, document starts as int64[n_documents + 1] (the last one is n_tokens). A document is [BOS] tokens [EOS], as the
 * tokenizer has them. The header carries a key (content, tokenizer, rules) and its own checksum; opening checks these
 * and the file's size, which costs nothing for any size of data. token_cache_verify reads everything. Ids are checked
 * on every read, so a damaged file can give an error but never an id outside the vocabulary.
 */
#ifndef DATA_TOKEN_CACHE_H
#define DATA_TOKEN_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/source.h"

enum { TOKEN_CACHE_VERSION = 1 };

struct token_cache_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t key;          /* of everything that decides the content */
    uint64_t content_hash; /* source_hash */
    uint64_t tokenizer_hash;
    int64_t n_tokens, n_documents;
    int64_t vocab_size;
    int64_t n_text_bytes; /* of the documents used */
    int64_t skipped[8];   /* documents, by enum source_skip */
    int64_t n_files;
    uint32_t token_bytes; /* 2 or 4 */
    uint32_t body_crc;    /* CRC-32C of everything after the header */
    uint32_t reserved;
    uint32_t header_crc; /* CRC-32C of the header before this field */
};

struct token_cache; /* opaque: what is behind it */

/* key: 0 accepts any. ERR_MISSING: no such file; ERR_FORMAT: torn, foreign or of another version or key. */
err_t token_cache_open(struct token_cache **out, const char *path, uint64_t key, struct error *e) MUST_CHECK;

/* Tokens drawn from a counter-based generator, without any file: uneven unigram frequencies (so that a model can learn
 * something), documents of 2 to 510 tokens that begin with id 0 and end with id 1. vocab_size >= 3. */
err_t token_cache_open_synthetic(struct token_cache **out, int64_t vocab_size, int64_t n_tokens, uint64_t seed,
                                 struct error *e) MUST_CHECK;
void token_cache_close(struct token_cache *c);

int64_t token_cache_tokens(const struct token_cache *c);
int64_t token_cache_vocab_size(const struct token_cache *c);
const char *token_cache_name(const struct token_cache *c);                        /* the path, or "synthetic" */
const struct token_cache_header *token_cache_header(const struct token_cache *c); /* NULL for synthetic */

/* Tokens [first, first + n) as int32; a range outside the data is a BUG, a damaged id ERR_FORMAT. */
err_t token_cache_read(const struct token_cache *c, int64_t first, int64_t n, int32_t *out, struct error *e) MUST_CHECK;

/* The smallest document start > position, n_tokens if there is none. A damaged table gives a wrong but valid position.
 */
int64_t token_cache_next_document(const struct token_cache *c, int64_t position);

err_t token_cache_verify(const struct token_cache *c, struct error *e) MUST_CHECK; /* checksum and document table */

/* ---- writing: to <path>.tmp, then renamed; the caller holds whatever lock keeps other writers of this path away ----
 */
struct token_cache_writer;
err_t token_cache_writer_open(struct token_cache_writer **out, const char *path, int64_t vocab_size,
                              struct error *e) MUST_CHECK;
/* Documents given one after the other: n_documents lengths, and their tokens in a row. */
err_t token_cache_writer_add(struct token_cache_writer *w, const int32_t *tokens, const int64_t *lengths,
                             int64_t n_documents, struct error *e) MUST_CHECK;
/* h: the caller fills key, hashes, n_text_bytes, skipped and n_files; the rest is filled here. Makes the file appear.
 */
err_t token_cache_writer_finish(struct token_cache_writer *w, struct token_cache_header *h, struct error *e) MUST_CHECK;
void token_cache_writer_close(struct token_cache_writer *w); /* without finish: nothing is left behind */

#endif
