/* SPDX-License-Identifier: MIT */
/*
 * Cutting text into pieces before merging: a chain of regular expressions, each applied to the pieces of the one
 * before.
 *
 * Expressions are given in Oniguruma's notation, as tokenizer.json holds them. What matches is a piece, and so is each
 * stretch between matches, so the pieces in a row are the text. A struct splitter is fixed once built and shared by
 * threads; each thread brings a struct split_state.
 */
#ifndef DATA_SPLIT_H
#define DATA_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

#define SPLIT_LLAMA3                                                                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"           \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SPLIT_QWEN                                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"                \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SPLIT_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

enum { SPLIT_MAX_LEVELS = 8, SPLIT_MAX_PATTERN_BYTES = 1 << 16 };

/* Patterns that have a hand-written path for ASCII beside their regular expression. */
enum split_kind { SPLIT_KIND_OTHER, SPLIT_KIND_LLAMA3, SPLIT_KIND_QWEN, SPLIT_KIND_GPT2 };

struct split_level {
    char *pattern; /* as given; owned */
    void *code;    /* pcre2_code, owned */
    enum split_kind kind;
};
struct splitter {
    struct split_level levels[SPLIT_MAX_LEVELS];
    int n_levels; /* 0: the text is one piece */
};
struct split_state {
    void *match[SPLIT_MAX_LEVELS]; /* pcre2_match_data */
    void *context;                 /* pcre2_match_context */
    void *stack;                   /* pcre2_jit_stack */
    bool is_regex_only;            /* tests: leave the hand-written paths out */
};

/* A zeroed splitter has no levels. ERR_UNSUPPORTED: the expression uses something that PCRE2 and Oniguruma read
 * differently. */
err_t splitter_add(struct splitter *s, const char *pattern, struct error *e) MUST_CHECK;
void splitter_release(struct splitter *s);

err_t split_state_init(struct split_state *st, const struct splitter *s, struct error *e) MUST_CHECK;
void split_state_release(struct split_state *st);

/* Calls piece(arg, ...) for each piece in order; stops at its first failure. text must be valid UTF-8. */
typedef err_t (*split_piece)(void *arg, const char *piece, size_t n);
err_t splitter_run(const struct splitter *s, struct split_state *st, const char *text, size_t n, split_piece piece,
                   void *arg, struct error *e) MUST_CHECK;

/* PCRE2's form of an Oniguruma expression (no empty-match check), appended to out. */
err_t split_translate(const char *pattern, struct str *out, struct error *e) MUST_CHECK;

#endif
