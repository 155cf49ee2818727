/* SPDX-License-Identifier: MIT */
/*
 * Byte-pair merging; see bpe.h. Rule: merge the pair of lowest rank, the leftmost of equals, until no pair has a rank.
 *
 * Short pieces (nearly all) rescan a small array per merge. Long ones use a heap of candidates over a linked list, so
 * that a megabyte without a space costs n log n. Candidates that an earlier merge has overtaken stay in the heap and
 * are dropped when met.
 */
#include "data/bpe.h"

#include <string.h>

#include "base/hash.h"

enum { SHORT_PIECE_BYTES = 64 };

struct bpe_symbol {
    int32_t id;             /* -1: merged into its left neighbour */
    int32_t previous, next; /* -1: none */
};
struct bpe_candidate {
    int32_t rank, at; /* ordered by these two */
    int32_t left, right, result;
};

/* ---- building ---- */

static err_t out_of_memory(struct error *e)
{
    return FAIL(e, ERR_MEMORY, "out of memory for the tokenizer's vocabulary");
}

err_t bpe_set_token(struct bpe *b, int32_t id, const char *bytes, size_t n, bool is_raw, struct error *e)
{
    char *copy;

    if (id < 0 || id >= TOKENIZER_MAX_VOCAB)
        return FAIL(e, ERR_FORMAT, "token id %d is outside [0, %d)", id, (int)TOKENIZER_MAX_VOCAB);
    if (n == 0 || n > INT32_MAX) return FAIL(e, ERR_FORMAT, "token %d has a text of %zu bytes", id, n);
    if (id >= b->token_capacity) {
        int32_t capacity = id < 512 ? 1024 : 2 * id;
        struct bpe_token *tokens = mem_resize(b->tokens, (size_t)capacity, sizeof *tokens);

        if (!tokens) return out_of_memory(e);
        memset(tokens + b->token_capacity, 0, (size_t)(capacity - b->token_capacity) * sizeof *tokens);
        b->tokens = tokens;
        b->token_capacity = capacity;
    }
    if (b->tokens[id].bytes) return FAIL(e, ERR_FORMAT, "two tokens have the id %d", id);
    copy = arena_strndup(&b->arena, bytes, n);
    if (!copy) return out_of_memory(e);
    b->tokens[id] = (struct bpe_token){copy, (uint32_t)n, is_raw};
    if (id >= b->n_tokens) b->n_tokens = id + 1;
    return ERR_NONE;
}

static size_t slots_for(size_t n)
{
    size_t slots = 16;

    while (slots < 2 * n) slots *= 2;
    return slots;
}

static uint64_t hash_text(const char *bytes, size_t n)
{
    uint64_t h = n * 0x9E3779B97F4A7C15u, word;

    for (; n >= 8; n -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        h = hash_mix(h ^ word);
    }
    word = 0;
    memcpy(&word, bytes, n);
    return hash_mix(h ^ word);
}

int32_t bpe_find(const struct bpe *b, const char *bytes, size_t n)
{
    if (!b->by_text) return -1;
    for (size_t i = hash_text(bytes, n) & b->text_mask; b->by_text[i] >= 0; i = (i + 1) & b->text_mask) {
        const struct bpe_token *t = &b->tokens[b->by_text[i]];

        if (t->n == n && memcmp(t->bytes, bytes, n) == 0) return b->by_text[i];
    }
    return -1;
}

static err_t make_pairs(struct bpe *b, size_t slots, struct error *e)
{
    mem_free(b->pairs);
    b->pairs = mem_alloc(slots * sizeof *b->pairs);
    if (!b->pairs) return out_of_memory(e);
    for (size_t i = 0; i < slots; i++) b->pairs[i] = (struct bpe_pair){.rank = -1};
    b->pair_mask = slots - 1;
    return ERR_NONE;
}

err_t bpe_index(struct bpe *b, int32_t n_merges_expected, struct error *e)
{
    size_t slots = slots_for((size_t)b->n_tokens + (size_t)n_merges_expected);

    b->by_text = mem_alloc(slots * sizeof *b->by_text);
    if (!b->by_text) return out_of_memory(e);
    memset(b->by_text, 0xFF, slots * sizeof *b->by_text);
    b->text_mask = slots - 1;
    for (int32_t id = 0; id < b->n_tokens; id++) {
        const struct bpe_token *t = &b->tokens[id];
        size_t i;

        if (!t->bytes || t->is_raw) continue;
        if (bpe_find(b, t->bytes, t->n) >= 0)
            return FAIL(e, ERR_FORMAT, "tokens %d and %d have the same text", bpe_find(b, t->bytes, t->n), id);
        for (i = hash_text(t->bytes, t->n) & b->text_mask; b->by_text[i] >= 0;) i = (i + 1) & b->text_mask;
        b->by_text[i] = id;
    }
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;

        b->byte_id[byte] = bpe_find(b, &c, 1);
    }
    return make_pairs(b, slots_for((size_t)n_merges_expected), e);
}

err_t bpe_append(struct bpe *b, const char *bytes, size_t n, struct error *e)
{
    int32_t id = b->n_tokens;
    err_t rc = bpe_set_token(b, id, bytes, n, false, e);
    size_t i = hash_text(bytes, n) & b->text_mask;

    if (rc) return rc;
    BUG_ON((size_t)id + 1 > b->text_mask); /* bpe_index made room */
    while (b->by_text[i] >= 0) i = (i + 1) & b->text_mask;
    b->by_text[i] = id;
    return ERR_NONE;
}

static uint64_t pair_key(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

/* The slot of a pair, or the empty one where it belongs. */
static struct bpe_pair *pair_slot(const struct bpe *b, uint64_t key)
{
    size_t i = hash_mix(key) & b->pair_mask;

    while (b->pairs[i].rank >= 0 && b->pairs[i].key != key) i = (i + 1) & b->pair_mask;
    return &b->pairs[i];
}

static err_t grow_pairs(struct bpe *b, struct error *e)
{
    err_t rc = make_pairs(b, 2 * (b->pair_mask + 1), e);

    for (int32_t rank = 0; !rc && rank < b->n_merges; rank++) {
        const struct bpe_merge *m = &b->merges[rank];
        uint64_t key = pair_key(m->left, m->right);

        *pair_slot(b, key) = (struct bpe_pair){key, rank, m->result};
    }
    return rc;
}

err_t bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t result, struct error *e)
{
    uint64_t key = pair_key(left, right);

    if (b->n_merges == b->merge_capacity) {
        int32_t capacity = b->merge_capacity ? 2 * b->merge_capacity : 1024;
        struct bpe_merge *merges;

        if (b->merge_capacity > INT32_MAX / 4) return FAIL(e, ERR_FORMAT, "more than %d merges", b->merge_capacity);
        merges = mem_resize(b->merges, (size_t)capacity, sizeof *merges);
        if (!merges) return out_of_memory(e);
        b->merges = merges;
        b->merge_capacity = capacity;
    }
    if ((size_t)b->n_merges * 2 > b->pair_mask) {
        err_t rc = grow_pairs(b, e);

        if (rc) return rc;
    }
    *pair_slot(b, key) = (struct bpe_pair){key, b->n_merges, result};
    b->merges[b->n_merges++] = (struct bpe_merge){left, right, result};
    return ERR_NONE;
}

void bpe_release(struct bpe *b)
{
    arena_release(&b->arena);
    mem_free(b->tokens);
    mem_free(b->merges);
    mem_free(b->pairs);
    mem_free(b->by_text);
    *b = (struct bpe){0};
}

/* ---- applying ---- */

static int32_t rank_of(const struct bpe *b, int32_t left, int32_t right, int32_t *result)
{
    const struct bpe_pair *pair = pair_slot(b, pair_key(left, right));

    if (pair->rank >= 0) *result = pair->result;
    return pair->rank >= 0 ? pair->rank : INT32_MAX;
}

static err_t first_ids(const struct bpe *b, const char *piece, size_t n, int32_t *ids, struct error *e)
{
    for (size_t i = 0; i < n; i++) {
        ids[i] = b->byte_id[(unsigned char)piece[i]];
        if (ids[i] < 0)
            return FAIL(e, ERR_FORMAT, "the tokenizer has no token for the byte 0x%02X, so it cannot encode this text",
                        (unsigned char)piece[i]);
    }
    return ERR_NONE;
}

static err_t encode_short(const struct bpe *b, const char *piece, size_t n, struct token_list *out, struct error *e)
{
    int32_t ids[SHORT_PIECE_BYTES], ranks[SHORT_PIECE_BYTES], results[SHORT_PIECE_BYTES];
    err_t rc = first_ids(b, piece, n, ids, e);
    size_t i;

    if (rc) return rc;
    for (i = 0; i + 1 < n; i++) ranks[i] = rank_of(b, ids[i], ids[i + 1], &results[i]);
    while (n > 1) {
        size_t best = 0;

        for (i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == INT32_MAX) break;
        ids[best] = results[best];
        n--;
        for (i = best + 1; i < n; i++) ids[i] = ids[i + 1];
        for (i = best; i + 1 < n; i++) {
            ranks[i] = ranks[i + 1];
            results[i] = results[i + 1];
        }
        if (best + 1 < n) ranks[best] = rank_of(b, ids[best], ids[best + 1], &results[best]);
        if (best > 0) ranks[best - 1] = rank_of(b, ids[best - 1], ids[best], &results[best - 1]);
    }
    return token_list_add(out, ids, n, e);
}

static bool before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static err_t heap_push(struct bpe_scratch *s, struct bpe_candidate c, struct error *e)
{
    size_t i = s->n_heap;

    if (i == s->heap_capacity) {
        size_t capacity = i ? 2 * i : 256;
        struct bpe_candidate *heap = mem_resize(s->heap, capacity, sizeof *heap);

        if (!heap) return FAIL(e, ERR_MEMORY, "out of memory for merging a long piece of text");
        s->heap = heap;
        s->heap_capacity = capacity;
    }
    for (s->n_heap++; i > 0 && before(&c, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = c;
    return ERR_NONE;
}

static struct bpe_candidate heap_pop(struct bpe_scratch *s)
{
    struct bpe_candidate top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < s->n_heap) {
        if (child + 1 < s->n_heap && before(&s->heap[child + 1], &s->heap[child])) child++;
        if (!before(&s->heap[child], &last)) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* Offers the pair that begins at symbol `at`, if it has a rank. */
static err_t offer(const struct bpe *b, struct bpe_scratch *s, int32_t at, struct error *e)
{
    struct bpe_candidate c = {.at = at};

    if (at < 0 || s->symbols[at].next < 0) return ERR_NONE;
    c.left = s->symbols[at].id;
    c.right = s->symbols[s->symbols[at].next].id;
    c.rank = rank_of(b, c.left, c.right, &c.result);
    return c.rank == INT32_MAX ? ERR_NONE : heap_push(s, c, e);
}

static err_t merge_all(const struct bpe *b, struct bpe_scratch *s, struct error *e)
{
    struct bpe_symbol *symbols = s->symbols;

    while (s->n_heap) {
        struct bpe_candidate c = heap_pop(s);
        struct bpe_symbol *left = &symbols[c.at], *right;
        err_t rc;

        if (left->id != c.left || left->next < 0 || symbols[left->next].id != c.right) continue;
        right = &symbols[left->next];
        left->id = c.result;
        right->id = -1;
        left->next = right->next;
        if (left->next >= 0) symbols[left->next].previous = c.at;
        rc = offer(b, s, left->previous, e);
        if (!rc) rc = offer(b, s, c.at, e);
        if (rc) return rc;
    }
    return ERR_NONE;
}

static err_t encode_long(const struct bpe *b, struct bpe_scratch *s, const char *piece, size_t n,
                         struct token_list *out, struct error *e)
{
    err_t rc = ERR_NONE;

    if (n > INT32_MAX / 2)
        return FAIL(e, ERR_RANGE, "a piece of text without a break has %zu bytes; the limit is 1 GiB", n);
    if (n > s->n_symbols) {
        struct bpe_symbol *symbols = mem_resize(s->symbols, n, sizeof *symbols);

        if (!symbols) return FAIL(e, ERR_MEMORY, "out of memory for merging a piece of %zu bytes", n);
        s->symbols = symbols;
        s->n_symbols = n;
    }
    for (size_t i = 0; !rc && i < n; i++) {
        s->symbols[i] = (struct bpe_symbol){.previous = (int32_t)i - 1, .next = i + 1 < n ? (int32_t)i + 1 : -1};
        rc = first_ids(b, piece + i, 1, &s->symbols[i].id, e);
    }
    s->n_heap = 0;
    for (size_t i = 0; !rc && i + 1 < n; i++) rc = offer(b, s, (int32_t)i, e);
    if (!rc) rc = merge_all(b, s, e);
    for (int32_t i = 0; !rc && i >= 0; i = s->symbols[i].next) rc = token_list_add(out, &s->symbols[i].id, 1, e);
    return rc;
}

/* Without merges every byte stands alone. */
static err_t encode_bytes(const struct bpe *b, const char *piece, size_t n, struct token_list *out, struct error *e)
{
    int32_t ids[1024];
    err_t rc = ERR_NONE;

    for (size_t done = 0, step; !rc && done < n; done += step) {
        step = n - done < 1024 ? n - done : 1024;
        rc = first_ids(b, piece + done, step, ids, e);
        if (!rc) rc = token_list_add(out, ids, step, e);
    }
    return rc;
}

err_t bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *piece, size_t n, struct token_list *out,
                 struct error *e)
{
    int32_t whole = b->ignore_merges ? bpe_find(b, piece, n) : -1;

    if (n == 0) return ERR_NONE;
    if (whole >= 0) return token_list_add(out, &whole, 1, e);
    if (b->n_merges == 0) return encode_bytes(b, piece, n, out, e);
    return n <= SHORT_PIECE_BYTES ? encode_short(b, piece, n, out, e) : encode_long(b, s, piece, n, out, e);
}

void bpe_scratch_release(struct bpe_scratch *s)
{
    mem_free(s->symbols);
    mem_free(s->heap);
    *s = (struct bpe_scratch){0};
}
