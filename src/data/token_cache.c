/* SPDX-License-Identifier: MIT */
/* Reading token runs, from a mapped file or computed; see token_cache.h. Writing the file is token_cache_writer.c. */
#include "data/token_cache.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/token_cache_format.h"

enum { SYNTHETIC_BLOCK = 512 }; /* tokens that two synthetic documents share */

struct token_cache {
    const struct token_cache_header *header; /* the mapped file; NULL = synthetic */
    size_t map_bytes;
    const uint16_t *tokens16; /* one of these two */
    const int32_t *tokens32;
    const int64_t *starts; /* [n_documents + 1] */
    int64_t n_tokens, vocab_size;
    struct rng_key token_key, border_key; /* synthetic */
    char *name;
};

static err_t bad_file(struct error *e, const char *path, const char *what)
{
    return FAIL(e, ERR_FORMAT, "%s is not a usable token cache: %s; remove it and it is made again", path, what);
}

err_t token_cache_check_header(const struct token_cache_header *h, int64_t file_bytes, uint64_t key, const char *path,
                               struct error *e)
{
    int64_t tokens_bytes, need;

    if (file_bytes < (int64_t)sizeof *h) return bad_file(e, path, "shorter than its header");
    if (memcmp(h->magic, TOKEN_CACHE_MAGIC, sizeof h->magic) != 0) return bad_file(e, path, "another kind of file");
    if (h->version != TOKEN_CACHE_VERSION) return bad_file(e, path, "made by another version of ctitan");
    if (h->header_bytes != sizeof *h) return bad_file(e, path, "its header has another length");
    if (h->header_crc != hash_crc32c(0, h, offsetof(struct token_cache_header, header_crc)))
        return bad_file(e, path, "its header is damaged");
    if (key && h->key != key) return bad_file(e, path, "made from other data or with another tokenizer");
    if ((h->token_bytes != 2 && h->token_bytes != 4) || h->vocab_size < 1 || h->vocab_size > INT32_MAX ||
        h->n_tokens < 0 || h->n_documents < 0 || h->n_tokens > TOKEN_CACHE_MAX_TOKENS ||
        h->n_documents > TOKEN_CACHE_MAX_TOKENS)
        return bad_file(e, path, "its counts make no sense");
    tokens_bytes = token_cache_pad(h->n_tokens * h->token_bytes);
    need = (int64_t)sizeof *h + tokens_bytes + (h->n_documents + 1) * 8;
    if (file_bytes != need)
        return FAIL(e, ERR_FORMAT,
                    "%s is cut short or damaged: %lld bytes instead of %lld; remove it and it is made again", path,
                    (long long)file_bytes, (long long)need);
    return ERR_NONE;
}

static err_t create(struct token_cache **out, const char *name, struct error *e)
{
    struct token_cache *c = mem_zalloc(1, sizeof *c);

    *out = NULL;
    if (c) c->name = mem_strdup(name);
    if (!c || !c->name) {
        token_cache_close(c);
        return FAIL(e, ERR_MEMORY, "out of memory while opening the token cache %s", name);
    }
    *out = c;
    return ERR_NONE;
}

static err_t map_file(const char *path, const void **map, size_t *bytes, struct error *e)
{
    struct stat st;
    void *p;
    int fd;
    err_t rc = io_open_file(path, &fd, e);

    if (rc) return rc;
    if (fstat(fd, &st)) {
        rc = io_fail(e, "look at the token cache", path);
    } else if (st.st_size < (off_t)sizeof(struct token_cache_header)) {
        rc = bad_file(e, path, "shorter than its header");
    } else {
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) rc = io_fail(e, "map into memory the token cache", path);
        *map = p;
        *bytes = (size_t)st.st_size;
    }
    close(fd);
    return rc;
}

err_t token_cache_open(struct token_cache **out, const char *path, uint64_t key, struct error *e)
{
    const struct token_cache_header *h;
    struct token_cache *c;
    const void *map = NULL;
    const char *body;
    err_t rc = create(&c, path, e);

    *out = NULL;
    if (!rc) rc = map_file(path, &map, &c->map_bytes, e);
    if (rc) goto out;
    c->header = h = map;
    rc = token_cache_check_header(h, (int64_t)c->map_bytes, key, path, e);
    if (rc) goto out;
    body = (const char *)map + sizeof *h;
    if (h->token_bytes == 2)
        c->tokens16 = (const uint16_t *)(const void *)body;
    else
        c->tokens32 = (const int32_t *)(const void *)body;
    c->starts = (const int64_t *)(const void *)(body + token_cache_pad(h->n_tokens * h->token_bytes));
    c->n_tokens = h->n_tokens;
    c->vocab_size = h->vocab_size;
    *out = c;
    return ERR_NONE;
out:
    token_cache_close(c);
    return rc;
}

err_t token_cache_open_synthetic(struct token_cache **out, int64_t vocab_size, int64_t n_tokens, uint64_t seed,
                                 struct error *e)
{
    struct token_cache *c;
    err_t rc;

    *out = NULL;
    if (vocab_size < 3 || vocab_size > INT32_MAX)
        return FAIL(e, ERR_RANGE, "synthetic data needs a vocabulary of 3 to %d tokens, not %lld", INT32_MAX,
                    (long long)vocab_size);
    if (n_tokens < 0 || n_tokens > TOKEN_CACHE_MAX_TOKENS)
        return FAIL(e, ERR_RANGE, "synthetic data of %lld tokens: the count must lie in [0, %lld]", (long long)n_tokens,
                    (long long)TOKEN_CACHE_MAX_TOKENS);
    rc = create(&c, "synthetic", e);
    if (rc) return rc;
    c->n_tokens = n_tokens;
    c->vocab_size = vocab_size;
    c->token_key = rng_key_of(seed, "data/synthetic/tokens");
    c->border_key = rng_key_of(seed, "data/synthetic/borders");
    *out = c;
    return ERR_NONE;
}

void token_cache_close(struct token_cache *c)
{
    if (!c) return;
    if (c->header) munmap((void *)(uintptr_t)c->header, c->map_bytes);
    mem_free(c->name);
    mem_free(c);
}

int64_t token_cache_tokens(const struct token_cache *c) { return c->n_tokens; }
int64_t token_cache_vocab_size(const struct token_cache *c) { return c->vocab_size; }
const char *token_cache_name(const struct token_cache *c) { return c->name; }
const struct token_cache_header *token_cache_header(const struct token_cache *c) { return c->header; }

/* Where the second of the two documents of a synthetic block starts: each has at least two tokens. */
static int64_t synthetic_border(const struct token_cache *c, int64_t block)
{
    return block * SYNTHETIC_BLOCK + 2 + (int64_t)rng_below(c->border_key, (uint64_t)block, SYNTHETIC_BLOCK - 3);
}

static int32_t synthetic_token(const struct token_cache *c, int64_t position)
{
    uint32_t r[4];
    uint64_t skewed;

    rng_block(c->token_key, (uint64_t)position, 0, r);
    skewed = ((uint64_t)r[0] * r[1]) >> 32; /* the product of two uniform draws: small ids are frequent */
    return 2 + (int32_t)((skewed * (uint64_t)(c->vocab_size - 2)) >> 32);
}

static void read_synthetic(const struct token_cache *c, int64_t first, int64_t n, int32_t *out)
{
    int64_t end = first + n, i = first;

    while (i < end) {
        int64_t block = i / SYNTHETIC_BLOCK, start = block * SYNTHETIC_BLOCK, stop = start + SYNTHETIC_BLOCK;
        int64_t border = synthetic_border(c, block);

        for (; i < end && i < stop; i++) {
            if (i == start || i == border)
                *out++ = 0;
            else if (i + 1 == border || i + 1 == stop)
                *out++ = 1;
            else
                *out++ = synthetic_token(c, i);
        }
    }
}

err_t token_cache_read(const struct token_cache *c, int64_t first, int64_t n, int32_t *out, struct error *e)
{
    int32_t vocab_size = (int32_t)c->vocab_size;

    BUG_ON(first < 0 || n < 0 || n > c->n_tokens || first > c->n_tokens - n);
    if (!c->header) {
        read_synthetic(c, first, n, out);
        return ERR_NONE;
    }
    for (int64_t i = 0; i < n; i++) {
        int32_t id = c->tokens16 ? c->tokens16[first + i] : c->tokens32[first + i];

        if (id < 0 || id >= vocab_size)
            return FAIL(
                e, ERR_FORMAT,
                "%s is damaged: token %lld has the id %d, the vocabulary has %d; remove it and it is made again",
                c->name, (long long)(first + i), id, vocab_size);
        out[i] = id;
    }
    return ERR_NONE;
}

int64_t token_cache_next_document(const struct token_cache *c, int64_t position)
{
    int64_t low = 0, high, found;

    if (!c->header) {
        int64_t block = position / SYNTHETIC_BLOCK, border = synthetic_border(c, block);

        found = position < border ? border : (block + 1) * SYNTHETIC_BLOCK;
        return found < c->n_tokens ? found : c->n_tokens;
    }
    high = c->header->n_documents;
    while (low < high) { /* starts[low - 1] <= position < starts[high] */
        int64_t middle = low + (high - low) / 2;

        if (c->starts[middle] > position)
            high = middle;
        else
            low = middle + 1;
    }
    found = c->starts[low];
    return found > position && found < c->n_tokens ? found : c->n_tokens;
}

err_t token_cache_verify(const struct token_cache *c, struct error *e)
{
    const struct token_cache_header *h = c->header;
    uint32_t crc;

    if (!h) return ERR_NONE;
    crc = hash_crc32c(0, h + 1, c->map_bytes - sizeof *h);
    if (crc != h->body_crc) return bad_file(e, c->name, "its content does not match its checksum");
    for (int64_t i = 0; i < h->n_documents; i++)
        if (c->starts[i] > c->starts[i + 1] || c->starts[i] < 0)
            return bad_file(e, c->name, "its document table is not in order");
    if (c->starts[h->n_documents] != h->n_tokens)
        return bad_file(e, c->name, "its document table does not end with the data");
    return ERR_NONE;
}
