/* SPDX-License-Identifier: MIT */
/*
 * Regular expressions from Oniguruma's notation to PCRE2's.
 *
 * The reference matches with Oniguruma (Ruby syntax). Most of what tokenizer files use means the same in both; \s,
 * \uXXXX and script names are rewritten, and whatever the two read differently is refused, so that a file never gives
 * silently different ids.
 */
#include "data/split.h"

#include <ctype.h>
#include <string.h>

/* White_Space (Unicode 14, PropList.txt), as members of a character class. */
#define WHITE_SPACE                                                                                                    \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

struct translation {
    const char *pattern; /* whole, for messages */
    const char *p;       /* next character */
    struct str *out;
    int depth;          /* open groups */
    int caseless_depth; /* depth of the outermost (?i: group, 0 = none */
    char last_literal;  /* the literal before, in a caseless group; 0 = none */
    struct error *e;
};

static err_t refuse(struct translation *t, const char *what)
{
    return FAIL(
        t->e, ERR_UNSUPPORTED,
        "the split expression \"%.200s\" uses %s at byte %zu, which is not supported (it may mean something else here)",
        t->pattern, what, (size_t)(t->p - t->pattern));
}

/* \p{Name} and \P{Name}: general categories keep their names, longer names are scripts (PCRE2's plain name means
 * extensions). */
static err_t property(struct translation *t)
{
    const char *name = t->p + 3, *end;

    if (t->caseless_depth) return refuse(t, "a property in a case-insensitive group");
    if (t->p[2] != '{' || !(end = strchr(name, '}'))) return refuse(t, "\\p without {name}");
    for (const char *c = name; c < end; c++)
        if (!isalpha((unsigned char)*c) && *c != '_') return refuse(t, "a property name that is not a plain word");
    if (end == name) return refuse(t, "an empty property name");
    str_addf(t->out, "\\%c{%s", t->p[1], end - name > 2 ? "sc:" : "");
    str_add_bytes(t->out, name, (size_t)(end - name) + 1);
    t->p = end + 1;
    return ERR_NONE;
}

static err_t escape(struct translation *t, bool in_class)
{
    char c = t->p[1];

    t->last_literal = 0;
    if (c == 'p' || c == 'P') return property(t);
    if (c == 's') {
        str_add(t->out, in_class ? WHITE_SPACE : "[" WHITE_SPACE "]");
    } else if (c == 'S' && !in_class) {
        str_add(t->out, "[^" WHITE_SPACE "]");
    } else if (c == 'u') {
        for (int i = 2; i < 6; i++)
            if (!isxdigit((unsigned char)t->p[i])) return refuse(t, "\\u without four hexadecimal digits");
        if (t->caseless_depth) return refuse(t, "\\u in a case-insensitive group");
        str_addf(t->out, "\\x{%.4s}", t->p + 2);
        t->p += 6;
        return ERR_NONE;
    } else if ((c && strchr("rntfdD", c)) || (c > 0 && ispunct((unsigned char)c))) {
        str_add_bytes(t->out, t->p, 2);
    } else {
        return refuse(t, "this escape");
    }
    t->p += 2;
    return ERR_NONE;
}

static err_t class(struct translation *t)
{
    if (t->caseless_depth) return refuse(t, "a character class in a case-insensitive group");
    str_add_char(t->out, *t->p++);
    if (*t->p == '^') str_add_char(t->out, *t->p++);
    if (*t->p == ']') return refuse(t, "a class that begins with ]");
    while (*t->p && *t->p != ']') {
        err_t rc;

        if (*t->p == '[') return refuse(t, "a class inside a class");
        if (t->p[0] == '&' && t->p[1] == '&') return refuse(t, "an intersection of classes (&&)");
        if (*t->p != '\\') {
            str_add_char(t->out, *t->p++);
            continue;
        }
        rc = escape(t, true);
        if (rc) return rc;
    }
    if (!*t->p) return refuse(t, "a class without its closing ]");
    str_add_char(t->out, *t->p++);
    return ERR_NONE;
}

static err_t group(struct translation *t)
{
    static const char *const heads[] = {"(?i:", "(?:", "(?!", "(?="};
    const char *head = NULL;

    if (t->p[1] != '?') {
        head = "(";
        str_add(t->out, "(?:"); /* nothing refers back to a group */
    }
    for (size_t i = 0; !head && i < sizeof heads / sizeof *heads; i++)
        if (str_starts(t->p, heads[i])) str_add(t->out, head = heads[i]);
    if (!head) return refuse(t, "this kind of group");
    t->depth++;
    if (head == heads[0] && !t->caseless_depth) t->caseless_depth = t->depth;
    t->p += strlen(head);
    t->last_literal = 0;
    return ERR_NONE;
}

/* Oniguruma folds some letters to two ("ss" matches U+00DF): such literals are refused where case is ignored. */
static err_t literal(struct translation *t)
{
    static const char *const folds[] = {"ss", "st", "ff", "fi", "fl"};
    unsigned char c = (unsigned char)*t->p;

    if (t->caseless_depth) {
        char two[3] = {t->last_literal, (char)tolower(c), 0};

        if (c >= 0x80) return refuse(t, "a letter that is not ASCII in a case-insensitive group");
        for (size_t i = 0; i < sizeof folds / sizeof *folds; i++)
            if (strcmp(two, folds[i]) == 0)
                return refuse(t, "letters that one character can stand for, ignoring case,");
        t->last_literal = (char)tolower(c);
    }
    str_add_char(t->out, *t->p++);
    return ERR_NONE;
}

static err_t one(struct translation *t)
{
    switch (*t->p) {
    case '\\': return escape(t, false);
    case '[': return class(t);
    case '(': return group(t);
    case ')':
        if (t->depth == 0) return refuse(t, "a ) without its (");
        if (t->caseless_depth == t->depth) t->caseless_depth = 0;
        t->depth--;
        break;
    case '^':
    case '$': return refuse(t, "an anchor");
    case '{':
        if (!isdigit((unsigned char)t->p[1])) return refuse(t, "a { that is not a count");
        break;
    case '}':
        if (t->p[1] == '+') return refuse(t, "{n,m}+");
        break;
    case '|':
    case '*':
    case '+':
    case '?':
    case '.': break;
    default: return literal(t);
    }
    t->last_literal = 0;
    str_add_char(t->out, *t->p++);
    return ERR_NONE;
}

err_t split_translate(const char *pattern, struct str *out, struct error *e)
{
    struct translation t = {.pattern = pattern, .p = pattern, .out = out, .e = e};

    if (strlen(pattern) > SPLIT_MAX_PATTERN_BYTES)
        return FAIL(e, ERR_UNSUPPORTED, "a split expression has %zu bytes; the limit is %d", strlen(pattern),
                    SPLIT_MAX_PATTERN_BYTES);
    while (*t.p) {
        err_t rc = one(&t);

        if (rc) return rc;
    }
    if (t.depth) return refuse(&t, "a ( without its )");
    return str_ok(out, e);
}
