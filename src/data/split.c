/* SPDX-License-Identifier: MIT */
/*
 * Cutting text into pieces; see split.h. PCRE2 with its JIT does the matching; for the three well-known patterns a
 * hand-written path takes pieces of plain ASCII, and hands over to the expression at the first byte it cannot judge.
 * Both give the same pieces: tests/data/test_split.c compares them.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/split.h"

#include <pcre2.h>
#include <string.h>

#include "base/mem.h"

/* ---- the hand-written paths ---- */

/* a newline is SPACE | NEWLINE */
enum byte_class { LETTER = 1, DIGIT = 2, SPACE = 4, NEWLINE = 8, OTHER = 16, BEYOND = 32 };

#define L LETTER
#define D DIGIT
#define O OTHER
#define S SPACE
#define N (SPACE | NEWLINE)
/* clang-format off */
static const unsigned char classes[256] = {
    O, O, O, O, O, O, O, O, O, S, N, S, S, N, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, /* 00-1F */
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, D, D, D, D, D, D, D, D, D, D, O, O, O, O, O, O, /* 20-3F */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, /* 40-5F */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, /* 60-7F */
    [128 ... 255] = BEYOND,
};
/* clang-format on */
#undef L
#undef D
#undef O
#undef S
#undef N

/* Text with its end; a place past the end has no class at all. */
struct view {
    const unsigned char *p;
    size_t n;
};
static unsigned class_at(const struct view *v, size_t i) { return i < v->n ? classes[v->p[i]] : 0; }

static size_t run_of(const struct view *v, size_t i, unsigned mask)
{
    while (class_at(v, i) & mask) i++;
    return i;
}

/* End of 's 't 're 've 'm 'll 'd at i (the apostrophe), 0 if none. `fold` 0x20 ignores case, 0 does not. */
static size_t contraction(const struct view *v, size_t i, unsigned fold)
{
    unsigned a, b;

    if (i + 1 >= v->n) return 0;
    a = v->p[i + 1] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    if (i + 2 >= v->n) return 0;
    b = v->p[i + 2] | fold;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
    return 0;
}

/* The end of the run at i of the given classes, or 0 if a byte beyond ASCII ends it. */
static size_t ascii_run(const struct view *v, size_t i, unsigned mask)
{
    i = run_of(v, i, mask);
    return class_at(v, i) == BEYOND ? 0 : i;
}

/* \s*[\r\n]+ (where `by_line`), \s+(?!\S), \s+ : text[i] is white. */
static size_t white(const struct view *v, size_t i, bool by_line)
{
    size_t end = ascii_run(v, i, SPACE), j = end;

    if (!end) return 0;
    while (by_line && j > i)
        if (class_at(v, --j) & NEWLINE) return j + 1;
    if (end == v->n || end == i + 1) return end;
    return end - 1;
}

/* End of the piece at i, or 0 where the expression must decide. */
static size_t llama3_piece(const struct view *v, size_t i, size_t max_digits)
{
    unsigned c = class_at(v, i), next = class_at(v, i + 1);
    size_t end;

    if (c == LETTER) return ascii_run(v, i + 1, LETTER);
    if (c == BEYOND || next == BEYOND) return 0;
    if (c == DIGIT) {
        for (end = i + 1; end < i + max_digits && class_at(v, end) == DIGIT; end++) {
        }
        return end < i + max_digits && class_at(v, end) == BEYOND ? 0 : end;
    }
    if (v->p[i] == '\'' && (end = contraction(v, i, 0x20))) return end;
    if (next == LETTER && !(c & NEWLINE)) return ascii_run(v, i + 2, LETTER);
    if (c == OTHER || (v->p[i] == ' ' && next == OTHER)) {
        end = ascii_run(v, i + 1, OTHER);
        return end ? run_of(v, end, NEWLINE) : 0;
    }
    return white(v, i, true);
}

static size_t gpt2_piece(const struct view *v, size_t i)
{
    size_t end, at = i;

    if (v->p[i] == '\'' && class_at(v, i + 1) != BEYOND && (end = contraction(v, i, 0))) return end;
    if (v->p[i] == ' ' && i + 1 < v->n && !(class_at(v, i + 1) & SPACE)) at++;
    switch (class_at(v, at)) {
    case LETTER: return ascii_run(v, at, LETTER);
    case DIGIT: return ascii_run(v, at, DIGIT);
    case OTHER: return ascii_run(v, at, OTHER);
    case BEYOND: return 0;
    default: return white(v, i, false);
    }
}

static size_t fast_piece(enum split_kind kind, const struct view *v, size_t i)
{
    switch (kind) {
    case SPLIT_KIND_LLAMA3: return llama3_piece(v, i, 3);
    case SPLIT_KIND_QWEN: return llama3_piece(v, i, 1);
    case SPLIT_KIND_GPT2: return gpt2_piece(v, i);
    case SPLIT_KIND_OTHER: break;
    }
    return 0;
}

/* ---- the chain ---- */

static enum split_kind kind_of(const char *pattern)
{
    if (strcmp(pattern, SPLIT_LLAMA3) == 0) return SPLIT_KIND_LLAMA3;
    if (strcmp(pattern, SPLIT_QWEN) == 0) return SPLIT_KIND_QWEN;
    if (strcmp(pattern, SPLIT_GPT2) == 0) return SPLIT_KIND_GPT2;
    return SPLIT_KIND_OTHER;
}

static err_t compile(const char *pattern, pcre2_code **out, struct error *e)
{
    struct str translated = {0};
    uint32_t matches_empty = 0;
    pcre2_code *code = NULL;
    PCRE2_SIZE at = 0;
    int status = 0;
    err_t rc = split_translate(pattern, &translated, e);

    if (rc) goto out;
    code = pcre2_compile((PCRE2_SPTR)translated.text, translated.length,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &status, &at, NULL);
    if (!code) {
        PCRE2_UCHAR reason[160];

        pcre2_get_error_message(status, reason, sizeof reason);
        rc = FAIL(e, ERR_FORMAT, "the split expression \"%.200s\" does not compile: %s", pattern, (char *)reason);
        goto out;
    }
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty) {
        rc = FAIL(e, ERR_UNSUPPORTED, "the split expression \"%.200s\" can match nothing at all", pattern);
        goto out;
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where it fails the interpreter does the work */
    *out = code;
    code = NULL;
out:
    pcre2_code_free(code);
    str_release(&translated);
    return rc;
}

err_t splitter_add(struct splitter *s, const char *pattern, struct error *e)
{
    struct split_level level = {0};
    pcre2_code *code = NULL;
    err_t rc;

    if (s->n_levels == SPLIT_MAX_LEVELS)
        return FAIL(e, ERR_UNSUPPORTED, "more than %d split expressions in a row", SPLIT_MAX_LEVELS);
    rc = compile(pattern ? pattern : "", &code, e);
    if (rc) return rc;
    level.pattern = mem_strdup(pattern);
    level.code = code;
    level.kind = kind_of(pattern);
    if (!level.pattern) {
        pcre2_code_free(code);
        return FAIL(e, ERR_MEMORY, "out of memory for a split expression");
    }
    s->levels[s->n_levels++] = level;
    return ERR_NONE;
}

void splitter_release(struct splitter *s)
{
    for (int i = 0; i < s->n_levels; i++) {
        mem_free(s->levels[i].pattern);
        pcre2_code_free(s->levels[i].code);
    }
    *s = (struct splitter){0};
}

err_t split_state_init(struct split_state *st, const struct splitter *s, struct error *e)
{
    enum { STACK_FIRST_BYTES = 32 << 10, STACK_MOST_BYTES = 4 << 20 };

    *st = (struct split_state){0};
    if (!s->n_levels) return ERR_NONE;
    st->context = pcre2_match_context_create(NULL);
    st->stack = pcre2_jit_stack_create(STACK_FIRST_BYTES, STACK_MOST_BYTES, NULL);
    if (!st->context) goto failed; /* without a JIT there is no stack: fine */
    if (st->stack) pcre2_jit_stack_assign(st->context, NULL, st->stack);
    for (int i = 0; i < s->n_levels; i++)
        if (!(st->match[i] = pcre2_match_data_create(1, NULL))) goto failed;
    return ERR_NONE;
failed:
    split_state_release(st);
    return FAIL(e, ERR_MEMORY, "out of memory for matching split expressions");
}

void split_state_release(struct split_state *st)
{
    for (int i = 0; i < SPLIT_MAX_LEVELS; i++) pcre2_match_data_free(st->match[i]);
    pcre2_jit_stack_free(st->stack);
    pcre2_match_context_free(st->context);
    *st = (struct split_state){0};
}

struct chain {
    const struct splitter *s;
    struct split_state *st;
    split_piece piece;
    void *arg;
    struct error *e;
};

static err_t run_level(struct chain *c, int level, const char *text, size_t n);

static err_t pass_on(struct chain *c, int level, const char *text, size_t n)
{
    return level + 1 < c->s->n_levels ? run_level(c, level + 1, text, n) : c->piece(c->arg, text, n);
}

/* The next match from `at` on; none: both ends are n. */
static err_t next_match(struct chain *c, int level, const char *text, size_t n, size_t at, size_t *begin, size_t *end)
{
    int status = pcre2_match(c->s->levels[level].code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, c->st->match[level],
                             c->st->context);
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(c->st->match[level]);
    PCRE2_UCHAR reason[160];

    if (status == PCRE2_ERROR_NOMATCH) {
        *begin = *end = n;
        return ERR_NONE;
    }
    if (status >= 0) {
        *begin = ends[0];
        *end = ends[1];
        return ERR_NONE;
    }
    pcre2_get_error_message(status, reason, sizeof reason);
    return FAIL(c->e, ERR_RANGE, "the split expression \"%.200s\" gave up on a text of %zu bytes at byte %zu: %s",
                c->s->levels[level].pattern, n, at, (char *)reason);
}

static err_t run_level(struct chain *c, int level, const char *text, size_t n)
{
    enum split_kind kind = c->st->is_regex_only ? SPLIT_KIND_OTHER : c->s->levels[level].kind;
    struct view v = {(const unsigned char *)text, n};
    size_t at = 0;
    err_t rc = ERR_NONE;

    while (at < n && !rc) {
        size_t begin = at, end = fast_piece(kind, &v, at);

        if (!end) rc = next_match(c, level, text, n, at, &begin, &end);
        if (!rc && begin > at) rc = pass_on(c, level, text + at, begin - at);
        if (!rc && end > begin) rc = pass_on(c, level, text + begin, end - begin);
        at = end;
    }
    return rc;
}

err_t splitter_run(const struct splitter *s, struct split_state *st, const char *text, size_t n, split_piece piece,
                   void *arg, struct error *e)
{
    struct chain c = {s, st, piece, arg, e};

    if (n == 0) return ERR_NONE;
    return s->n_levels ? run_level(&c, 0, text, n) : piece(arg, text, n);
}
