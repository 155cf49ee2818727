/* SPDX-License-Identifier: MIT */
/*
 * Cutting text: the hand-written ASCII paths give the pieces of their regular expressions, and expressions that PCRE2
 * would read differently from the reference are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/str.h"
#include "data/split.h"

static const char *const patterns[] = {SPLIT_LLAMA3, SPLIT_QWEN, SPLIT_GPT2};

static err_t note(void *arg, const char *piece, size_t n)
{
    str_add_bytes(arg, piece, n);
    str_add_char(arg, '\xFF'); /* in no valid text */
    return ERR_NONE;
}

/* The pieces of a text, each ended by FF. */
static void pieces_of(const struct splitter *s, const char *text, size_t n, bool is_regex_only, struct str *out)
{
    struct split_state st;
    struct error e = {0};

    assert_int_equal(split_state_init(&st, s, &e), ERR_NONE);
    st.is_regex_only = is_regex_only;
    str_clear(out);
    assert_int_equal(splitter_run(s, &st, text, n, note, out, &e), ERR_NONE);
    split_state_release(&st);
}

static void compare(const struct splitter *s, const char *text, size_t n)
{
    struct str fast = {0}, slow = {0};

    pieces_of(s, text, n, false, &fast);
    pieces_of(s, text, n, true, &slow);
    if (fast.length != slow.length || memcmp(str_text(&fast), str_text(&slow), fast.length) != 0)
        fail_msg("\"%.*s\" is cut differently:\n%s\n%s", (int)n, text, str_text(&fast), str_text(&slow));
    str_release(&fast);
    str_release(&slow);
}

/* Every text of up to four symbols that matter, and long random ones. */
static void test_hand_written_paths(void **state)
{
    static const char *const symbols[] = {
        "a",  "S",        "T", "r",       "E", "l", "d",    "M",    "v", "'", " ",  " ",        "\n",
        "\r", "\t",       "1", "2",       "!", "-", "\x01", "\x7f", "é", "ſ", "中", "\xC2\xA0", "\xE3\x80\x80",
        "٣",  "\xCC\x81", "😀", "\xC2\x85"};
    enum { N = (int)(sizeof symbols / sizeof *symbols) };
    uint64_t random = 1;

    (void)state;
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        struct splitter s = {0};
        struct str text = {0};
        struct error e = {0};

        assert_int_equal(splitter_add(&s, patterns[p], &e), ERR_NONE);
        assert_int_not_equal(s.levels[0].kind, SPLIT_KIND_OTHER);
        for (int i = 0; i < N * N * N; i++) {
            str_clear(&text);
            str_addf(&text, "%s%s%s", symbols[i % N], symbols[i / N % N], symbols[i / N / N]);
            compare(&s, text.text, text.length);
        }
        for (int i = 0; i < 4000; i++) {
            str_clear(&text);
            for (int k = (int)(random % 60); k >= 0; k--) {
                random = hash_mix(random + 1);
                str_add(&text, symbols[random % (i % 2 ? N : 21)]); /* every other text is ASCII */
            }
            compare(&s, text.text, text.length);
        }
        str_release(&text);
        splitter_release(&s);
    }
}

static void test_pieces(void **state)
{
    struct splitter s = {0};
    struct error e = {0};
    struct str out = {0};

    (void)state;
    assert_int_equal(splitter_add(&s, SPLIT_LLAMA3, &e), ERR_NONE);
    pieces_of(&s, "I'LL go  12345!\n\n x", 20, false, &out);
    assert_string_equal(str_text(&out), "I\xFF'LL\xFF go\xFF \xFF \xFF"
                                        "123\xFF"
                                        "45\xFF!\n\n\xFF x\xFF");
    splitter_release(&s);
    /* a chain; what lies between matches is a piece too */
    assert_int_equal(splitter_add(&s, "\\p{N}", &e), ERR_NONE);
    assert_int_equal(splitter_add(&s, "b+", &e), ERR_NONE);
    pieces_of(&s, "abba12cb", 8, false, &out);
    assert_string_equal(str_text(&out), "a\xFF"
                                        "bb\xFF"
                                        "a\xFF"
                                        "1\xFF"
                                        "2\xFF"
                                        "c\xFF"
                                        "b\xFF");
    splitter_release(&s);
    pieces_of(&s, "one piece", 9, false, &out);
    assert_string_equal(str_text(&out), "one piece\xFF");
    pieces_of(&s, "", 0, false, &out);
    assert_int_equal(out.length, 0);
    str_release(&out);
}

/* A long run of white space must not exhaust the matcher. */
static void test_long_runs(void **state)
{
    enum { BYTES = 3 << 20 };
    struct splitter s = {0};
    struct str text = {0}, out = {0};
    struct error e = {0};

    (void)state;
    for (int i = 0; i < BYTES / 3; i++) str_add(&text, "\xE3\x80\x80");
    assert_int_equal(splitter_add(&s, SPLIT_LLAMA3, &e), ERR_NONE);
    pieces_of(&s, text.text, text.length, false, &out);
    assert_int_equal(out.length, BYTES + 1);
    splitter_release(&s);
    str_release(&text);
    str_release(&out);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "\\w+",     "\\bx",    "^a",      "a$",     "[a[b]]",      "[a&&b]",   "[]a]",    "[\\S]",
        "[a",       "(?<=a)b", "(?<n>a)", "(?m:a)", "(a",          "a)",       "a{2,3}+", "a{,3}",
        "\\p{^L}x", "\\pL",    "\\p{}",   "\\x41",  "(?i:\\p{L})", "(?i:[a])", "(?i:ss)", "(?i:ſ)",
        "a\\",      "\\u12",   "\\1",     "a*",     "a|",          "",         "[z-a]",   "\\p{Nonsense}"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct splitter s = {0};
        struct error e = {0};

        if (splitter_add(&s, bad[i], &e) == ERR_NONE) fail_msg("\"%s\" was accepted", bad[i]);
        assert_true(e.message[0]);
        assert_int_equal(s.n_levels, 0);
    }
}

static void test_translated(void **state)
{
    static const char *const pairs[][2] = {{"[\\u3040-\\u30ff]", "[\\x{3040}-\\x{30ff}]"},
                                           {"\\p{L}\\p{Han}", "\\p{L}\\p{sc:Han}"},
                                           {"(a|b)++", "(?:a|b)++"},
                                           {"(?i:'s)\\{x", "(?i:'s)\\{x"}};
    struct str out = {0};
    struct error e = {0};

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        str_clear(&out);
        assert_int_equal(split_translate(pairs[i][0], &out, &e), ERR_NONE);
        assert_string_equal(str_text(&out), pairs[i][1]);
    }
    str_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hand_written_paths), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_long_runs),          cmocka_unit_test(test_refused),
        cmocka_unit_test(test_translated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
