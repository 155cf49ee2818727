/* SPDX-License-Identifier: MIT */
/*
 * Text to token ids and back: byte-level BPE in the form of Hugging Face's tokenizer.json, and a built-in tokenizer of
 * bytes.
 *
 * On valid UTF-8 the ids are those of the `tokenizers` package (for code points assigned in Unicode 14). Bytes that are
 * not valid UTF-8 are kept: encode + decode gives back every input byte for byte. A struct tokenizer does not change
 * once it is made, so any number of threads may use it at once, each with a scratch of its own.
 *
 * Method: Sennrich, Haddow, Birch: "Neural Machine Translation of Rare Words with Subword Units", ACL 2016; on bytes as
 * in Radford et al.: "Language Models are Unsupervised Multitask Learners", 2019.
 */
#ifndef DATA_TOKENIZER_H
#define DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "data/report.h"

struct tokenizer;
struct tokenizer_scratch;

/* Growing array of ids; a zeroed one is empty. */
struct token_list {
    int32_t *ids; /* owned */
    size_t count;
    size_t capacity;
};
err_t token_list_add(struct token_list *l, const int32_t *ids, size_t n, struct error *e) MUST_CHECK;
void token_list_release(struct token_list *l);

#define TOKENIZER_BYTE "byte" /* the name of the built-in tokenizer: ids 0-255 are the bytes, then these two */
#define TOKENIZER_BOS "<|begin_of_text|>"
#define TOKENIZER_EOS "<|end_of_text|>"
enum { TOKENIZER_MAX_VOCAB = 1 << 24 };

/* path: a tokenizer.json, a folder that holds one, or "byte". A tokenizer_config.json beside the file may name
 * bos_token and eos_token. A file that asks for anything this tokenizer would do differently is refused
 * (ERR_UNSUPPORTED) by the key's name. */
err_t tokenizer_open(struct tokenizer **out, const char *path, struct error *e) MUST_CHECK;
/* The same from the text of a tokenizer.json; name: for messages; config: text of a tokenizer_config.json or NULL. */
err_t tokenizer_parse(struct tokenizer **out, const char *json, size_t n, const char *config, const char *name,
                      struct error *e) MUST_CHECK;
void tokenizer_close(struct tokenizer *t);

int32_t tokenizer_vocab_size(const struct tokenizer *t); /* largest id + 1; ids between may be unused */
int32_t tokenizer_bos(const struct tokenizer *t);        /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);        /* -1: none */
uint64_t
tokenizer_hash(const struct tokenizer *t); /* equal for equal behaviour read from equal files; for names of caches */
const char *tokenizer_text(const struct tokenizer *t, int32_t id,
                           size_t *n); /* an id's bytes; NULL: unused or out of range */

/* What one thread needs to encode: memory for matching and a cache of pieces (about 2 MiB). Only for the tokenizer it
 * was made for. */
err_t tokenizer_scratch_create(struct tokenizer_scratch **out, const struct tokenizer *t, struct error *e) MUST_CHECK;
void tokenizer_scratch_destroy(struct tokenizer_scratch *s);

/* Appends the ids of text to out; adds no BOS or EOS. parse_special false: text that looks like a special token is
 * ordinary text (added tokens that the file does not mark special are always taken, as the package does). On failure
 * out may hold part of it. */
err_t tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text, size_t n_bytes,
                       bool parse_special, struct token_list *out, struct error *e) MUST_CHECK;

/* Appends the bytes of the ids; special tokens give their text. ERR_RANGE for an id that the vocabulary does not have.
 */
err_t tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, struct str *out,
                       struct error *e) MUST_CHECK;

struct tokenizer_spec {
    int32_t vocab_size;  /* all of it: 256 bytes + merged tokens + the special tokens */
    const char *pattern; /* how text is cut before merging: "llama3", "gpt2" or "qwen"; NULL = llama3 */
    const char *bos;     /* special tokens, at the end of the vocabulary; NULL = TOKENIZER_BOS / _EOS, "" = none */
    const char *eos;
    data_report report; /* NULL = none */
    void *report_arg;
};
struct tokenizer_document {
    const char *bytes;
    size_t n;
};

/* Learns merges from documents. The same documents in any order give the same result: the most frequent pair is merged
 * first, of equally frequent ones the pair with the lowest ids (left, then right); pairs seen once are not merged.
 * Bytes that are not valid UTF-8 teach nothing. ERR_RANGE when vocab_size is under 256 + special tokens, or more than
 * the text can give (the message says how many it can). */
err_t tokenizer_train(struct tokenizer **out, const struct tokenizer_spec *spec,
                      const struct tokenizer_document *documents, size_t n, struct error *e) MUST_CHECK;

/* Writes a tokenizer.json, atomically; reading it back gives the same tokenizer (same ids, same hash). */
err_t tokenizer_save(const struct tokenizer *t, const char *path, struct error *e) MUST_CHECK;

#endif
