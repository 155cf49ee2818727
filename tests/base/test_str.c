/* SPDX-License-Identifier: MIT */
/* Growing strings keep every byte and one failure; distances against a plain definition; "did you mean" finds
 * slips only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

static void test_building(void **state)
{
    struct str s = {0};
    struct error e = {0};

    (void)state;
    assert_string_equal(str_text(&s), "");
    str_add(&s, "");
    str_add(&s, "loss");
    str_add_char(&s, ':');
    str_addf(&s, " %.2f %s", 1.25, "nats");
    str_add_bytes(&s, "\0z", 2);
    str_add_bytes(&s, NULL, 0);
    assert_int_equal(s.length, 17);
    assert_memory_equal(s.text, "loss: 1.25 nats\0z", 18);
    assert_int_equal(s.text[s.length], '\0');
    assert_int_equal(str_ok(&s, &e), ERR_NONE);
    str_clear(&s);
    assert_string_equal(str_text(&s), "");
    assert_true(s.capacity > 0);
    str_release(&s);
    assert_int_equal(s.capacity, 0);
    str_add(&s, "again");
    assert_string_equal(str_text(&s), "again");
    str_release(&s);
}

/* Every length around every growth of the memory. */
static void test_growth(void **state)
{
    struct str one = {0}, format = {0};
    char text[700];

    (void)state;
    for (int n = 0; n < 600; n++) {
        for (int i = 0; i < n; i++) text[i] = (char)('a' + i % 26);
        text[n] = '\0';
        str_clear(&format);
        str_addf(&format, "%s", text);
        assert_string_equal(str_text(&format), text);
        assert_string_equal(str_text(&one), text);
        str_add_char(&one, (char)('a' + n % 26));
        str_release(&format);
    }
    str_release(&one);
}

/* After a failure nothing is added, so the caller cannot take a torn text for a whole one. */
static void test_out_of_memory(void **state)
{
    struct str s = {0};
    struct error e = {0};
    char big[200] = "";

    (void)state;
    memset(big, 'b', sizeof big - 1);
    str_add(&s, "before");
    mem_fault_arm(0);
    str_add(&s, big);
    mem_fault_arm(-1);
    str_add(&s, "after");
    str_addf(&s, "%d", 5);
    str_add_char(&s, 'c');
    assert_string_equal(str_text(&s), "before");
    assert_int_equal(str_ok(&s, &e), ERR_MEMORY);
    assert_non_null(strstr(e.message, "6 bytes"));
    str_clear(&s); /* a new text */
    str_add(&s, big);
    assert_string_equal(str_text(&s), big);
    assert_int_equal(str_ok(&s, &e), ERR_NONE);
    str_add_bytes(&s, big, SIZE_MAX); /* too long for any memory */
    assert_int_equal(str_ok(&s, &e), ERR_MEMORY);
    str_release(&s);
}

static void test_questions(void **state)
{
    (void)state;
    assert_true(str_starts("training.steps", "training."));
    assert_true(str_starts("a", ""));
    assert_false(str_starts("tr", "training"));
    assert_true(str_ends("rank_0.safetensors", ".safetensors"));
    assert_true(str_ends("a", ""));
    assert_false(str_ends("s", ".safetensors"));
}

/* The definition, without tables: optimal string alignment. */
static int plain_distance(const char *a, size_t n, const char *b, size_t m)
{
    int best, other;

    if (!n || !m) return (int)(n + m);
    best = plain_distance(a, n - 1, b, m - 1) + (a[n - 1] != b[m - 1]);
    other = 1 + plain_distance(a, n - 1, b, m);
    if (other < best) best = other;
    other = 1 + plain_distance(a, n, b, m - 1);
    if (other < best) best = other;
    if (n > 1 && m > 1 && a[n - 1] == b[m - 2] && a[n - 2] == b[m - 1]) {
        other = 1 + plain_distance(a, n - 2, b, m - 2);
        if (other < best) best = other;
    }
    return best;
}

static void test_distance(void **state)
{
    struct rng_key key = rng_key_of(2, "distance");
    char a[8], b[8], long_a[300], long_b[300];

    (void)state;
    assert_int_equal(str_distance("", ""), 0);
    assert_int_equal(str_distance("", "abc"), 3);
    assert_int_equal(str_distance("abc", ""), 3);
    assert_int_equal(str_distance("ab", "ba"), 1);
    assert_int_equal(str_distance("ca", "abc"), 3); /* a swap is not edited again */
    for (uint64_t i = 0; i < 3000; i++) {
        int n = (int)rng_below(key, 20 * i, 7), m = (int)rng_below(key, 20 * i + 1, 7);

        for (int j = 0; j < n; j++) a[j] = (char)('a' + rng_below(key, 20 * i + 2 + (uint64_t)j, 3));
        for (int j = 0; j < m; j++) b[j] = (char)('a' + rng_below(key, 20 * i + 9 + (uint64_t)j, 3));
        a[n] = b[m] = '\0';
        assert_int_equal(str_distance(a, b), plain_distance(a, (size_t)n, b, (size_t)m));
        assert_int_equal(str_distance(a, b), str_distance(b, a));
    }
    memset(long_a, 'a', sizeof long_a);
    memset(long_b, 'a', sizeof long_b);
    long_a[299] = long_b[299] = '\0';
    long_b[3] = 'b';
    assert_int_equal(str_distance(long_a, long_b), 1);
}

static void test_nearest(void **state)
{
    static const char *const keys[] = {"steps", "seq_len", "local_batch_size", "lr", "max_norm"};

    (void)state;
    assert_string_equal(str_nearest("stpes", keys, 5), "steps");
    assert_string_equal(str_nearest("batch_size", keys, 5) ? "near" : "far", "far");
    assert_string_equal(str_nearest("local_batchsize", keys, 5), "local_batch_size");
    assert_string_equal(str_nearest("max_nrom", keys, 5), "max_norm");
    assert_string_equal(str_nearest("l", keys, 5), "lr");
    assert_null(str_nearest("learning_rate", keys, 5));
    assert_null(str_nearest("", keys, 0));
    assert_null(str_nearest("xyzzy", keys, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_building),  cmocka_unit_test(test_growth),   cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_questions), cmocka_unit_test(test_distance), cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
