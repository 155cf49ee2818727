/* SPDX-License-Identifier: MIT */
/* Any bytes as text: encode + decode gives them back, and the hand-written splitting agrees with the expression. */
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"
#include "data/split.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct { /* made once: opening costs far more than a run */
    struct tokenizer *t;
    struct tokenizer_scratch *s;
    struct splitter splitters[3];
    struct split_state states[3];
} once;

static void open_once(void)
{
    static const char *const patterns[] = {SPLIT_LLAMA3, SPLIT_QWEN, SPLIT_GPT2};
    struct error e;

    BUG_ON(tokenizer_open(&once.t, "tests/golden/tokenizer/ctitan.json", &e) ||
           tokenizer_scratch_create(&once.s, once.t, &e));
    for (int i = 0; i < 3; i++) {
        BUG_ON(splitter_add(&once.splitters[i], patterns[i], &e));
        BUG_ON(split_state_init(&once.states[i], &once.splitters[i], &e));
    }
}

static err_t note(void *arg, const char *piece, size_t n)
{
    str_add_bytes(arg, piece, n);
    str_add_char(arg, '\xFF');
    return ERR_NONE;
}

static void compare(int i, const char *text, size_t n)
{
    struct str pieces[2] = {{0}, {0}};
    struct error e;

    for (int k = 0; k < 2; k++) {
        once.states[i].is_regex_only = k;
        BUG_ON(splitter_run(&once.splitters[i], &once.states[i], text, n, note, &pieces[k], &e));
    }
    BUG_ON(pieces[0].length != pieces[1].length ||
           memcmp(str_text(&pieces[0]), str_text(&pieces[1]), pieces[0].length) != 0);
    for (int k = 0; k < 2; k++) str_release(&pieces[k]);
}

static void round_trip(const char *text, size_t n, bool special)
{
    struct token_list ids = {0};
    struct str out = {0};
    struct error e;

    BUG_ON(tokenizer_encode(once.t, once.s, text, n, special, &ids, &e) ||
           tokenizer_decode(once.t, ids.ids, ids.count, &out, &e));
    BUG_ON(out.length != n || (n && memcmp(out.text, text, n) != 0));
    token_list_release(&ids);
    str_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t n = utf8_valid_prefix(text, size);

    if (!once.t) open_once();
    for (int i = 0; i < 3; i++) compare(i, text, n);
    round_trip(text, size, false);
    round_trip(text, size, true);
    return 0;
}
