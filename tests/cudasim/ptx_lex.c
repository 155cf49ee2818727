/* SPDX-License-Identifier: MIT */
/* Words out of PTX text. A word is a run of letters, digits and _ $ % . with "::" in it; "-" before a digit is its. */
#include "ptx.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 4096 };

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '%' || c == '.';
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

void ptx_lex_start(struct ptx_lexer *l, struct ptx_word text, const char *whose)
{
    *l = (struct ptx_lexer){.at = text.at, .end = text.at + text.n, .whose = whose};
    ptx_lex_next(l);
}

/* Over spaces and comments. */
static void skip(struct ptx_lexer *l)
{
    while (l->at < l->end) {
        char c = *l->at;
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
            l->at++;
        else if (c == '/' && l->end - l->at > 1 && l->at[1] == '/')
            while (l->at < l->end && *l->at != '\n') l->at++;
        else if (c == '/' && l->end - l->at > 1 && l->at[1] == '*') {
            const char *end = memmem(l->at + 2, (size_t)(l->end - l->at - 2), "*/", 2);
            l->at = end ? end + 2 : l->end;
        } else
            break;
    }
}

void ptx_lex_next(struct ptx_lexer *l)
{
    skip(l);
    const char *start = l->at;
    l->word = (struct ptx_word){start, 0};
    if (l->at == l->end) {
        l->token = PTX_END;
        return;
    }
    bool is_negative = *start == '-' && l->end - start > 1 && is_digit(start[1]);
    if (is_word(*start) || is_negative) {
        l->at++;
        while (l->at < l->end) {
            if (is_word(*l->at))
                l->at++;
            else if (*l->at == ':' && l->end - l->at > 2 && l->at[1] == ':' && is_word(l->at[2]))
                l->at += 2;
            else
                break;
        }
        l->token = PTX_WORD;
        if (l->at - start > LONGEST) {
            l->word.n = 40;
            ptx_lex_refuse(l, "a word is too long");
        }
    } else if (*start == '"') {
        const char *end = memchr(start + 1, '"', (size_t)(l->end - start - 1));
        if (!end) ptx_lex_refuse(l, "a text without its end");
        l->at = end + 1;
        l->token = PTX_TEXT;
        l->word = (struct ptx_word){start + 1, (uint32_t)(end - start - 1)};
        return;
    } else {
        l->at++;
        l->token = PTX_MARK;
    }
    l->word.n = (uint32_t)(l->at - start);
}

bool ptx_lex_is(const struct ptx_lexer *l, char mark) { return l->token == PTX_MARK && *l->word.at == mark; }

bool ptx_lex_take(struct ptx_lexer *l, char mark)
{
    if (!ptx_lex_is(l, mark)) return false;
    ptx_lex_next(l);
    return true;
}

void ptx_lex_refuse(const struct ptx_lexer *l, const char *what)
{
    const char *line = l->word.at;
    int n = 0;
    while (n < 80 && line + n < l->end && line[n] != '\n') n++;
    sim_die("PTX of %s: %s, at: %.*s", l->whose, what, n, line);
}

void ptx_lex_expect(struct ptx_lexer *l, char mark)
{
    char what[] = "'?' is expected";
    what[1] = mark;
    if (!ptx_lex_take(l, mark)) ptx_lex_refuse(l, what);
}

struct ptx_word ptx_lex_word(struct ptx_lexer *l)
{
    struct ptx_word w = l->word;
    if (l->token != PTX_WORD) ptx_lex_refuse(l, "a word is expected");
    ptx_lex_next(l);
    return w;
}

uint64_t ptx_lex_number(struct ptx_lexer *l, uint64_t most)
{
    uint64_t value;
    if (l->token != PTX_WORD || !ptx_word_number(l->word, &value) || value > most)
        ptx_lex_refuse(l, "a number is expected, not too large");
    ptx_lex_next(l);
    return value;
}

void ptx_lex_skip_line(struct ptx_lexer *l)
{
    /* the present token may be the last of its line already: go on from its start */
    const char *at = l->word.at;
    while (at < l->end && *at != '\n') at++;
    l->at = at;
    ptx_lex_next(l);
}

void ptx_lex_skip_block(struct ptx_lexer *l)
{
    int depth = 0;
    do {
        if (ptx_lex_is(l, '{')) depth++;
        if (ptx_lex_is(l, '}')) depth--;
        if (l->token == PTX_END) ptx_lex_refuse(l, "a block without its end");
        ptx_lex_next(l);
    } while (depth > 0);
}

bool ptx_word_is(struct ptx_word w, const char *text) { return strlen(text) == w.n && !memcmp(w.at, text, w.n); }

bool ptx_word_same(struct ptx_word a, struct ptx_word b) { return a.n == b.n && !memcmp(a.at, b.at, a.n); }

bool ptx_word_number(struct ptx_word w, uint64_t *value)
{
    char text[32];
    if (!w.n || w.n >= sizeof text || !(is_digit(*w.at) || *w.at == '-')) return false;
    memcpy(text, w.at, w.n);
    text[w.n] = 0;
    if (text[w.n - 1] == 'U') text[w.n - 1] = 0;
    char *end;
    *value = *text == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
    return end != text && !*end;
}
