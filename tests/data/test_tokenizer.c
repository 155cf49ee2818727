/* SPDX-License-Identifier: MIT */
/* The tokenizer beside its golden ids: any bytes survive, special tokens, the built-in one, threads, what is refused,
 * lack of memory. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenizer.h"
#include "tests/support/temp.h"

#define GOLDEN "tests/golden/tokenizer/"

static struct tokenizer *open_one(const char *path)
{
    struct tokenizer *t = NULL;
    struct error e = {0};

    if (tokenizer_open(&t, path, &e)) fail_msg("%s", e.message);
    return t;
}

static void encode(const struct tokenizer *t, const char *text, size_t n, bool parse_special, struct token_list *ids)
{
    struct tokenizer_scratch *s = NULL;
    struct error e = {0};

    ids->count = 0;
    assert_int_equal(tokenizer_scratch_create(&s, t, &e), ERR_NONE);
    if (tokenizer_encode(t, s, text, n, parse_special, ids, &e)) fail_msg("%s", e.message);
    tokenizer_scratch_destroy(s);
}

static void check_round_trip(const struct tokenizer *t, struct tokenizer_scratch *s, const struct str *text)
{
    struct token_list ids = {0};
    struct str back = {0};
    struct error e = {0};

    assert_int_equal(tokenizer_encode(t, s, str_text(text), text->length, false, &ids, &e), ERR_NONE);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.count, &back, &e), ERR_NONE);
    assert_int_equal(back.length, text->length);
    assert_memory_equal(str_text(&back), str_text(text), text->length);
    token_list_release(&ids);
    str_release(&back);
}

static void test_any_bytes_survive(void **state)
{
    static const char *const files[] = {"byte", GOLDEN "llama3.json", GOLDEN "gpt2.json", GOLDEN "deepseek.json",
                                        GOLDEN "ctitan.json"};
    static const char hard[] = "cut \xF0\x9F\x98 overlong \xC0\x80 \xFF\xFE surrogate \xED\xA0\x80 nul \0 end\xE4\xB8";
    uint64_t random = 7;

    (void)state;
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct tokenizer *t = open_one(files[f]);
        struct tokenizer_scratch *s = NULL;
        struct str text = {0};
        struct error e = {0};

        assert_int_equal(tokenizer_scratch_create(&s, t, &e), ERR_NONE);
        str_add_bytes(&text, hard, sizeof hard - 1);
        check_round_trip(t, s, &text);
        for (int i = 0; i < 2000; i++) {
            size_t n = (random = hash_mix(random + 1)) % 90;

            str_clear(&text);
            for (size_t k = 0; k < n; k++) {
                random = hash_mix(random + 1);
                /* plain bytes, whole characters, cut ones */
                if (random % 4)
                    str_add_char(&text, (char)(random >> 8));
                else
                    str_add_bytes(&text, "中😀é the ends", random >> 8 & 15);
            }
            check_round_trip(t, s, &text);
        }
        str_release(&text);
        tokenizer_scratch_destroy(s);
        tokenizer_close(t);
    }
}

static void test_byte_tokenizer(void **state)
{
    static const char text[] = "A\xFF" TOKENIZER_EOS;
    struct tokenizer *t = open_one("byte");
    struct token_list ids = {0};

    (void)state;
    assert_int_equal(tokenizer_vocab_size(t), 258);
    assert_int_equal(tokenizer_bos(t), 256);
    assert_int_equal(tokenizer_eos(t), 257);
    encode(t, text, sizeof text - 1, false, &ids);
    assert_int_equal(ids.count, sizeof text - 1);
    for (size_t i = 0; i < ids.count; i++) assert_int_equal(ids.ids[i], (unsigned char)text[i]);
    encode(t, text, sizeof text - 1, true, &ids);
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.ids[2], 257);
    encode(t, "", 0, true, &ids);
    assert_int_equal(ids.count, 0);
    encode(t, NULL, 0, false, &ids);
    assert_int_equal(ids.count, 0);
    token_list_release(&ids);
    tokenizer_close(t);
}

static void test_ids_out_of_range(void **state)
{
    struct tokenizer *t = open_one(GOLDEN "ctitan.json");
    const int32_t bad[] = {-1, 702, INT32_MAX, INT32_MIN};
    struct str out = {0};
    struct error e = {0};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tokenizer_decode(t, &bad[i], 1, &out, &e), ERR_RANGE);
        assert_non_null(strstr(e.message, "702 tokens"));
    }
    str_release(&out);
    tokenizer_close(t);
}

/* Hashes tell tokenizers apart. */
static void test_hash(void **state)
{
    static const char *const files[] = {"byte", GOLDEN "llama3.json", GOLDEN "llama3_whole.json", GOLDEN "qwen.json",
                                        GOLDEN "ctitan.json"};
    uint64_t hashes[5];

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct tokenizer *t = open_one(files[i]), *again = open_one(files[i]);

        hashes[i] = tokenizer_hash(t);
        assert_int_equal(hashes[i], tokenizer_hash(again));
        for (int k = 0; k < i; k++) assert_int_not_equal(hashes[i], hashes[k]);
        tokenizer_close(t);
        tokenizer_close(again);
    }
}

/* ---- merging, against a plain reading of the rule ---- */

/* a..d; the merges below make long chains and ties. */
#define MODEL(more)                                                                                                    \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},\"model\":{\"type\":"  \
    "\"BPE\","                                                                                                         \
    "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"ab\":4,\"aa\":5,\"bc\":6,\"abab\":7,\"aaaa\":8,\"abc\":9,"           \
    "\"ababab\":10,\"dd\":11},"                                                                                        \
    "\"merges\":[\"d d\",\"b c\",\"a b\",\"a a\",\"a bc\",\"aa aa\",\"ab ab\",\"abab ab\",\"ab c\"]" more "}}"

static const int32_t merges[][3] = {{3, 3, 11}, {1, 2, 6}, {0, 1, 4},  {0, 0, 5}, {0, 6, 9},
                                    {5, 5, 8},  {4, 4, 7}, {7, 4, 10}, {4, 2, 9}};

static size_t merge_plainly(int32_t *ids, size_t n)
{
    for (;;) {
        size_t best_rank = SIZE_MAX, best = 0;

        for (size_t i = 0; i + 1 < n; i++)
            for (size_t rank = 0; rank < sizeof merges / sizeof *merges && rank < best_rank; rank++)
                if (merges[rank][0] == ids[i] && merges[rank][1] == ids[i + 1]) best_rank = rank, best = i;
        if (best_rank == SIZE_MAX) return n;
        ids[best] = merges[best_rank][2];
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        n--;
    }
}

static void test_merging(void **state)
{
    static const char model[] = MODEL("");
    struct tokenizer *t = NULL;
    struct token_list ids = {0};
    struct error e = {0};
    uint64_t random = 3;

    (void)state;
    assert_int_equal(tokenizer_parse(&t, model, sizeof model - 1, NULL, "model", &e), ERR_NONE);
    for (int i = 0; i < 600; i++) { /* short pieces, pieces at the border of 64 bytes, long ones */
        size_t n = 1 + (random = hash_mix(random + 1)) % (i % 3 == 0 ? 10 : i % 3 == 1 ? 70 : 400);
        int32_t want[400];
        char text[400];

        for (size_t k = 0; k < n; k++) {
            random = hash_mix(random + 1);
            want[k] = (int32_t)(random % (i % 2 ? 4 : 2));
            text[k] = (char)('a' + want[k]);
        }
        encode(t, text, n, false, &ids);
        assert_int_equal(ids.count, merge_plainly(want, n));
        assert_memory_equal(ids.ids, want, ids.count * sizeof *want);
    }
    token_list_release(&ids);
    tokenizer_close(t);
}

static void test_byte_not_in_vocabulary(void **state)
{
    static const char model[] = MODEL("");
    struct tokenizer_scratch *s = NULL;
    struct tokenizer *t = NULL;
    struct token_list ids = {0};
    struct error e = {0};

    (void)state;
    assert_int_equal(tokenizer_parse(&t, model, sizeof model - 1, NULL, "model", &e), ERR_NONE);
    assert_int_equal(tokenizer_scratch_create(&s, t, &e), ERR_NONE);
    assert_int_equal(tokenizer_encode(t, s, "abz", 3, false, &ids, &e), ERR_FORMAT);
    assert_non_null(strstr(e.message, "0x7A"));
    token_list_release(&ids);
    tokenizer_scratch_destroy(s);
    tokenizer_close(t);
}

static void test_long_piece(void **state)
{
    enum { BYTES = 1 << 20 };
    struct tokenizer *t = open_one(GOLDEN "ctitan.json");
    struct tokenizer_scratch *s = NULL;
    struct str text = {0};
    struct error e = {0};

    (void)state;
    for (int i = 0; i < BYTES; i++) str_add_char(&text, "thewater"[i % 8]);
    assert_int_equal(tokenizer_scratch_create(&s, t, &e), ERR_NONE);
    check_round_trip(t, s, &text);
    tokenizer_scratch_destroy(s);
    str_release(&text);
    tokenizer_close(t);
}

/* ---- threads ---- */

struct worker {
    const struct tokenizer *t;
    const struct str *text;
    struct token_list ids;
    err_t rc;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct tokenizer_scratch *s = NULL;
    struct error e;

    w->rc = tokenizer_scratch_create(&s, w->t, &e);
    for (int i = 0; !w->rc && i < 3; i++) {
        w->ids.count = 0;
        w->rc = tokenizer_encode(w->t, s, str_text(w->text), w->text->length, false, &w->ids, &e);
    }
    tokenizer_scratch_destroy(s);
    return NULL;
}

static void test_threads(void **state)
{
    enum { N = 4 };
    struct tokenizer *t = open_one(GOLDEN "ctitan.json");
    struct worker workers[N] = {0};
    pthread_t threads[N];
    struct str text = {0};
    struct error e = {0};

    (void)state;
    assert_int_equal(io_read_file(GOLDEN "train.txt", &text, &e), ERR_NONE);
    for (int i = 0; i < N; i++) {
        workers[i] = (struct worker){.t = t, .text = &text};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N; i++) {
        assert_int_equal(workers[i].rc, ERR_NONE);
        assert_int_equal(workers[i].ids.count, workers[0].ids.count);
        assert_memory_equal(workers[i].ids.ids, workers[0].ids.ids, workers[0].ids.count * sizeof(int32_t));
    }
    for (int i = 0; i < N; i++) token_list_release(&workers[i].ids);
    str_release(&text);
    tokenizer_close(t);
}

/* ---- lack of memory ---- */

static err_t whole_life(struct error *e)
{
    struct tokenizer_scratch *s = NULL;
    struct tokenizer *t = NULL;
    struct token_list ids = {0};
    struct str out = {0};
    char text[200];
    err_t rc = tokenizer_open(&t, GOLDEN "llama3_whole.json", e);

    memset(text, 'a', sizeof text);
    if (!rc) rc = tokenizer_scratch_create(&s, t, e);
    if (!rc) rc = tokenizer_encode(t, s, text, sizeof text, true, &ids, e);
    if (!rc) rc = tokenizer_decode(t, ids.ids, ids.count, &out, e);
    token_list_release(&ids);
    str_release(&out);
    tokenizer_scratch_destroy(s);
    tokenizer_close(t);
    return rc;
}

static void test_memory_runs_out(void **state)
{
    struct error e;
    long n = 0;

    (void)state;
    for (;; n++) {
        err_t rc;

        e = (struct error){0};
        mem_fault_arm(n);
        rc = whole_life(&e);
        if (!mem_fault_fired()) {
            assert_int_equal(rc, ERR_NONE);
            break;
        }
        if (rc != ERR_MEMORY) fail_msg("allocation %ld: code %d, \"%s\"", n, rc, e.message);
        assert_true(e.message[0]);
    }
    mem_fault_arm(-1);
    assert_true(n > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_bytes_survive), cmocka_unit_test(test_byte_tokenizer),
        cmocka_unit_test(test_ids_out_of_range),  cmocka_unit_test(test_hash),
        cmocka_unit_test(test_merging),           cmocka_unit_test(test_byte_not_in_vocabulary),
        cmocka_unit_test(test_long_piece),        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
