/* SPDX-License-Identifier: MIT */
/*
 * Learning merges from text; see tokenizer_train in tokenizer.h.
 *
 * Equal pieces are kept once with a count. Every pair knows how often it stands in all of them and in which; a heap
 * holds pairs by count. After a merge only the words that contain the pair change, and only the counts of its
 * neighbours. Entries of the heap go stale when a count falls: they are put back with the count of now when they come
 * up.
 */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/bpe.h"
#include "data/tokenizer_parts.h"

enum { MIN_PAIR_COUNT = 2, WORDS_PER_REPORT = 1000 };

struct word {
    int32_t *symbols; /* in the arena; the bytes' ids at first */
    size_t n;
    uint64_t hash; /* of the bytes */
    int64_t count;
};
struct pair {
    uint64_t key;                       /* left << 32 | right */
    int64_t count;                      /* occurrences in all text */
    int32_t result;                     /* the token it was merged into, -1: not yet */
    bool is_new;                        /* its count rose in the merge now under way */
    uint32_t *words, n_words, capacity; /* where it was seen (may no longer be there) */
};
struct heap_entry {
    int64_t count;
    uint64_t key;
};

struct trainer {
    struct arena arena;
    struct word *words;
    uint32_t *word_slots; /* index into words + 1, 0: empty */
    size_t n_words, word_capacity, word_mask;
    struct pair *pairs;
    uint32_t *pair_slots; /* index into pairs + 1, 0: empty */
    size_t n_pairs, pair_capacity, pair_mask;
    struct heap_entry *heap;
    size_t n_heap, heap_capacity;
    uint32_t *risen; /* pairs with is_new */
    size_t n_risen, risen_capacity;
    struct tokenizer *t;
    const struct tokenizer_spec *spec;
    struct error *e;
};

static err_t out_of_memory(struct trainer *x)
{
    return FAIL(x->e, ERR_MEMORY, "out of memory for training a tokenizer");
}

/* An array with room for one more element: itself, or grown (NULL: out of memory, the old one stays). */
static void *with_room(void *array, size_t n, size_t *capacity, size_t size)
{
    size_t more = *capacity ? 2 * *capacity : 1024;
    void *grown;

    if (n < *capacity) return array;
    grown = mem_resize(array, more, size);
    if (grown) *capacity = more;
    return grown;
}

/* ---- counting pieces ---- */

static bool rehash_words(struct trainer *x, size_t slots)
{
    mem_free(x->word_slots);
    x->word_slots = mem_zalloc(slots, sizeof *x->word_slots);
    if (!x->word_slots) return false;
    x->word_mask = slots - 1;
    for (size_t w = 0; w < x->n_words; w++) {
        size_t i = x->words[w].hash & x->word_mask;

        while (x->word_slots[i]) i = (i + 1) & x->word_mask;
        x->word_slots[i] = (uint32_t)w + 1;
    }
    return true;
}

static bool is_word(const struct trainer *x, const struct word *w, uint64_t hash, const char *piece, size_t n)
{
    if (w->hash != hash || w->n != n) return false;
    for (size_t i = 0; i < n; i++)
        if (w->symbols[i] != x->t->bpe.byte_id[(unsigned char)piece[i]]) return false;
    return true;
}

static err_t count_piece(void *arg, const char *piece, size_t n)
{
    struct trainer *x = arg;
    uint64_t hash = hash_mix(hash_fnv(HASH_FNV_START, piece, n));
    struct word *w;
    size_t i;

    if (n < 2) return ERR_NONE;
    for (i = hash & x->word_mask; x->word_slots[i]; i = (i + 1) & x->word_mask) {
        w = &x->words[x->word_slots[i] - 1];
        if (is_word(x, w, hash, piece, n)) {
            w->count++;
            return ERR_NONE;
        }
    }
    if (x->n_words >= UINT32_MAX - 1)
        return FAIL(x->e, ERR_RANGE, "the text has more than %zu different words", x->n_words);
    w = with_room(x->words, x->n_words, &x->word_capacity, sizeof *w);
    if (!w) return out_of_memory(x);
    x->words = w;
    w += x->n_words;
    *w = (struct word){.symbols = arena_array(&x->arena, n, sizeof *w->symbols), .n = n, .hash = hash, .count = 1};
    if (!w->symbols) return out_of_memory(x);
    for (size_t k = 0; k < n; k++) w->symbols[k] = x->t->bpe.byte_id[(unsigned char)piece[k]];
    x->word_slots[i] = (uint32_t)++x->n_words;
    if (2 * x->n_words > x->word_mask && !rehash_words(x, 2 * (x->word_mask + 1))) return out_of_memory(x);
    return ERR_NONE;
}

static err_t tell(const struct trainer *x)
{
    return data_tell(x->spec->report, x->spec->report_arg, "learning the tokenizer", 0, 0, x->e);
}

static err_t count_documents(struct trainer *x, const struct tokenizer_document *documents, size_t n)
{
    struct split_state state;
    err_t rc = split_state_init(&state, &x->t->splitter, x->e);

    if (rc) return rc;
    for (size_t d = 0; !rc && d < n; d++) {
        const char *text = documents[d].bytes;

        rc = tell(x);
        for (size_t at = 0, run; !rc && at < documents[d].n; at += run) {
            run = utf8_valid_prefix(text + at, documents[d].n - at);
            if (run)
                rc = splitter_run(&x->t->splitter, &state, text + at, run, count_piece, x, x->e);
            else
                run = utf8_invalid_prefix(text + at, documents[d].n - at);
        }
    }
    split_state_release(&state);
    return rc;
}

/* ---- pairs ---- */

static uint64_t pair_key(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

static size_t pair_slot(const struct trainer *x, uint64_t key)
{
    size_t i = hash_mix(key) & x->pair_mask;

    while (x->pair_slots[i] && x->pairs[x->pair_slots[i] - 1].key != key) i = (i + 1) & x->pair_mask;
    return i;
}

static bool rehash_pairs(struct trainer *x, size_t slots)
{
    mem_free(x->pair_slots);
    x->pair_slots = mem_zalloc(slots, sizeof *x->pair_slots);
    if (!x->pair_slots) return false;
    x->pair_mask = slots - 1;
    for (size_t p = 0; p < x->n_pairs; p++) x->pair_slots[pair_slot(x, x->pairs[p].key)] = (uint32_t)p + 1;
    return true;
}

/* The pair, made if it is new; NULL: out of memory. */
static struct pair *pair_of(struct trainer *x, uint64_t key)
{
    size_t i = pair_slot(x, key);
    struct pair *pairs;

    if (x->pair_slots[i]) return &x->pairs[x->pair_slots[i] - 1];
    if (x->n_pairs >= UINT32_MAX - 1) return NULL;
    pairs = with_room(x->pairs, x->n_pairs, &x->pair_capacity, sizeof *pairs);
    if (!pairs) return NULL;
    x->pairs = pairs;
    x->pairs[x->n_pairs] = (struct pair){.key = key, .result = -1};
    x->pair_slots[i] = (uint32_t)++x->n_pairs;
    if (2 * x->n_pairs > x->pair_mask && !rehash_pairs(x, 2 * (x->pair_mask + 1))) return NULL;
    return &x->pairs[x->n_pairs - 1];
}

static err_t raise_pair(struct trainer *x, int32_t left, int32_t right, size_t word)
{
    struct pair *p = pair_of(x, pair_key(left, right));
    size_t capacity;

    if (!p) return out_of_memory(x);
    p->count += x->words[word].count;
    if (!p->is_new) {
        uint32_t *risen = with_room(x->risen, x->n_risen, &x->risen_capacity, sizeof *risen);

        if (!risen) return out_of_memory(x);
        x->risen = risen;
        x->risen[x->n_risen++] = (uint32_t)(p - x->pairs);
        p->is_new = true;
    }
    if (p->n_words && p->words[p->n_words - 1] == word) return ERR_NONE;
    if (p->n_words == p->capacity) {
        uint32_t *words;

        capacity = p->capacity ? 2 * (size_t)p->capacity : 4;
        words = capacity > UINT32_MAX ? NULL : mem_resize(p->words, capacity, sizeof *words);
        if (!words) return out_of_memory(x);
        p->words = words;
        p->capacity = (uint32_t)capacity;
    }
    p->words[p->n_words++] = (uint32_t)word;
    return ERR_NONE;
}

static void lower_pair(struct trainer *x, int32_t left, int32_t right, size_t word)
{
    size_t i = pair_slot(x, pair_key(left, right));

    if (x->pair_slots[i]) x->pairs[x->pair_slots[i] - 1].count -= x->words[word].count;
}

/* ---- the heap: most frequent first, then lowest ids ---- */

static bool before(const struct heap_entry *a, const struct heap_entry *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static err_t heap_push(struct trainer *x, struct heap_entry entry)
{
    struct heap_entry *heap = with_room(x->heap, x->n_heap, &x->heap_capacity, sizeof *heap);
    size_t i = x->n_heap;

    if (!heap) return out_of_memory(x);
    x->heap = heap;
    for (x->n_heap++; i > 0 && before(&entry, &x->heap[(i - 1) / 2]); i = (i - 1) / 2)
        x->heap[i] = x->heap[(i - 1) / 2];
    x->heap[i] = entry;
    return ERR_NONE;
}

static struct heap_entry heap_pop(struct trainer *x)
{
    struct heap_entry top = x->heap[0], last = x->heap[--x->n_heap];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < x->n_heap) {
        if (child + 1 < x->n_heap && before(&x->heap[child + 1], &x->heap[child])) child++;
        if (!before(&x->heap[child], &last)) break;
        x->heap[i] = x->heap[child];
        i = child;
    }
    x->heap[i] = last;
    return top;
}

/* Pairs whose counts rose go onto the heap. */
static err_t push_risen(struct trainer *x)
{
    err_t rc = ERR_NONE;

    for (size_t i = 0; !rc && i < x->n_risen; i++) {
        struct pair *p = &x->pairs[x->risen[i]];

        p->is_new = false;
        if (p->count >= MIN_PAIR_COUNT) rc = heap_push(x, (struct heap_entry){p->count, p->key});
    }
    x->n_risen = 0;
    return rc;
}

/* ---- merging ---- */

static err_t merge_in_word(struct trainer *x, size_t word, int32_t a, int32_t b, int32_t merged)
{
    struct word *w = &x->words[word];
    size_t n = 0;
    err_t rc = ERR_NONE;

    for (size_t i = 0; i < w->n; i++) {
        if (i + 1 == w->n || w->symbols[i] != a || w->symbols[i + 1] != b) {
            w->symbols[n++] = w->symbols[i];
            continue;
        }
        if (n) {
            lower_pair(x, w->symbols[n - 1], a, word);
            rc = rc ? rc : raise_pair(x, w->symbols[n - 1], merged, word);
        }
        if (i + 2 < w->n) {
            lower_pair(x, b, w->symbols[i + 2], word);
            rc = rc ? rc : raise_pair(x, merged, w->symbols[i + 2], word);
        }
        w->symbols[n++] = merged;
        i++;
    }
    w->n = n;
    return rc;
}

/* The token for the two texts in a row: a new id, unless another pair has made the same text before. */
static err_t token_for(struct trainer *x, int32_t a, int32_t b, struct str *text, int32_t *id)
{
    struct bpe *bpe = &x->t->bpe;
    err_t rc;

    str_clear(text);
    str_add_bytes(text, bpe->tokens[a].bytes, bpe->tokens[a].n);
    str_add_bytes(text, bpe->tokens[b].bytes, bpe->tokens[b].n);
    rc = str_ok(text, x->e);
    if (rc) return rc;
    *id = bpe_find(bpe, text->text, text->length);
    if (*id >= 0) return ERR_NONE;
    *id = bpe->n_tokens;
    return bpe_append(bpe, text->text, text->length, x->e);
}

static err_t merge_pair(struct trainer *x, struct pair *p, struct str *text)
{
    int32_t a = (int32_t)(p->key >> 32), b = (int32_t)(uint32_t)p->key, merged = p->result;
    size_t index = (size_t)(p - x->pairs);
    uint32_t *words = p->words, n_words = p->n_words;
    err_t rc = ERR_NONE;

    if (merged < 0) {
        rc = token_for(x, a, b, text, &merged);
        if (!rc) rc = bpe_add_merge(&x->t->bpe, a, b, merged, x->e);
    }
    p->result = merged;
    p->words = NULL;
    p->n_words = p->capacity = 0;
    for (uint32_t i = 0; !rc && i < n_words; i++) rc = merge_in_word(x, words[i], a, b, merged);
    mem_free(words);
    x->pairs[index].count = 0; /* p may have moved */
    return rc ? rc : push_risen(x);
}

static err_t learn(struct trainer *x, int32_t n_tokens)
{
    struct str text = {0};
    err_t rc = ERR_NONE;

    for (size_t w = 0; !rc && w < x->n_words; w++) {
        if (w % WORDS_PER_REPORT == 0) rc = tell(x);
        for (size_t i = 0; !rc && i + 1 < x->words[w].n; i++)
            rc = raise_pair(x, x->words[w].symbols[i], x->words[w].symbols[i + 1], w);
    }
    if (!rc) rc = push_risen(x);
    while (!rc && x->t->bpe.n_tokens < n_tokens && x->n_heap) {
        struct heap_entry top = heap_pop(x);
        struct pair *p = pair_of(x, top.key);

        if (p->count == top.count) {
            rc = tell(x);
            if (!rc) rc = merge_pair(x, p, &text);
        } else if (p->count >= MIN_PAIR_COUNT) {
            rc = heap_push(x, (struct heap_entry){p->count, p->key});
        }
    }
    str_release(&text);
    return rc;
}

/* ---- the whole ---- */

/* The 256 bytes in the order of their code points in the byte alphabet, as the reference's trainer numbers them. */
static err_t start_vocabulary(struct tokenizer *t, int32_t n_tokens, struct error *e)
{
    uint16_t codes[256];
    err_t rc = ERR_NONE;
    int32_t id = 0;

    byte_alphabet(codes);
    for (unsigned code = 0; !rc && code < BYTE_ALPHABET_END; code++)
        for (int byte = 0; !rc && byte < 256; byte++) {
            char c = (char)byte;

            if (codes[byte] == code) rc = bpe_set_token(&t->bpe, id++, &c, 1, false, e);
        }
    return rc ? rc : bpe_index(&t->bpe, n_tokens - 256, e);
}

static err_t add_specials(struct tokenizer *t, const char *const names[2], struct error *e)
{
    int32_t ids[2] = {-1, -1};

    t->added = arena_array(&t->arena, 2, sizeof *t->added);
    if (!t->added) return FAIL(e, ERR_MEMORY, "out of memory for special tokens");
    for (int i = 0; i < 2; i++) {
        char *text = *names[i] ? arena_strdup(&t->arena, names[i]) : NULL;

        if (!*names[i]) continue;
        if (!text) return FAIL(e, ERR_MEMORY, "out of memory for special tokens");
        ids[i] = i == 1 && strcmp(names[0], names[1]) == 0 ? ids[0] : t->bpe.n_tokens + t->n_added;
        if (ids[i] == t->bpe.n_tokens + t->n_added)
            t->added[t->n_added++] =
                (struct added_token){.text = text, .n = (uint32_t)strlen(text), .id = ids[i], .is_special = true};
    }
    t->bos = ids[0];
    t->eos = ids[1];
    return ERR_NONE;
}

static err_t pattern_named(const char *name, const char **out, struct error *e)
{
    static const struct {
        const char *name, *pattern;
    } known[] = {{"llama3", SPLIT_LLAMA3}, {"qwen", SPLIT_QWEN}, {"gpt2", SPLIT_GPT2}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name ? name : "llama3", known[i].name) == 0) {
            *out = known[i].pattern;
            return ERR_NONE;
        }
    return FAIL(e, ERR_USAGE, "unknown pattern \"%.40s\": it is llama3, gpt2 or qwen", name);
}

static void trainer_release(struct trainer *x)
{
    for (size_t i = 0; i < x->n_pairs; i++) mem_free(x->pairs[i].words);
    mem_free(x->pairs);
    mem_free(x->pair_slots);
    mem_free(x->words);
    mem_free(x->word_slots);
    mem_free(x->heap);
    mem_free(x->risen);
    arena_release(&x->arena);
}

err_t tokenizer_train(struct tokenizer **out, const struct tokenizer_spec *spec,
                      const struct tokenizer_document *documents, size_t n, struct error *e)
{
    const char *names[2] = {spec->bos ? spec->bos : TOKENIZER_BOS, spec->eos ? spec->eos : TOKENIZER_EOS};
    int32_t n_special = (*names[0] != 0) + (*names[1] != 0 && strcmp(names[0], names[1]) != 0);
    struct trainer x = {.spec = spec, .e = e};
    const char *pattern = NULL;
    err_t rc = pattern_named(spec->pattern, &pattern, e);

    *out = NULL;
    if (rc) return rc;
    if (spec->vocab_size < 256 + n_special || spec->vocab_size > TOKENIZER_MAX_VOCAB)
        return FAIL(
            e, ERR_RANGE,
            "a vocabulary of %d tokens: it must have room for 256 bytes and %d special tokens (%d), and at most %d",
            spec->vocab_size, n_special, 256 + n_special, (int)TOKENIZER_MAX_VOCAB);
    rc = tokenizer_make(&x.t, e);
    if (!rc) rc = splitter_add(&x.t->splitter, pattern, e);
    if (!rc) rc = start_vocabulary(x.t, spec->vocab_size - n_special, e);
    if (!rc && !(rehash_words(&x, 1 << 12) && rehash_pairs(&x, 1 << 12))) rc = out_of_memory(&x);
    if (!rc) rc = count_documents(&x, documents, n);
    if (!rc) rc = learn(&x, spec->vocab_size - n_special);
    if (!rc && x.t->bpe.n_tokens < spec->vocab_size - n_special)
        rc = FAIL(e, ERR_RANGE,
                  "the text gives a vocabulary of %d tokens, not %d: ask for %d or fewer, or give more text",
                  x.t->bpe.n_tokens + n_special, spec->vocab_size, x.t->bpe.n_tokens + n_special);
    if (!rc) rc = add_specials(x.t, names, e);
    if (!rc) rc = tokenizer_finish(x.t, e);
    trainer_release(&x);
    if (rc)
        tokenizer_close(x.t);
    else
        *out = x.t;
    return rc;
}
