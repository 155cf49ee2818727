/* SPDX-License-Identifier: MIT */
/* Learning a vocabulary: the reference's trainer gives the same merges, order does not matter, sizes that cannot be are
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenizer.h"

#define GOLDEN "tests/golden/tokenizer/"
enum { VOCAB = 700, MAX_DOCUMENTS = 1000 };

static err_t train_on(struct tokenizer **t, int32_t vocab_size, const char *pattern, const char *text, struct error *e)
{
    struct tokenizer_spec spec = {.vocab_size = vocab_size, .pattern = pattern};
    struct tokenizer_document document = {text, strlen(text)};

    *t = NULL;
    *e = (struct error){0};
    return tokenizer_train(t, &spec, &document, 1, e);
}

/* The documents of train.txt, as the golden files were made from them. */
static size_t read_documents(struct str *text, struct tokenizer_document *documents)
{
    struct error e;
    size_t n = 0;
    char *p;

    assert_int_equal(io_read_file(GOLDEN "train.txt", text, &e), ERR_NONE);
    for (p = text->text; p; n++) {
        char *end = strstr(p, "\n%\n");

        assert_true(n < MAX_DOCUMENTS);
        documents[n] = (struct tokenizer_document){p, end ? (size_t)(end + 1 - p) : strlen(p)};
        p = end ? end + 3 : NULL;
    }
    return n;
}

static void assert_same_tokens(const struct tokenizer *a, const struct tokenizer *b, int32_t n)
{
    for (int32_t id = 0; id < n; id++) {
        size_t n_a = 0, n_b = 0;
        const char *text_a = tokenizer_text(a, id, &n_a), *text_b = tokenizer_text(b, id, &n_b);

        if (n_a != n_b || memcmp(text_a, text_b, n_a) != 0)
            fail_msg("token %d is \"%.*s\" and \"%.*s\"", id, (int)n_a, text_a, (int)n_b, text_b);
    }
}

static void test_equals_the_reference(void **state)
{
    static const char *const names[][2] = {
        {"llama3", GOLDEN "llama3.json"}, {"qwen", GOLDEN "qwen.json"}, {"gpt2", GOLDEN "gpt2.json"}};
    struct tokenizer_document documents[MAX_DOCUMENTS], reversed[MAX_DOCUMENTS];
    struct str text = {0};
    struct error e;
    size_t n;

    (void)state;
    n = read_documents(&text, documents);
    for (size_t i = 0; i < n; i++) reversed[i] = documents[n - 1 - i];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tokenizer_spec spec = {.vocab_size = VOCAB + 2, .pattern = names[i][0]};
        struct tokenizer *mine = NULL, *theirs = NULL, *again = NULL;

        if (tokenizer_train(&mine, &spec, documents, n, &e)) fail_msg("%s", e.message);
        if (tokenizer_open(&theirs, names[i][1], &e)) fail_msg("%s", e.message);
        assert_same_tokens(mine, theirs, VOCAB);
        assert_int_equal(tokenizer_vocab_size(mine), VOCAB + 2);
        assert_int_equal(tokenizer_bos(mine), VOCAB);
        assert_int_equal(tokenizer_eos(mine), VOCAB + 1);
        assert_int_equal(tokenizer_train(&again, &spec, reversed, n, &e), ERR_NONE);
        assert_int_equal(tokenizer_hash(again), tokenizer_hash(mine));
        tokenizer_close(mine);
        tokenizer_close(theirs);
        tokenizer_close(again);
    }
    str_release(&text);
}

static void expect_token(const struct tokenizer *t, int32_t id, const char *want)
{
    size_t n = 0;
    const char *text = tokenizer_text(t, id, &n);

    assert_non_null(text);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(text, want, n);
}

/* Equally frequent pairs: the lowest ids go first; a text that two pairs make is one token. */
static void test_ties(void **state)
{
    struct tokenizer *t;
    struct error e;

    (void)state;
    assert_int_equal(train_on(&t, 260, NULL, "zy zy ba ba dc dc", &e), ERR_NONE);
    expect_token(t, 256, "ba"); /* the bytes' ids follow the alphabet; the space comes after the letters */
    expect_token(t, 257, "dc");
    tokenizer_close(t);
}

static void test_sizes(void **state)
{
    struct tokenizer *t;
    struct error e;

    (void)state;
    assert_int_equal(train_on(&t, 257, NULL, "text", &e), ERR_RANGE);
    assert_non_null(strstr(e.message, "258"));
    assert_int_equal(train_on(&t, -5, NULL, "text", &e), ERR_RANGE);
    assert_int_equal(train_on(&t, INT32_MAX, NULL, "text", &e), ERR_RANGE);
    assert_int_equal(train_on(&t, 300, "gpt5", "text", &e), ERR_USAGE);
    assert_non_null(strstr(e.message, "gpt5"));
    /* "abab" has the pair ab twice, then nothing that repeats */
    assert_int_equal(train_on(&t, 300, NULL, "abab", &e), ERR_RANGE);
    assert_non_null(strstr(e.message, "259 tokens, not 300"));
    assert_int_equal(train_on(&t, 259, NULL, "abab", &e), ERR_NONE);
    expect_token(t, 256, "ab");
    expect_token(t, 258, TOKENIZER_EOS);
    tokenizer_close(t);
    /* no text at all gives the bytes */
    assert_int_equal(train_on(&t, 258, NULL, "", &e), ERR_NONE);
    tokenizer_close(t);
    assert_int_equal(train_on(&t, 259, NULL, "", &e), ERR_RANGE);
    /* bytes that are not UTF-8 teach nothing */
    assert_int_equal(train_on(&t, 259, NULL, "\xFF\xFE\xFF\xFE\xFF\xFE", &e), ERR_RANGE);
}

/* One very long word, where a merge touches its own neighbours over and over. */
static void test_long_word(void **state)
{
    enum { BYTES = 1 << 16 };
    char *text = mem_alloc(BYTES + 1);
    struct tokenizer *t;
    struct error e;

    (void)state;
    memset(text, 'a', BYTES);
    text[BYTES] = '\0';
    assert_int_equal(train_on(&t, 258 + 15, NULL, text, &e),
                     ERR_NONE); /* doubles 15 times: a pair of halves is seen once */
    for (int i = 0; i < 15; i++) {
        size_t n = 0;

        assert_non_null(tokenizer_text(t, 256 + i, &n));
        assert_int_equal(n, (size_t)2 << i);
    }
    tokenizer_close(t);
    assert_int_equal(train_on(&t, 258 + 16, NULL, text, &e), ERR_RANGE);
    mem_free(text);
}

static void test_special_tokens(void **state)
{
    static const struct {
        const char *bos, *eos;
        int32_t size, bos_id, eos_id;
    } cases[] = {
        {"", "", 256, -1, -1}, {"<s>", "", 257, 256, -1}, {"", "<e>", 257, -1, 256}, {"<x>", "<x>", 257, 256, 256}};
    struct tokenizer_document document = {"", 0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer_spec spec = {.vocab_size = cases[i].size, .bos = cases[i].bos, .eos = cases[i].eos};
        struct tokenizer *t = NULL;
        struct error e;

        if (tokenizer_train(&t, &spec, &document, 1, &e)) fail_msg("%s", e.message);
        assert_int_equal(tokenizer_vocab_size(t), cases[i].size);
        assert_int_equal(tokenizer_bos(t), cases[i].bos_id);
        assert_int_equal(tokenizer_eos(t), cases[i].eos_id);
        tokenizer_close(t);
    }
}

static void test_memory_runs_out(void **state)
{
    struct tokenizer *t;
    struct error e;
    long n = 0;

    (void)state;
    for (;; n++) {
        err_t rc;

        mem_fault_arm(n);
        rc = train_on(&t, 264, NULL, "the water and the people and the water, the water and the people", &e);
        if (!mem_fault_fired()) break;
        if (rc != ERR_MEMORY) fail_msg("allocation %ld: code %d, \"%s\"", n, rc, e.message);
        assert_null(t);
    }
    mem_fault_arm(-1);
    assert_non_null(t);
    tokenizer_close(t);
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_the_reference),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_long_word),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
