/* SPDX-License-Identifier: MIT */
/*
 * Text to ids and back; see tokenizer.h.
 *
 * Encoding goes through four stages: added tokens are taken out, the rest falls into valid and invalid runs of UTF-8,
 * valid runs are split into pieces, and pieces are merged. Pieces repeat, so each scratch remembers the ids of short
 * ones in a direct-mapped cache.
 */
#include "data/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer_parts.h"

/* ---- lists of tokens ---- */

static err_t reserve(struct token_list *l, size_t more, struct error *e)
{
    size_t capacity = l->capacity ? l->capacity : 256;
    int32_t *ids;

    if (l->capacity - l->count >= more) return ERR_NONE;
    if (more > SIZE_MAX / 16 - l->count) return FAIL(e, ERR_RANGE, "a list of more than %zu tokens", l->count);
    while (capacity - l->count < more) capacity *= 2;
    ids = mem_resize(l->ids, capacity, sizeof *ids);
    if (!ids) return FAIL(e, ERR_MEMORY, "out of memory for %zu tokens", capacity);
    l->ids = ids;
    l->capacity = capacity;
    return ERR_NONE;
}

err_t token_list_add(struct token_list *l, const int32_t *ids, size_t n, struct error *e)
{
    err_t rc = reserve(l, n, e);

    if (rc) return rc;
    if (n) memcpy(l->ids + l->count, ids, n * sizeof *ids);
    l->count += n;
    return ERR_NONE;
}

void token_list_release(struct token_list *l)
{
    mem_free(l->ids);
    *l = (struct token_list){0};
}

/* ---- making one ---- */

void byte_alphabet(uint16_t codes[256])
{
    uint16_t next = 0x100;

    for (int c = 0; c < 256; c++) {
        bool is_printable = (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || c >= 0xAE;

        codes[c] = is_printable ? (uint16_t)c : next++;
    }
}

err_t tokenizer_make(struct tokenizer **out, struct error *e)
{
    struct tokenizer *t = mem_zalloc(1, sizeof *t);

    *out = t;
    if (!t) return FAIL(e, ERR_MEMORY, "out of memory for a tokenizer");
    t->bos = t->eos = -1;
    return ERR_NONE;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t) return;
    bpe_release(&t->bpe);
    splitter_release(&t->splitter);
    arena_release(&t->arena);
    mem_free(t);
}

int tokenizer_find_added(const struct tokenizer *t, const char *text)
{
    for (int i = 0; i < t->n_added; i++)
        if (strcmp(t->added[i].text, text) == 0) return i;
    return -1;
}

static int32_t first_known(const struct tokenizer *t, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int at = tokenizer_find_added(t, names[i]);

        if (at >= 0) return t->added[at].id;
    }
    return -1;
}

void tokenizer_known_specials(const struct tokenizer *t, int32_t *bos, int32_t *eos)
{
    static const char *const bos_names[] = {
        TOKENIZER_BOS, "<｜begin▁of▁sentence｜>", "<|startoftext|>", "<|bos|>", "<bos>", "<s>"};
    static const char *const eos_names[] = {TOKENIZER_EOS, "<｜end▁of▁sentence｜>", "<|endoftext|>", "<|eos|>", "<eos>",
                                            "</s>"};

    *bos = first_known(t, bos_names, sizeof bos_names / sizeof *bos_names);
    *eos = first_known(t, eos_names, sizeof eos_names / sizeof *eos_names);
}

static int by_place(const void *pa, const void *pb)
{
    const struct added_token *a = pa, *b = pb;

    if (a->is_normalized != b->is_normalized) return a->is_normalized ? 1 : -1;
    if (a->text[0] != b->text[0]) return (unsigned char)a->text[0] < (unsigned char)b->text[0] ? -1 : 1;
    if (a->n != b->n) return a->n > b->n ? -1 : 1;
    return strcmp(a->text, b->text);
}

static uint64_t hash_int(uint64_t h, int64_t value) { return hash_fnv(h, &value, sizeof value); }

static uint64_t hash_all(const struct tokenizer *t)
{
    uint64_t h = hash_int(HASH_FNV_START, t->vocab_size);

    for (int32_t id = 0; id < t->bpe.n_tokens; id++) {
        h = hash_int(h, (int64_t)t->bpe.tokens[id].n << 1 | t->bpe.tokens[id].is_raw);
        h = hash_fnv(h, t->bpe.tokens[id].bytes ? t->bpe.tokens[id].bytes : "", t->bpe.tokens[id].n);
    }
    if (t->bpe.n_merges) h = hash_fnv(h, t->bpe.merges, (size_t)t->bpe.n_merges * sizeof *t->bpe.merges);
    h = hash_int(h, t->bpe.ignore_merges);
    for (int i = 0; i < t->splitter.n_levels; i++) h = hash_fnv_text(hash_int(h, i), t->splitter.levels[i].pattern);
    for (int i = 0; i < t->n_added; i++) {
        const struct added_token *a = &t->added[i];

        h = hash_fnv(hash_int(h, a->id), a->text, a->n);
        h = hash_int(h, a->is_special | a->is_normalized << 1 | a->strips_left << 2 | a->strips_right << 3);
    }
    return hash_int(hash_int(h, t->bos), t->eos);
}

err_t tokenizer_finish(struct tokenizer *t, struct error *e)
{
    t->vocab_size = t->bpe.n_tokens;
    for (int i = 0; i < t->n_added; i++)
        if (t->added[i].id >= t->vocab_size) t->vocab_size = t->added[i].id + 1;
    t->texts = arena_array(&t->arena, (size_t)t->vocab_size, sizeof *t->texts);
    if (!t->texts) return FAIL(e, ERR_MEMORY, "out of memory for %d tokens", t->vocab_size);
    if (t->bpe.n_tokens) memcpy(t->texts, t->bpe.tokens, (size_t)t->bpe.n_tokens * sizeof *t->texts);
    if (t->n_added) qsort(t->added, (size_t)t->n_added, sizeof *t->added, by_place);
    for (int i = 0, pass = 0, byte = 0; pass < ADDED_PASSES; i++) {
        int at =
            i < t->n_added ? t->added[i].is_normalized * 257 + (unsigned char)t->added[i].text[0] : ADDED_PASSES * 257;

        while (pass < ADDED_PASSES && pass * 257 + byte <= at) {
            t->first_added[pass][byte] = i;
            if (++byte == 257) byte = 0, pass++;
        }
    }
    for (int i = 0; i < t->n_added; i++) {
        const struct added_token *a = &t->added[i];

        t->texts[a->id] = (struct bpe_token){a->text, a->n, true};
        if (!a->is_special) t->has_plain_added = true;
    }
    t->hash = hash_all(t);
    return ERR_NONE;
}

int32_t tokenizer_vocab_size(const struct tokenizer *t) { return t->vocab_size; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
uint64_t tokenizer_hash(const struct tokenizer *t) { return t->hash; }

const char *tokenizer_text(const struct tokenizer *t, int32_t id, size_t *n)
{
    if (id < 0 || id >= t->vocab_size || !t->texts[id].bytes) return NULL;
    *n = t->texts[id].n;
    return t->texts[id].bytes;
}

err_t tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, struct str *out, struct error *e)
{
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        const char *text = tokenizer_text(t, ids[i], &bytes);

        if (!text)
            return FAIL(e, ERR_RANGE, "token %zu is %d, which this tokenizer of %d tokens does not have", i, ids[i],
                        t->vocab_size);
        str_add_bytes(out, text, bytes);
    }
    return str_ok(out, e);
}

/* ---- scratch and its cache ---- */

enum { CACHE_ENTRIES = 1 << 15, CACHE_PIECE_BYTES = 32, CACHE_IDS = 7 };

/* The words cover all bytes of the piece (overlapping), so that with n they say which piece it is. One cache line. */
struct cache_entry {
    uint64_t words[4];
    uint8_t n; /* bytes of the piece; 0: empty */
    uint8_t n_ids;
    int32_t ids[CACHE_IDS];
};

struct tokenizer_scratch {
    const struct tokenizer *tokenizer;
    struct split_state split;
    struct bpe_scratch bpe;
    struct cache_entry *cache;
};

err_t tokenizer_scratch_create(struct tokenizer_scratch **out, const struct tokenizer *t, struct error *e)
{
    struct tokenizer_scratch *s = mem_zalloc(1, sizeof *s);
    err_t rc;

    *out = NULL;
    if (!s) return FAIL(e, ERR_MEMORY, "out of memory for encoding");
    s->tokenizer = t;
    rc = split_state_init(&s->split, &t->splitter, e);
    s->cache = rc ? NULL : mem_aligned(64, CACHE_ENTRIES * sizeof *s->cache);
    if (!rc && !s->cache) rc = FAIL(e, ERR_MEMORY, "out of memory for the cache of pieces");
    if (rc) {
        tokenizer_scratch_destroy(s);
        return rc;
    }
    memset(s->cache, 0, CACHE_ENTRIES * sizeof *s->cache);
    *out = s;
    return ERR_NONE;
}

void tokenizer_scratch_destroy(struct tokenizer_scratch *s)
{
    if (!s) return;
    split_state_release(&s->split);
    bpe_scratch_release(&s->bpe);
    mem_free(s->cache);
    mem_free(s);
}

static uint64_t load8(const char *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof word);
    return word;
}

static void piece_words(const char *p, size_t n, uint64_t words[4])
{
    uint32_t first, last;

    words[1] = words[2] = words[3] = 0;
    if (n >= 8) {
        words[0] = load8(p);
        words[1] = load8(p + n - 8);
        if (n > 16) {
            words[2] = load8(p + 8);
            words[3] = load8(p + n - 16);
        }
    } else if (n >= 4) {
        memcpy(&first, p, 4);
        memcpy(&last, p + n - 4, 4);
        words[0] = (uint64_t)last << 32 | first;
    } else {
        words[0] = (uint64_t)(unsigned char)p[0] | (uint64_t)(unsigned char)p[n / 2] << 8 |
                   (uint64_t)(unsigned char)p[n - 1] << 16;
    }
}

/* ---- encoding ---- */

struct encoding {
    const struct tokenizer *t;
    struct tokenizer_scratch *s;
    bool parse_special;
    struct token_list *out;
    struct error *e;
};

static err_t encode_piece(void *arg, const char *piece, size_t n)
{
    struct encoding *x = arg;
    struct cache_entry *entry;
    uint64_t words[4], h;
    size_t before = x->out->count;
    err_t rc;

    if (n > CACHE_PIECE_BYTES) return bpe_encode(&x->t->bpe, &x->s->bpe, piece, n, x->out, x->e);
    piece_words(piece, n, words);
    h = (words[0] ^ n) * 0x9E3779B97F4A7C15u ^ words[1] * 0xC2B2AE3D27D4EB4Fu ^ words[2] * 0x165667B19E3779F9u ^
        words[3];
    entry = &x->s->cache[(h ^ h >> 32) * 0x9E3779B97F4A7C15u >> 49];
    if (entry->n == n && entry->words[0] == words[0] && entry->words[1] == words[1] && entry->words[2] == words[2] &&
        entry->words[3] == words[3]) {
        rc = reserve(x->out, CACHE_IDS, x->e);
        if (rc) return rc;
        for (int i = 0; i < CACHE_IDS; i++)
            x->out->ids[before + (size_t)i] = entry->ids[i]; /* all: cheaper than counting */
        x->out->count += entry->n_ids;
        return ERR_NONE;
    }
    rc = bpe_encode(&x->t->bpe, &x->s->bpe, piece, n, x->out, x->e);
    if (rc || x->out->count - before > CACHE_IDS) return rc;
    memcpy(entry->words, words, sizeof words);
    entry->n = (uint8_t)n;
    entry->n_ids = (uint8_t)(x->out->count - before);
    memcpy(entry->ids, x->out->ids + before, entry->n_ids * sizeof *entry->ids);
    return ERR_NONE;
}

/* Text without added tokens: a run that is not UTF-8 is one piece of bytes. */
static err_t encode_plain(struct encoding *x, const char *text, size_t n)
{
    err_t rc = ERR_NONE;

    if (x->t->splitter.n_levels == 0 && x->t->bpe.n_merges == 0)
        return bpe_encode(&x->t->bpe, &x->s->bpe, text, n, x->out, x->e);
    for (size_t at = 0, run; !rc && at < n; at += run) {
        run = utf8_valid_prefix(text + at, n - at);
        if (run) {
            rc = splitter_run(&x->t->splitter, &x->s->split, text + at, run, encode_piece, x, x->e);
        } else {
            run = utf8_invalid_prefix(text + at, n - at);
            rc = bpe_encode(&x->t->bpe, &x->s->bpe, text + at, run, x->out, x->e);
        }
    }
    return rc;
}

/* The longest added token of this pass at the first place from `at` on where there is one; NULL: no more. */
static const struct added_token *next_added(const struct tokenizer *t, int pass, const char *text, size_t n, size_t *at)
{
    const int *first = t->first_added[pass];

    for (; *at < n; (*at)++) {
        unsigned char c = (unsigned char)text[*at];

        for (int i = first[c]; i < first[c + 1]; i++)
            if (t->added[i].n <= n - *at && memcmp(t->added[i].text, text + *at, t->added[i].n) == 0)
                return &t->added[i];
    }
    return NULL;
}

static size_t spaces_before(const char *text, size_t end, size_t from)
{
    for (size_t k = 1, length; k <= 3 && end - from >= k;) {
        const char *p = text + end - k;

        if (utf8_valid_prefix(p, k) == k && utf8_is_space(utf8_code(p, &length)) && length == k) {
            end -= k;
            k = 1;
        } else {
            k++;
        }
    }
    return end;
}

static size_t spaces_after(const char *text, size_t at, size_t n)
{
    size_t length;

    while (at < n && utf8_valid_prefix(text + at, n - at < 4 ? n - at : 4) &&
           utf8_is_space(utf8_code(text + at, &length)))
        at += length;
    return at;
}

/* Takes the added tokens of a pass out; what lies between goes to the next pass. As the reference does it, a special
 * token that is not to be parsed still hides what overlaps it. */
static err_t encode_pass(struct encoding *x, int pass, const char *text, size_t n)
{
    const struct added_token *a;
    size_t done = 0, at = 0;
    err_t rc = ERR_NONE;

    if (pass == ADDED_PASSES) return encode_plain(x, text, n);
    if (!x->t->n_added || (!x->parse_special && !x->t->has_plain_added)) return encode_plain(x, text, n);
    while (!rc && (a = next_added(x->t, pass, text, n, &at))) {
        size_t begin = at, end = at + a->n;

        at = end;
        if (a->is_special && !x->parse_special) continue;
        if (a->strips_left && begin > done) begin = spaces_before(text, begin, done);
        if (a->strips_right) end = spaces_after(text, end, n);
        if (begin > done) rc = encode_pass(x, pass + 1, text + done, begin - done);
        if (!rc) rc = token_list_add(x->out, &a->id, 1, x->e);
        done = end;
    }
    if (!rc && done < n) rc = encode_pass(x, pass + 1, text + done, n - done);
    return rc;
}

err_t tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text, size_t n_bytes,
                       bool parse_special, struct token_list *out, struct error *e)
{
    struct encoding x = {t, s, parse_special, out, e};

    BUG_ON(s->tokenizer != t);
    return encode_pass(&x, 0, text, n_bytes);
}
