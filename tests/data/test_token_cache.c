/* SPDX-License-Identifier: MIT */
/* The token file: what is written is read back, damage is seen, a failed write leaves nothing; and the synthetic run.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/io.h"
#include "base/mem.h"
#include "data/token_cache.h"
#include "tests/support/temp.h"
#include "tests/support/token_file.h"

static const int64_t lengths[] = {3, 1, 5, 2};

static void check_round_trip(int64_t vocab_size, uint32_t token_bytes)
{
    static const int64_t want_next[] = {3, 3, 3, 4, 9, 9, 9, 9, 9, 11, 11};
    struct temp t;
    struct token_cache *c;
    struct error e;
    int32_t ids[11];

    temp_make(&t);
    c = token_file(&t, "a.bin", lengths, 4, vocab_size);
    assert_int_equal(token_cache_header(c)->token_bytes, token_bytes);
    assert_int_equal(token_cache_header(c)->n_documents, 4);
    assert_int_equal(token_cache_tokens(c), 11);
    assert_int_equal(token_cache_vocab_size(c), vocab_size);
    assert_int_equal(token_cache_read(c, 0, 11, ids, &e), ERR_NONE);
    for (int i = 0; i < 11; i++) {
        assert_int_equal(ids[i], 1 + i % (vocab_size - 1));
        assert_int_equal(token_cache_next_document(c, i), want_next[i]);
    }
    assert_int_equal(token_cache_read(c, 11, 0, ids, &e), ERR_NONE);
    assert_int_equal(token_cache_verify(c, &e), ERR_NONE);
    token_cache_close(c);
    assert_false(io_exists(temp_path(&t, "a.bin.tmp")));
    temp_remove(&t);
}

static void test_round_trip(void **state)
{
    (void)state;
    check_round_trip(8, 2);
    check_round_trip(65536, 2);
    check_round_trip(65537, 4);
}

/* Ids at the upper end of both widths. */
static void test_largest_ids(void **state)
{
    static const int64_t sizes[] = {65536, 1 << 24};
    struct temp t;
    struct error e;

    (void)state;
    temp_make(&t);
    for (int i = 0; i < 2; i++) {
        struct token_cache_header h = {.key = 1};
        struct token_cache_writer *w;
        struct token_cache *c;
        int32_t ids[3] = {0, (int32_t)sizes[i] - 1, (int32_t)sizes[i]}, got[2];
        int64_t two = 2, three = 3;

        temp_path(&t, "a.bin");
        assert_int_equal(token_cache_writer_open(&w, t.path, sizes[i], &e), ERR_NONE);
        assert_int_equal(token_cache_writer_add(w, ids, &two, 1, &e), ERR_NONE);
        assert_int_equal(token_cache_writer_finish(w, &h, &e), ERR_NONE);
        token_cache_writer_close(w);
        assert_int_equal(token_cache_open(&c, t.path, 1, &e), ERR_NONE);
        assert_int_equal(token_cache_read(c, 0, 2, got, &e), ERR_NONE);
        assert_memory_equal(got, ids, sizeof got);
        token_cache_close(c);
        assert_int_equal(token_cache_writer_open(&w, t.path, sizes[i], &e), ERR_NONE);
        assert_int_equal(token_cache_writer_add(w, ids, &three, 1, &e), ERR_RANGE); /* would be cut off silently */
        token_cache_writer_close(w);
    }
    temp_remove(&t);
}

static void flip(const char *path, long offset)
{
    FILE *f = fopen(path, "r+b");
    int byte;

    assert_non_null(f);
    fseek(f, offset, SEEK_SET);
    byte = fgetc(f);
    fseek(f, offset, SEEK_SET);
    fputc(byte ^ 0xff, f);
    fclose(f);
}

static void test_damage_is_seen(void **state)
{
    long header = sizeof(struct token_cache_header);
    struct temp t;
    struct token_cache *c;
    struct error e;
    int64_t bytes;
    int32_t ids[11];

    (void)state;
    temp_make(&t);
    for (long at = 0; at < header; at += 7) { /* any byte of the header */
        token_cache_close(token_file(&t, "a.bin", lengths, 4, 100));
        flip(t.path, at);
        assert_int_equal(token_cache_open(&c, t.path, 1, &e), ERR_FORMAT);
        assert_null(c);
    }
    token_cache_close(token_file(&t, "a.bin", lengths, 4, 100));
    bytes = io_file_bytes(t.path);
    assert_int_equal(token_cache_open(&c, t.path, 2, &e), ERR_FORMAT); /* another key */
    for (int64_t n = bytes - 1; n >= 0; n -= 13) {                     /* cut anywhere */
        assert_int_equal(truncate(t.path, n), 0);
        assert_int_equal(token_cache_open(&c, t.path, 1, &e), ERR_FORMAT);
    }
    assert_int_equal(token_cache_open(&c, temp_path(&t, "none"), 1, &e), ERR_MISSING);
    /* a bad token: opening costs no full read, but the id never gets out, and verify sees it */
    token_cache_close(token_file(&t, "a.bin", lengths, 4, 100));
    flip(t.path, header + 2 * 5 + 1);
    assert_int_equal(token_cache_open(&c, t.path, 1, &e), ERR_NONE);
    assert_int_equal(token_cache_read(c, 0, 5, ids, &e), ERR_NONE);
    assert_int_equal(token_cache_read(c, 0, 6, ids, &e), ERR_FORMAT);
    assert_non_null(strstr(e.message, "token 5"));
    assert_int_equal(token_cache_verify(c, &e), ERR_FORMAT);
    token_cache_close(c);
    /* a bad document table: positions stay valid */
    token_cache_close(token_file(&t, "a.bin", lengths, 4, 100));
    flip(t.path, (long)bytes - 3 * 8 + 7);
    assert_int_equal(token_cache_open(&c, t.path, 1, &e), ERR_NONE);
    for (int64_t i = 0; i < 11; i++) {
        int64_t next = token_cache_next_document(c, i);

        assert_true(next > i && next <= 11);
    }
    assert_int_equal(token_cache_verify(c, &e), ERR_FORMAT);
    token_cache_close(c);
    temp_remove(&t);
}

/* A limit on the size of files stands for a full disk. */
static void test_failed_write_leaves_the_old_file(void **state)
{
    struct rlimit old, small = {.rlim_cur = 1000};
    struct token_cache_header h = {.key = 1};
    struct token_cache_writer *w;
    struct token_cache *c;
    struct temp t;
    struct error e;
    int64_t n = 10000;
    int32_t *ids = mem_zalloc((size_t)n, sizeof *ids);
    err_t rc;

    (void)state;
    temp_make(&t);
    token_cache_close(token_file(&t, "a.bin", lengths, 4, 100));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    assert_int_equal(token_cache_writer_open(&w, t.path, 100, &e), ERR_NONE);
    setrlimit(RLIMIT_FSIZE, &small);
    rc = token_cache_writer_add(w, ids, &n, 1, &e);
    if (!rc) rc = token_cache_writer_finish(w, &h, &e);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(rc, ERR_IO);
    assert_non_null(strstr(e.message, "a.bin.tmp"));
    token_cache_writer_close(w);
    assert_false(io_exists(temp_path(&t, "a.bin.tmp")));
    assert_int_equal(token_cache_open(&c, temp_path(&t, "a.bin"), 1, &e), ERR_NONE);
    assert_int_equal(token_cache_tokens(c), 11);
    token_cache_close(c);
    mem_free(ids);
    temp_remove(&t);
}

static void test_synthetic(void **state)
{
    enum { N = 4096 };
    static int32_t ids[N], part[100];
    struct token_cache *c, *other;
    struct error e;
    int64_t low = 0, n_documents = 0;

    (void)state;
    assert_int_equal(token_cache_open_synthetic(&c, 2, 10, 1, &e), ERR_RANGE);
    assert_int_equal(token_cache_open_synthetic(&c, 512, (int64_t)1 << 40, 1, &e), ERR_NONE);
    assert_int_equal(token_cache_read(c, 0, N, ids, &e), ERR_NONE);
    for (int i = 0; i < N; i++) {
        int64_t next = token_cache_next_document(c, i);

        assert_in_range(ids[i], 0, 511);
        low += ids[i] < 256;
        assert_true(next > i && next <= i + 511);
        if (next == i + 1) {
            assert_int_equal(ids[i], 1);
            assert_int_equal(ids[i + 1 < N ? i + 1 : 0], 0);
            n_documents++;
        }
    }
    assert_int_equal(n_documents, 2 * N / 512);
    assert_true(low > N * 3 / 4); /* uneven: there is something to learn */
    for (int first = 0; first < N - 100; first += 337) {
        assert_int_equal(token_cache_read(c, first, 100, part, &e), ERR_NONE);
        assert_memory_equal(part, ids + first, sizeof part);
    }
    assert_int_equal(token_cache_read(c, ((int64_t)1 << 40) - 100, 100, part, &e), ERR_NONE);
    assert_int_equal(token_cache_open_synthetic(&other, 512, N, 2, &e), ERR_NONE);
    assert_int_equal(token_cache_read(other, 0, 100, part, &e), ERR_NONE);
    assert_memory_not_equal(part, ids, sizeof part);
    token_cache_close(other);
    token_cache_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_largest_ids),
        cmocka_unit_test(test_damage_is_seen), cmocka_unit_test(test_failed_write_leaves_the_old_file),
        cmocka_unit_test(test_synthetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
