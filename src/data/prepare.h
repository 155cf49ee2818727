/* SPDX-License-Identifier: MIT */
/*
 * From what the configuration says about data to a token cache on disk: once, before the ranks start.
 *
 * The cache folder holds tokens-<key>.bin (tokens; the key is of the content, the tokenizer and the rules),
 * tokenizer-<key>.json (learnt from the content), and stamp-<key>: for one description of data, the state of its files
 * (size, dates, inode) when they were last read, and what came of them. A start whose files have not been touched since
 * costs a look at each file's state; files with new dates are read once to see whether their content is new. All of it
 * may be removed at any time. Any number of processes and threads may prepare at once: locks make one do the work and
 * the others wait.
 */
#ifndef DATA_PREPARE_H
#define DATA_PREPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "config/config.h"
#include "data/source.h"
#include "data/token_build.h"
#include "data/token_cache.h"

#define DATA_SYNTHETIC                                                                                                 \
    "synthetic" /* as the only entry of the data: tokens made up on demand, no file is read or written */
#define DATA_TOKENIZER_AUTO "auto" /* a tokenizer learnt from the data */
#define DATA_SYNTHETIC_TOKENS ((int64_t)1 << 40)

struct data_spec {
    struct source_spec source;   /* what to read; relative entries start at `folder` */
    const char *folder;          /* "" or NULL = the working folder */
    const char *const *fallback; /* [n_fallback] read instead, if no entry of source.paths has a file */
    int n_fallback;
    const char *tokenizer;        /* DATA_TOKENIZER_AUTO, "byte", or a path */
    int32_t tokenizer_vocab_size; /* of the learnt one, or of synthetic data without another tokenizer */
    const char *cache_folder;     /* "" or NULL = $XDG_CACHE_HOME/ctitan, else $HOME/.cache/ctitan */
    uint64_t seed;                /* synthetic data */
};

/* The data of training.* and of validation.* (read with the same rules); texts are borrowed from the configuration. */
struct data_spec data_spec_training(const struct config *c);
struct data_spec data_spec_validation(const struct config *c);

struct data_prepared {
    char *cache_path;     /* NULL = synthetic */
    char *tokenizer_path; /* for tokenizer_open: a path or "byte"; NULL: synthetic data without a tokenizer file */
    uint64_t key;         /* of the cache */
    uint64_t content_hash;
    int32_t vocab_size; /* of the tokenizer: ids lie below */
    uint64_t seed;
    bool used_fallback;              /* say so to people */
    bool made_tokenizer, made_cache; /* now, by this call */
};

err_t data_prepare(const struct data_spec *spec, struct pool *pool, data_report report, void *report_arg,
                   struct data_prepared *out, struct error *e) MUST_CHECK;
void data_prepared_release(struct data_prepared *p);

/* Opens what was prepared, here or by another process that sees the same folder. */
err_t data_open(struct token_cache **out, const struct data_prepared *p, struct error *e) MUST_CHECK;

#endif
