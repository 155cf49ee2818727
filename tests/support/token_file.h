/* SPDX-License-Identifier: MIT */
/* A token cache with given documents, for tests of what reads it. */
#ifndef SUPPORT_TOKEN_FILE_H
#define SUPPORT_TOKEN_FILE_H

#include <stdint.h>

#include "data/token_cache.h"
#include "tests/support/temp.h"

/* Documents of these lengths; token i of the file has the id 1 + i % (vocab_size - 1), so that each place can be told
 * by its id. */
struct token_cache *token_file(struct temp *t, const char *name, const int64_t *lengths, int64_t n_documents,
                               int64_t vocab_size);

/* One document of n tokens. */
struct token_cache *token_file_run(struct temp *t, const char *name, int64_t n, int64_t vocab_size);

#endif
