/* SPDX-License-Identifier: MIT */
/* Reading tokenizer.json: what is accepted in its several spellings, what is refused and by which name, BOS and EOS. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/str.h"
#include "data/tokenizer.h"
#include "tests/support/temp.h"

#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"
#define BPE "\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\"]}"
#define PRE "\"pre_tokenizer\":" BYTES
#define ADDED(text, more) "{\"id\":3,\"content\":\"" text "\",\"special\":true" more "}"

static err_t parse(const char *json, const char *config, struct tokenizer **t, struct error *e)
{
    *t = NULL;
    *e = (struct error){0};
    return tokenizer_parse(t, json, strlen(json), config, "x.json", e);
}

static void test_refused(void **state)
{
    static const struct {
        const char *json;
        err_t code;
        const char *words; /* in the message */
    } cases[] = {
        {"", ERR_FORMAT, "not JSON"},
        {"{", ERR_FORMAT, "line 1"},
        {"[]", ERR_FORMAT, "not a JSON object"},
        {"{}", ERR_FORMAT, "\"model\""},
        {"{\"model\":{},\"model\":{}}", ERR_FORMAT, "not JSON"},
        {"{\"model\":{\"type\":\"WordPiece\"}}", ERR_UNSUPPORTED, "\"model.type\": \"WordPiece\""},
        {"{\"model\":{\"type\":\"Unigram\"}}", ERR_UNSUPPORTED, "Unigram"},
        {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1}}", ERR_UNSUPPORTED, "\"model.dropout\": 0.1"},
        {"{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true}}", ERR_UNSUPPORTED, "byte_fallback"},
        {"{\"model\":{\"type\":\"BPE\",\"continuing_subword_prefix\":\"##\"}}", ERR_UNSUPPORTED,
         "continuing_subword_prefix"},
        {"{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"}}", ERR_UNSUPPORTED, "</w>"},
        {"{\"truncation\":{}," PRE "," BPE "}", ERR_UNSUPPORTED, "truncation"},
        {"{\"padding\":{}," PRE "," BPE "}", ERR_UNSUPPORTED, "padding"},
        {"{\"normalizer\":{\"type\":\"NFC\"}," PRE "," BPE "}", ERR_UNSUPPORTED, "\"normalizer\": {\"type\":\"NFC\"}"},
        {"{" BPE "}", ERR_UNSUPPORTED, "\"pre_tokenizer\""},
        {"{\"pre_tokenizer\":null," BPE "}", ERR_UNSUPPORTED, "\"pre_tokenizer\""},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\"}," BPE "}", ERR_UNSUPPORTED, "Metaspace"},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"}," BPE "}", ERR_UNSUPPORTED, "add_prefix_space"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" BYTES "," BYTES "]}," BPE "}", ERR_UNSUPPORTED,
         "after ByteLevel"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\"}," BPE "}", ERR_FORMAT, "pretokenizers"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"pattern\":{\"Regex\":\"a\"}}," BPE "}",
         ERR_UNSUPPORTED, "Removed"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":3}," BPE "}", ERR_FORMAT,
         "pattern"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"\\\\bx\"}}," BPE
         "}",
         ERR_UNSUPPORTED, "\\bx"},
        {"{" PRE ",\"model\":{\"type\":\"BPE\",\"merges\":[]}}", ERR_FORMAT, "vocab"},
        {"{" PRE ",\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", ERR_FORMAT, "vocab"},
        {"{" PRE ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", ERR_FORMAT, "\"a\""},
        {"{" PRE ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", ERR_FORMAT, "\"a\""},
        {"{" PRE ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":9000000},\"merges\":[]}}", ERR_FORMAT, "\"a\""},
        {"{" PRE ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", ERR_FORMAT, "two tokens"},
        {"{" PRE ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"\":1},\"merges\":[]}}", ERR_FORMAT, "0 bytes"},
        {"{" PRE ",\"model\":{" VOCAB "}}", ERR_FORMAT, "merges"},
        {"{" PRE ",\"model\":{" VOCAB ",\"merges\":[\"a  b\"]}}", ERR_FORMAT, "\"model.merges\"[0]"},
        {"{" PRE ",\"model\":{" VOCAB ",\"merges\":[\"ab\"]}}", ERR_FORMAT, "\"model.merges\"[0]"},
        {"{" PRE ",\"model\":{" VOCAB ",\"merges\":[[\"a\"]]}}", ERR_FORMAT, "\"model.merges\"[0]"},
        {"{" PRE ",\"model\":{" VOCAB ",\"merges\":[\"a b\",\"b a\"]}}", ERR_FORMAT, "\"model.merges\"[1]"},
        {"{" PRE ",\"model\":{" VOCAB ",\"merges\":[[\"a\",\"中\"]]}}", ERR_UNSUPPORTED, "byte alphabet"},
        {"{" PRE ",\"model\":{" VOCAB ",\"merges\":[],\"unk_token\":\"<unk>\"}}", ERR_UNSUPPORTED, "unk_token"},
        {"{\"added_tokens\":3," PRE "," BPE "}", ERR_FORMAT, "added_tokens"},
        {"{\"added_tokens\":[{\"id\":3}]," PRE "," BPE "}", ERR_FORMAT, "\"added_tokens\"[0]"},
        {"{\"added_tokens\":[{\"id\":16000000,\"content\":\"<s>\"}]," PRE "," BPE "}", ERR_FORMAT,
         "\"added_tokens\"[0]"},
        {"{\"added_tokens\":[{\"id\":2,\"content\":\"<s>\"}]," PRE "," BPE "}", ERR_FORMAT, "id 2 of another token"},
        {"{\"added_tokens\":[{\"id\":7,\"content\":\"ab\"}]," PRE "," BPE "}", ERR_FORMAT, "\"ab\""},
        {"{\"added_tokens\":[" ADDED("<s>", ",\"single_word\":true") "]," PRE "," BPE "}", ERR_UNSUPPORTED,
         "single_word"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t;
        struct error e;
        err_t rc = parse(cases[i].json, NULL, &t, &e);

        if (rc != cases[i].code || !strstr(e.message, cases[i].words))
            fail_msg("%s gives %d: %s", cases[i].json, rc, e.message);
        assert_null(t);
        assert_non_null(strstr(e.message, "x.json"));
    }
}

static void test_accepted_spellings(void **state)
{
    static const char *const jsons[] = {
        "{" PRE "," BPE "}",
        "{" PRE ",\"model\":{" VOCAB ",\"merges\":[[\"a\",\"b\"]]}}",
        "{\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" BYTES
        "]},\"model\":{\"type\":\"BPE\","
        "\"dropout\":0,\"unk_token\":null,\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\"," VOCAB
        ",\"merges\":[\"a b\"]}}",
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[]}," PRE "," BPE ",\"decoder\":null}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof jsons / sizeof *jsons; i++) {
        struct tokenizer_scratch *s = NULL;
        struct token_list ids = {0};
        struct tokenizer *t;
        struct error e;

        if (parse(jsons[i], NULL, &t, &e)) fail_msg("%s", e.message);
        assert_int_equal(tokenizer_vocab_size(t), 3);
        assert_int_equal(tokenizer_scratch_create(&s, t, &e), ERR_NONE);
        assert_int_equal(tokenizer_encode(t, s, "abba", 4, false, &ids, &e), ERR_NONE);
        assert_int_equal(ids.count, 3);
        assert_int_equal(ids.ids[0], 2);
        token_list_release(&ids);
        tokenizer_scratch_destroy(s);
        tokenizer_close(t);
    }
}

static void test_bos_and_eos(void **state)
{
#define TWO "\"added_tokens\":[" ADDED("<s>", "") ",{\"id\":9,\"content\":\"<END>\",\"special\":true}]," PRE "," BPE
    static const char known[] = "{" TWO "}";
    static const char template[] = "{" TWO ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":"
                                   "\"ByteLevel\"},{\"type\":\"TemplateProcessing\","
                                   "\"single\":[{\"SpecialToken\":{\"id\":\"<END>\"}},{\"Sequence\":{\"id\":\"A\"}},{"
                                   "\"SpecialToken\":{\"id\":\"<s>\"}}]}]}}";
    static const struct {
        const char *json, *config;
        int32_t bos, eos;
    } cases[] = {
        {known, NULL, 3, -1}, /* by name */
        {template, NULL, 9, 3},
        {known, "{\"bos_token\":null,\"eos_token\":\"<END>\"}", -1, 9},
        {template, "{\"eos_token\":{\"content\":\"<END>\"}}", 9, 9},
    };
    struct tokenizer *t;
    struct error e;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (parse(cases[i].json, cases[i].config, &t, &e)) fail_msg("%s", e.message);
        assert_int_equal(tokenizer_bos(t), cases[i].bos);
        assert_int_equal(tokenizer_eos(t), cases[i].eos);
        assert_int_equal(tokenizer_vocab_size(t), 10);
        tokenizer_close(t);
    }
    assert_int_equal(parse(known, "{\"eos_token\":\"<x>\"}", &t, &e), ERR_FORMAT);
    assert_non_null(strstr(e.message, "<x>"));
    assert_int_equal(parse(known, "{", &t, &e), ERR_FORMAT);
    assert_non_null(strstr(e.message, "tokenizer_config.json"));
}

/* A folder stands for the tokenizer.json in it, and its tokenizer_config.json is read. */
static void test_folder(void **state)
{
    static const char json[] = "{" TWO "}";
    struct tokenizer *t = NULL;
    struct temp temp;
    struct error e;

    (void)state;
    temp_make(&temp);
    assert_int_equal(tokenizer_open(&t, temp.folder, &e), ERR_MISSING);
    assert_non_null(strstr(e.message, "tokenizer.json"));
    temp_write_text(&temp, "tokenizer.json", json);
    temp_write_text(&temp, "tokenizer_config.json", "{\"eos_token\":\"<END>\"}");
    if (tokenizer_open(&t, temp.folder, &e)) fail_msg("%s", e.message);
    assert_int_equal(tokenizer_eos(t), 9);
    tokenizer_close(t);
    temp_remove(&temp);
}

/* Every way of cutting a good file short, and a byte changed everywhere: an error or a tokenizer, never a crash. */
static void test_damaged(void **state)
{
    static const char json[] =
        "{" TWO
        ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}]}}";
    struct tokenizer *t;
    struct error e;
    char copy[sizeof json];

    (void)state;
    for (size_t i = 0; i < sizeof json - 1; i++) {
        t = NULL;
        assert_int_not_equal(tokenizer_parse(&t, json, i, NULL, "x", &e), ERR_NONE);
        for (const char *c = "\"{}[]:,0a\\"; *c; c++) {
            memcpy(copy, json, sizeof json);
            copy[i] = *c;
            t = NULL;
            if (tokenizer_parse(&t, copy, sizeof json - 1, NULL, "x", &e) == ERR_NONE) tokenizer_close(t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_accepted_spellings),
        cmocka_unit_test(test_bos_and_eos), cmocka_unit_test(test_folder),
        cmocka_unit_test(test_damaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
