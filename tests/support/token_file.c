/* SPDX-License-Identifier: MIT */
/* Token caches for tests; see token_file.h. */
#include "tests/support/token_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/mem.h"

struct token_cache *token_file(struct temp *t, const char *name, const int64_t *lengths, int64_t n_documents,
                               int64_t vocab_size)
{
    struct token_cache_header h = {.key = 1};
    struct token_cache_writer *w;
    struct token_cache *c;
    struct error e;
    int64_t n = 0;
    int32_t *ids;

    for (int64_t i = 0; i < n_documents; i++) n += lengths[i];
    ids = mem_alloc((size_t)n * sizeof *ids + 1);
    assert_non_null(ids);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(1 + i % (vocab_size - 1));
    temp_path(t, name);
    if (token_cache_writer_open(&w, t->path, vocab_size, &e) ||
        token_cache_writer_add(w, ids, lengths, n_documents, &e) || token_cache_writer_finish(w, &h, &e))
        fail_msg("%s", e.message);
    token_cache_writer_close(w);
    mem_free(ids);
    if (token_cache_open(&c, t->path, 1, &e)) fail_msg("%s", e.message);
    return c;
}

struct token_cache *token_file_run(struct temp *t, const char *name, int64_t n, int64_t vocab_size)
{
    return token_file(t, name, &n, 1, vocab_size);
}
