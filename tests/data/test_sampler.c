/* SPDX-License-Identifier: MIT */
/* Which tokens make a sample, at every border, and the order of samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "data/sampler.h"
#include "tests/support/temp.h"
#include "tests/support/token_file.h"

enum { T = 4 };

/* Token counts around k*T + 1, training (tail dropped) and finite pass (tail padded): samples, and which labels are
 * counted. */
static void test_counts_at_the_borders(void **state)
{
    struct temp t;
    struct error e;

    (void)state;
    temp_make(&t);
    for (int64_t n = 0; n <= 3 * T + 2; n++) {
        struct token_cache *c = token_file_run(&t, "a.bin", n, 1000);

        for (int drop = 0; drop < 2; drop++) {
            int64_t labels = n > 0 ? n - 1 : 0, valid = 0;
            int64_t want = drop ? labels / T : (labels + T - 1) / T;
            int32_t scratch[T + 1], tokens[T], label[T], positions[T];
            struct sampler s;
            err_t rc = sampler_init(&s, c, T, false, false, 1, drop, &e);

            if (want == 0) {
                assert_int_equal(rc, ERR_CONFIG);
                assert_non_null(strstr(e.message, "not one sample"));
                continue;
            }
            assert_int_equal(rc, ERR_NONE);
            assert_int_equal(s.n_samples, want);
            assert_int_equal(s.n_dropped, drop ? labels % T : 0);
            for (int64_t i = 0; i < s.n_samples; i++) {
                assert_int_equal(sampler_fill(&s, i, scratch, tokens, label, positions, NULL, &valid, &e), ERR_NONE);
                for (int k = 0; k < T; k++) {
                    int64_t at = i * T + k;

                    assert_int_equal(tokens[k], at < n ? 1 + at : 0);
                    assert_int_equal(label[k], at + 1 < n ? 2 + at : LABEL_IGNORED);
                    assert_int_equal(positions[k], k);
                }
            }
            assert_int_equal(valid + s.n_dropped, labels); /* every label once, or counted as dropped */
        }
        token_cache_close(c);
    }
    temp_remove(&t);
}

/* Against the rule written out token by token, for documents of every length from 1 on, and data that ends inside a
 * sample. */
static void check_documents(const int64_t *lengths, int n_documents, int seq_len)
{
    int document[128], n = 0;
    struct temp t;
    struct token_cache *c;
    struct sampler s;
    struct error e;

    temp_make(&t);
    for (int d = 0; d < n_documents; d++)
        for (int64_t i = 0; i < lengths[d]; i++) document[n++] = d;
    c = token_file(&t, "a.bin", lengths, n_documents, 1000);
    assert_int_equal(sampler_init(&s, c, seq_len, true, false, 1, false, &e), ERR_NONE);
    for (int64_t i = 0; i < s.n_samples; i++) {
        int32_t scratch[65], tokens[64], labels[64], positions[64], start[64];
        int64_t valid = 0, want_valid = 0;

        assert_int_equal(sampler_fill(&s, i, scratch, tokens, labels, positions, start, &valid, &e), ERR_NONE);
        for (int k = 0; k < seq_len; k++) {
            int at = (int)i * seq_len + k, from = k;

            if (at >= n) {
                assert_int_equal(labels[k], LABEL_IGNORED);
                assert_int_equal(positions[k], k - start[k]);
                continue;
            }
            while (from > 0 && document[at - (k - from) - 1] == document[at]) from--;
            assert_int_equal(start[k], from);
            assert_int_equal(positions[k], k - from);
            if (at + 1 < n && document[at + 1] == document[at]) {
                assert_int_equal(labels[k], at + 2);
                want_valid++;
            } else {
                assert_int_equal(labels[k], LABEL_IGNORED);
            }
        }
        assert_int_equal(valid, want_valid);
    }
    token_cache_close(c);
    temp_remove(&t);
}

static void test_document_mask(void **state)
{
    static const int64_t mixed[] = {3, 1, 5, 8, 1, 1, 2, 13}, whole[] = {8, 8, 8}, one[] = {30};

    (void)state;
    for (int seq_len = 1; seq_len <= 40; seq_len++) {
        check_documents(mixed, 8, seq_len);
        check_documents(whole, 3, seq_len);
        check_documents(one, 1, seq_len);
    }
}

static void test_blank(void **state)
{
    struct sampler s = {.seq_len = T};
    int32_t tokens[T], labels[T], positions[T], start[T];

    (void)state;
    memset(start, 7, sizeof start);
    sampler_fill_blank(&s, tokens, labels, positions, start);
    for (int k = 0; k < T; k++) {
        assert_int_equal(tokens[k], 0);
        assert_int_equal(labels[k], LABEL_IGNORED);
        assert_int_equal(positions[k], k);
        assert_int_equal(start[k], 0);
    }
}

static void test_permutation(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4097};
    static char seen[4097];

    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            for (int64_t i = 0; i < sizes[k]; i++) {
                int64_t x = sampler_permute(42, epoch, sizes[k], i);

                assert_in_range(x, 0, sizes[k] - 1);
                assert_false(seen[x]);
                seen[x] = 1;
            }
        }
    for (int64_t i = 0; i < 100; i++) { /* a huge one: in range and spread */
        int64_t n = ((int64_t)1 << 45) + 12345;

        assert_in_range(sampler_permute(1, 0, n, i), 0, n - 1);
    }
}

/* Places of elements are spread evenly, neighbours are parted, epochs and seeds give other orders. */
static void test_shuffle_is_a_shuffle(void **state)
{
    enum { N = 16, EPOCHS = 4000, LONG = 10000 };
    int count[N][N] = {{0}}, same = 0, neighbours = 0;

    (void)state;
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (int i = 0; i < N; i++) count[i][sampler_permute(7, epoch, N, i)]++;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) assert_in_range(count[i][k], 250 - 90, 250 + 90); /* mean 250, deviation 15.3 */
    for (int64_t i = 0; i < LONG; i++) {
        same += sampler_permute(7, 0, LONG, i) == sampler_permute(7, 1, LONG, i);
        same += sampler_permute(7, 0, LONG, i) == sampler_permute(8, 0, LONG, i);
        neighbours += sampler_permute(7, 0, LONG, i) + 1 == sampler_permute(7, 0, LONG, i + 1 < LONG ? i + 1 : 0);
    }
    assert_true(same < 20);
    assert_true(neighbours < 20);
}

/* The order is part of what a checkpoint means: it must not change between builds. */
static void test_golden_order(void **state)
{
    static const int64_t want[8] = {324, 173, 476, 223, 416, 486, 752, 577};

    (void)state;
    for (int64_t i = 0; i < 8; i++) assert_int_equal(sampler_permute(42, 1, 1000, i), want[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_at_the_borders),
        cmocka_unit_test(test_document_mask),
        cmocka_unit_test(test_blank),
        cmocka_unit_test(test_permutation),
        cmocka_unit_test(test_shuffle_is_a_shuffle),
        cmocka_unit_test(test_golden_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
