/* SPDX-License-Identifier: MIT */
/* Work over a whole source, by all threads of a pool: its documents as a token cache, and a tokenizer learnt from them.
 */
#ifndef DATA_TOKEN_BUILD_H
#define DATA_TOKEN_BUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"
#include "data/report.h"
#include "data/source.h"
#include "data/token_cache.h"
#include "data/tokenizer.h"

enum { TOKEN_BUILD_RULES = 1 }; /* part of every cache's key; grows when the same input would give other tokens */

/* Learns a tokenizer from at most this many bytes: of a larger source every k-th document. */
#define TOKENIZER_AUTO_MAX_BYTES ((int64_t)64 << 20)

/* Writes the cache to `path`. h: key and content_hash are the caller's, the rest is filled. The result does not depend
 * on the number of threads. ERR_CONFIG when no document holds text. */
err_t token_build(const char *path, const struct source *s, const struct tokenizer *t, struct pool *pool,
                  data_report report, void *report_arg, struct token_cache_header *h, struct error *e) MUST_CHECK;

err_t token_build_tokenizer(struct tokenizer **out, const struct source *s, const struct tokenizer_spec *spec,
                            data_report report, void *report_arg, struct error *e) MUST_CHECK;

#endif
