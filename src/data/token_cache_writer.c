/* SPDX-License-Identifier: MIT */
/* Writing a token cache front to back: tokens go to disk as they come, document starts stay in memory until the end. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "data/token_cache.h"
#include "data/token_cache_format.h"

enum { CONVERT_TOKENS = 1 << 15 };

struct token_cache_writer {
    struct arena arena;
    char *path, *temporary;
    int fd;
    int64_t vocab_size;
    uint32_t token_bytes, crc;
    int64_t *starts; /* [n_documents + 1] */
    int64_t n_documents, capacity, n_tokens;
    uint16_t *narrow; /* [CONVERT_TOKENS] */
};

static err_t reserve_starts(struct token_cache_writer *w, int64_t more, struct error *e)
{
    int64_t need = w->n_documents + more + 1, capacity = w->capacity ? w->capacity : 1024;
    int64_t *grown;

    if (need <= w->capacity) return ERR_NONE;
    while (capacity < need) capacity *= 2;
    grown = mem_resize(w->starts, (size_t)capacity, sizeof *grown);
    if (!grown) return FAIL(e, ERR_MEMORY, "out of memory for the places of %lld documents", (long long)need);
    w->starts = grown;
    w->capacity = capacity;
    return ERR_NONE;
}

static err_t put(struct token_cache_writer *w, const void *bytes, size_t n, struct error *e)
{
    w->crc = hash_crc32c(w->crc, bytes, n);
    return io_write_all(w->fd, bytes, n, w->temporary, e);
}

err_t token_cache_writer_open(struct token_cache_writer **out, const char *path, int64_t vocab_size, struct error *e)
{
    struct token_cache_writer *w = mem_zalloc(1, sizeof *w);
    struct token_cache_header blank = {0};
    err_t rc;

    *out = NULL;
    if (!w) return FAIL(e, ERR_MEMORY, "out of memory while making the token cache %s", path);
    w->fd = -1;
    w->vocab_size = vocab_size;
    w->token_bytes = vocab_size <= 65536 ? 2 : 4;
    w->path = arena_strdup(&w->arena, path);
    w->temporary = arena_printf(&w->arena, "%s.tmp", path);
    w->narrow = mem_alloc(CONVERT_TOKENS * sizeof *w->narrow);
    if (!w->path || !w->temporary || !w->narrow)
        rc = FAIL(e, ERR_MEMORY, "out of memory while making the token cache %s", path);
    else
        rc = reserve_starts(w, 0, e);
    if (!rc) {
        w->starts[0] = 0;
        w->fd = open(w->temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (w->fd < 0) rc = io_fail(e, "create", w->temporary);
    }
    if (!rc) rc = io_write_all(w->fd, &blank, sizeof blank, w->temporary, e); /* its place; filled in at the end */
    if (rc)
        token_cache_writer_close(w);
    else
        *out = w;
    return rc;
}

static err_t put_tokens(struct token_cache_writer *w, const int32_t *tokens, int64_t n, struct error *e)
{
    err_t rc = ERR_NONE;

    if (w->token_bytes == 4) return put(w, tokens, (size_t)n * 4, e);
    while (!rc && n > 0) {
        int64_t part = n < CONVERT_TOKENS ? n : CONVERT_TOKENS;

        for (int64_t i = 0; i < part; i++) w->narrow[i] = (uint16_t)tokens[i];
        rc = put(w, w->narrow, (size_t)part * 2, e);
        tokens += part;
        n -= part;
    }
    return rc;
}

err_t token_cache_writer_add(struct token_cache_writer *w, const int32_t *tokens, const int64_t *lengths,
                             int64_t n_documents, struct error *e)
{
    int64_t n = 0;
    err_t rc = reserve_starts(w, n_documents, e);

    if (rc) return rc;
    for (int64_t i = 0; i < n_documents; i++) {
        n += lengths[i];
        w->starts[++w->n_documents] = w->n_tokens + n;
    }
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= w->vocab_size)
            return FAIL(e, ERR_RANGE, "token id %d is outside the vocabulary of %lld", tokens[i],
                        (long long)w->vocab_size);
    w->n_tokens += n;
    return put_tokens(w, tokens, n, e);
}

err_t token_cache_writer_finish(struct token_cache_writer *w, struct token_cache_header *h, struct error *e)
{
    static const char zeros[8];
    int64_t bytes = w->n_tokens * w->token_bytes;
    struct arena a = {0};
    char *folder = io_folder_of(&a, w->path);
    err_t rc = folder ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory while making the token cache %s", w->path);

    if (!rc) rc = put(w, zeros, (size_t)(token_cache_pad(bytes) - bytes), e);
    if (!rc) rc = put(w, w->starts, (size_t)(w->n_documents + 1) * sizeof *w->starts, e);
    memcpy(h->magic, TOKEN_CACHE_MAGIC, sizeof h->magic);
    h->version = TOKEN_CACHE_VERSION;
    h->header_bytes = sizeof *h;
    h->n_tokens = w->n_tokens;
    h->n_documents = w->n_documents;
    h->vocab_size = w->vocab_size;
    h->token_bytes = w->token_bytes;
    h->body_crc = w->crc;
    h->reserved = 0;
    h->header_crc = hash_crc32c(0, h, offsetof(struct token_cache_header, header_crc));
    if (!rc && lseek(w->fd, 0, SEEK_SET) != 0) rc = io_fail(e, "write", w->temporary);
    if (!rc) rc = io_write_all(w->fd, h, sizeof *h, w->temporary, e);
    if (!rc && fsync(w->fd)) rc = io_fail(e, "flush", w->temporary);
    if (!rc && rename(w->temporary, w->path)) rc = io_fail(e, "rename to", w->path);
    if (!rc) {
        close(w->fd);
        w->fd = -1; /* nothing left for close to remove */
        rc = io_sync_folder(folder, e);
    }
    arena_release(&a);
    return rc;
}

void token_cache_writer_close(struct token_cache_writer *w)
{
    if (!w) return;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->temporary);
    }
    mem_free(w->starts);
    mem_free(w->narrow);
    arena_release(&w->arena);
    mem_free(w);
}
