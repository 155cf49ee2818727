/* SPDX-License-Identifier: MIT */
/* Any bytes as text: encode + decode gives them back, and the hand-written splitting agrees with the expression. */
#include <stdint.h>
#include <string.h>

#include "data/split.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static err_t note(void *arg, const char *piece, size_t n)
{
    str_add_bytes(arg, piece, n);
    str_add_char(arg, '\xFF');
    return ERR_NONE;
}

static void compare(const char *pattern, const char *text, size_t n, struct error *e)
{
    struct str pieces[2] = {{0}, {0}};
    struct splitter s = {0};

    BUG_ON(splitter_add(&s, pattern, e));
    for (int i = 0; i < 2; i++) {
        struct split_state st;

        BUG_ON(split_state_init(&st, &s, e));
        st.is_regex_only = i;
        BUG_ON(splitter_run(&s, &st, text, n, note, &pieces[i], e));
        split_state_release(&st);
    }
    BUG_ON(pieces[0].length != pieces[1].length || strcmp(str_text(&pieces[0]), str_text(&pieces[1])) != 0);
    for (int i = 0; i < 2; i++) str_release(&pieces[i]);
    splitter_release(&s);
}

static void round_trip(const char *tokenizer, const char *text, size_t n, struct error *e)
{
    struct tokenizer_scratch *s = NULL;
    struct tokenizer *t = NULL;
    struct token_list ids = {0};
    struct str out = {0};

    BUG_ON(tokenizer_open(&t, tokenizer, e) || tokenizer_scratch_create(&s, t, e));
    for (int special = 0; special < 2; special++) {
        ids.count = 0;
        str_clear(&out);
        BUG_ON(tokenizer_encode(t, s, text, n, special, &ids, e) || tokenizer_decode(t, ids.ids, ids.count, &out, e));
        BUG_ON(out.length != n || (n && memcmp(out.text, text, n) != 0));
    }
    token_list_release(&ids);
    str_release(&out);
    tokenizer_scratch_destroy(s);
    tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const patterns[] = {SPLIT_LLAMA3, SPLIT_QWEN, SPLIT_GPT2};
    const char *text = (const char *)data;
    size_t n = utf8_valid_prefix(text, size);
    struct error e;

    for (int i = 0; i < 3; i++) compare(patterns[i], text, n, &e);
    round_trip("tests/golden/tokenizer/ctitan.json", text, size, &e);
    return 0;
}
