/* SPDX-License-Identifier: MIT */
/* What a struct tokenizer is made of; shared by the files that make, use and write one, and by nothing else. */
#ifndef DATA_TOKENIZER_PARTS_H
#define DATA_TOKENIZER_PARTS_H

#include "data/bpe.h"
#include "data/split.h"
#include "data/tokenizer.h"

/* A text that is found before anything else is done with the text around it. */
struct added_token {
    const char *text; /* in the tokenizer's arena */
    uint32_t n;
    int32_t id;
    bool is_special;
    bool is_normalized; /* found in a second pass, after the others */
    bool strips_left;   /* takes the white space before (after) it along */
    bool strips_right;
};

enum { ADDED_PASSES = 2 };

struct tokenizer {
    struct bpe bpe;
    struct splitter splitter;
    struct arena arena;
    struct added_token *added; /* sorted by pass, first byte, longest first; in the arena */
    int n_added;
    int first_added[ADDED_PASSES][257]; /* [pass][byte]: where the tokens that begin with byte start */
    bool has_plain_added;               /* some added token is not special */
    struct bpe_token *texts;            /* [vocab_size], in the arena: what each id decodes to */
    int32_t vocab_size, bos, eos;
    uint64_t hash;
};

/* A tokenizer without anything in it: bos and eos are -1. */
err_t tokenizer_make(struct tokenizer **out, struct error *e) MUST_CHECK;
/* Orders the added tokens, fills texts, vocab_size and hash. The last step of making one. */
err_t tokenizer_finish(struct tokenizer *t, struct error *e) MUST_CHECK;
/* The index of the added token with this text, -1 if there is none. */
int tokenizer_find_added(const struct tokenizer *t, const char *text);
/* BOS and EOS by the names in use (what a file says about them counts before); -1: none. */
void tokenizer_known_specials(const struct tokenizer *t, int32_t *bos, int32_t *eos);

/* The 256 code points that stand for the bytes in the text of a tokenizer.json, in order of the byte. */
void byte_alphabet(uint16_t codes[256]);
enum { BYTE_ALPHABET_END = 0x144 }; /* all codes are below */

#endif
