/* SPDX-License-Identifier: MIT */
/* What the reader and the writer of token caches share; see token_cache.h for the layout. */
#ifndef DATA_TOKEN_CACHE_FORMAT_H
#define DATA_TOKEN_CACHE_FORMAT_H

#include <stdint.h>

#include "base/error.h"
#include "data/token_cache.h"

#define TOKEN_CACHE_MAGIC "ctitanTC" /* 8 bytes, without the NUL */
#define TOKEN_CACHE_MAX_TOKENS ((int64_t)1 << 56)

_Static_assert(sizeof(struct token_cache_header) == 160, "the header has no hidden padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little endian and mapped as it is");

static inline int64_t token_cache_pad(int64_t bytes) { return (bytes + 7) / 8 * 8; }

err_t token_cache_check_header(const struct token_cache_header *h, int64_t file_bytes, uint64_t key, const char *path,
                               struct error *e) MUST_CHECK;

#endif
