/* SPDX-License-Identifier: MIT */
/* Which files make a source, and which documents and texts come out of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>

#include "base/mem.h"
#include "data/source.h"
#include "tests/support/temp.h"

/* Everything a source gives: texts joined by '|', skipped documents counted. */
struct content {
    struct str texts;
    int64_t n_used, skipped[SOURCE_SKIP_COUNT];
    err_t rc;
    struct error e;
};

static void read_all(const struct source_spec *spec, size_t batch_bytes, struct content *c)
{
    struct source *s = NULL;
    struct source_reader *r = NULL;
    struct source_batch b = {0};
    struct str scratch = {0};
    int64_t n_batches = 0;

    memset(c, 0, sizeof *c);
    c->rc = source_open(&s, spec, &c->e);
    if (!c->rc) c->rc = source_reader_open(&r, s, &c->e);
    while (!c->rc) {
        c->rc = source_read(r, batch_bytes, &b, &c->e);
        if (c->rc || b.n_records == 0) break;
        n_batches++;
        for (int64_t i = 0; !c->rc && i < b.n_records; i++) {
            enum source_skip reason;
            const char *text;
            size_t n;

            c->rc = source_text(s, &b, i, &scratch, &text, &n, &reason, &c->e);
            if (c->rc) break;
            if (reason == SOURCE_USED) {
                c->n_used++;
                str_add_bytes(&c->texts, text, n);
                str_add_char(&c->texts, '|');
            } else {
                c->skipped[reason]++;
            }
        }
    }
    if (!c->rc) assert_int_equal(source_read_bytes(r), s->bytes);
    str_release(&scratch);
    source_batch_release(&b);
    source_reader_close(r);
    source_close(s);
}

static void expect_texts(const char *path, const char *separator, const char *want)
{
    struct source_spec spec = {.paths = &path, .n_paths = 1, .separator = separator};
    struct content c;

    for (size_t bytes = 1; bytes < 1 << 20; bytes *= 64) { /* the size of batches changes nothing */
        read_all(&spec, bytes, &c);
        if (c.rc) fail_msg("%s", c.e.message);
        assert_string_equal(str_text(&c.texts), want);
        str_release(&c.texts);
    }
}

static void test_plain_text_and_separators(void **state)
{
    struct temp t;

    (void)state;
    temp_make(&t);
    expect_texts(temp_write_text(&t, "a.txt", "one\ntwo"), NULL, "one\ntwo|");
    expect_texts(temp_write_text(&t, "b.txt", "one\n%\ntwo\nmore\n%\n"), "%", "one\n|two\nmore\n|");
    expect_texts(temp_write_text(&t, "c.txt", "one\n%\ntwo %\n%%\nend"), "%", "one\n|two %\n%%\nend|");
    expect_texts(temp_write_text(&t, "d.txt", "%\n%\n \n%\nx\n%"), "%", "x\n|");
    /* CRLF is part of the text; a separator line may end with it */
    expect_texts(temp_write_text(&t, "e.txt", "one\r\n%\r\ntwo\r\n"), "%", "one\r\n|two\r\n|");
    temp_remove(&t);
}

static void test_byte_order_mark(void **state)
{
    struct temp t;
    const char *path;
    struct source_spec spec = {.paths = &path, .n_paths = 1};
    struct content c;

    (void)state;
    temp_make(&t);
    expect_texts(temp_write_text(&t, "a.txt", "\xef\xbb\xbfone\n%\ntwo\n"), "%", "one\n|two\n|");
    expect_texts(temp_write_text(&t, "a.jsonl", "\xef\xbb\xbf{\"text\":\"one\"}\n{\"text\":\"two\"}\n"), NULL,
                 "one|two|");
    expect_texts(temp_write_text(&t, "b.txt", "\xef\xbb\xbf%\ntwo\n"), "%", "two\n|");
    path = temp_write(&t, "utf16.txt", "\xff\xfeo\0n\0", 6);
    read_all(&spec, 1, &c);
    assert_int_equal(c.rc, ERR_FORMAT);
    assert_non_null(strstr(c.e.message, "UTF-16"));
    temp_remove(&t);
}

static void test_skipped_documents_are_counted(void **state)
{
    static const char lines[] =
        "{\"text\":\"a\"}\n\n\"\"\n{\"text\":\"\"}\n{\"text\":\" \\n\"}\n{\"other\":1}\n{\"text\":null}\n"
        "{\"text\":7}\n  \n{\"text\":\"b\", \"id\":18446744073709551615}";
    struct temp t;
    const char *path;
    struct source_spec spec = {.paths = &path, .n_paths = 1};
    struct content c;

    (void)state;
    temp_make(&t);
    path = temp_write_text(&t, "a.jsonl", lines);
    read_all(&spec, 100, &c);
    if (c.rc) fail_msg("%s", c.e.message);
    assert_string_equal(str_text(&c.texts), "a|b|");
    assert_int_equal(c.skipped[SOURCE_SKIP_EMPTY], 2);
    assert_int_equal(c.skipped[SOURCE_SKIP_BLANK], 2);
    assert_int_equal(c.skipped[SOURCE_SKIP_NO_FIELD], 1);
    assert_int_equal(c.skipped[SOURCE_SKIP_NOT_TEXT], 2);
    assert_int_equal(c.skipped[SOURCE_SKIP_NOT_OBJECT], 1);
    str_release(&c.texts);
    temp_remove(&t);
}

static void test_json_texts_and_errors(void **state)
{
    struct temp t;
    const char *path;
    struct source_spec spec = {.paths = &path, .n_paths = 1, .text_field = "body"};
    struct content c;

    (void)state;
    temp_make(&t);
    path = temp_write_text(&t, "a.jsonl", "{\"body\":\"\\u00e9\\ud83d\\ude00\\u0000x\\r\\n\"}\r\n{\"text\":\"no\"}\n");
    read_all(&spec, 1, &c);
    assert_int_equal(c.rc, ERR_NONE);
    assert_int_equal(c.texts.length, 2 + 4 + 1 + 1 + 2 + 1);
    assert_memory_equal(c.texts.text, "\xc3\xa9\xf0\x9f\x98\x80\0x\r\n|", 11);
    assert_int_equal(c.skipped[SOURCE_SKIP_NO_FIELD], 1);
    str_release(&c.texts);
    path = temp_write_text(&t, "bad.jsonl", "{\"body\":\"fine\"}\n\n{\"body\":\"cut\n{\"body\":\"fine\"}\n");
    read_all(&spec, 1 << 20, &c);
    assert_int_equal(c.rc, ERR_FORMAT);
    assert_non_null(strstr(c.e.message, "bad.jsonl, line 3"));
    str_release(&c.texts);
    temp_remove(&t);
}

/* .json may be either: objects in lines, or one value over many lines, which is a document like any other. */
static void test_json_by_its_first_line(void **state)
{
    struct temp t;

    (void)state;
    temp_make(&t);
    expect_texts(temp_write_text(&t, "a.json", "{\"text\":\"one\"} \r\n{\"text\":\"two\"}"), NULL, "one|two|");
    expect_texts(temp_write_text(&t, "b.json", "\xef\xbb\xbf{\"text\":\"one\"}"), NULL, "one|");
    expect_texts(temp_write_text(&t, "c.json", "{\n \"text\": \"one\"\n}\n"), NULL, "{\n \"text\": \"one\"\n}\n|");
    expect_texts(temp_write_text(&t, "d.json", "[\n1]"), NULL, "[\n1]|");
    expect_texts(temp_write_text(&t, "e.json", "\n{\"a\":1}"), NULL, "\n{\"a\":1}|");
    temp_remove(&t);
}

/* A line far longer than any buffer, between short ones. */
static void test_huge_line(void **state)
{
    enum { BYTES = 5 << 20 };
    struct str line = {0};
    struct temp t;
    const char *path;
    struct source_spec spec = {.paths = &path, .n_paths = 1};
    struct content c;

    (void)state;
    temp_make(&t);
    str_add(&line, "{\"text\":\"a\"}\n{\"text\":\"");
    for (int i = 0; i < BYTES; i++) str_add_char(&line, (char)('a' + i % 26));
    str_add(&line, "\"}\n{\"text\":\"b\"}\n");
    path = temp_write(&t, "a.jsonl", line.text, line.length);
    read_all(&spec, 4096, &c);
    if (c.rc) fail_msg("%s", c.e.message);
    assert_int_equal(c.n_used, 3);
    assert_int_equal(c.texts.length, BYTES + 5);
    assert_memory_equal(c.texts.text + 2, line.text + 22, BYTES);
    str_release(&c.texts);
    str_release(&line);
    temp_remove(&t);
}

/* Line numbers, in a document that is longer than what is read at once. */
static void test_line_numbers(void **state)
{
    struct str long_text = {0};
    struct temp t;
    const char *path;
    struct source_spec spec = {.paths = &path, .n_paths = 1, .separator = "%"};
    struct source_batch b = {0};
    struct source_reader *r;
    struct source *s;
    struct error e;
    static const int64_t want[] = {1, 100002, 100004};

    (void)state;
    temp_make(&t);
    for (int i = 0; i < 100000; i++) str_add(&long_text, "a line\n");
    str_add(&long_text, "%\ntwo\n%\nthree");
    path = temp_write(&t, "a.txt", long_text.text, long_text.length);
    assert_int_equal(source_open(&s, &spec, &e), ERR_NONE);
    assert_int_equal(source_reader_open(&r, s, &e), ERR_NONE);
    for (int n = 0; n < 3;) {
        assert_int_equal(source_read(r, 1, &b, &e), ERR_NONE);
        assert_true(b.n_records > 0);
        for (int64_t i = 0; i < b.n_records; i++) assert_int_equal(b.records[i].line, want[n++]);
    }
    source_batch_release(&b);
    source_reader_close(r);
    source_close(s);
    str_release(&long_text);
    temp_remove(&t);
}

static void write_gzip(const char *path, const char *mode, const char *text)
{
    gzFile gz = gzopen(path, mode);

    assert_int_equal(gzwrite(gz, text, (unsigned)strlen(text)), (int)strlen(text));
    assert_int_equal(gzclose(gz), Z_OK);
}

static void test_gzip(void **state)
{
    struct temp t;
    char path[sizeof t.path];
    const char *given = path;
    struct source_spec spec = {.paths = &given, .n_paths = 1};
    struct content c;
    struct stat st;

    (void)state;
    temp_make(&t);
    strcpy(path, temp_path(&t, "a.jsonl.gz"));
    write_gzip(path, "wb", "{\"text\":\"one\"}\n");
    write_gzip(path, "ab", "{\"text\":\"two\"}\n"); /* a second member */
    expect_texts(path, NULL, "one|two|");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 5), 0);
    read_all(&spec, 1, &c);
    str_release(&c.texts);
    assert_int_equal(c.rc, ERR_FORMAT);
    assert_non_null(strstr(c.e.message, "cut short or damaged"));
    strcpy(path, temp_write_text(&t, "plain.gz", "not compressed"));
    read_all(&spec, 1, &c);
    assert_int_equal(c.rc, ERR_FORMAT);
    assert_non_null(strstr(c.e.message, "not a gzip file"));
    temp_remove(&t);
}

static void make_tree(struct temp *t)
{
    temp_write_text(t, "d/b.txt", "b");
    temp_write_text(t, "d/a.txt", "a");
    temp_write_text(t, "d/sub/c.txt", "c");
    temp_write_text(t, "d/.git/x.txt", "hidden");
    temp_write_text(t, "d/skip.me", "excluded");
    temp_write_text(t, "d/empty.txt", "");
    temp_write(t, "d/binary.dat", "a\0b", 3);
    temp_path(t, "d/link.u8");
    assert_int_equal(symlink("a.txt", t->path), 0);
    temp_path(t, "d/pipe");
    assert_int_equal(mkfifo(t->path, 0600), 0);
}

static void test_folders_and_patterns(void **state)
{
    struct temp t;
    char folder[sizeof t.path], pattern[sizeof t.path], link[sizeof t.path], a[sizeof t.path];
    const char *exclude = "skip.*", *paths[3] = {folder};
    struct source_spec spec = {.paths = paths, .n_paths = 1, .exclude = &exclude, .n_exclude = 1};
    struct content c;
    struct source *s;
    struct error e;

    (void)state;
    temp_make(&t);
    make_tree(&t);
    strcpy(folder, temp_path(&t, "d"));
    strcpy(pattern, temp_path(&t, "d/[ab]*"));
    strcpy(link, temp_path(&t, "d/link.u8"));
    strcpy(a, temp_path(&t, "d/a.txt"));
    read_all(&spec, 1, &c);
    assert_string_equal(str_text(&c.texts), "a|b|c|");
    assert_int_equal(c.skipped[SOURCE_SKIP_EMPTY], 1);
    str_release(&c.texts);
    assert_int_equal(source_open(&s, &spec, &e), ERR_NONE);
    for (int i = 0; i < SOURCE_PASS_COUNT; i++) assert_int_equal(s->passed[i], 1);
    source_close(s);
    /* what is named literally is read, each file once, entries in their order */
    paths[0] = link, paths[1] = pattern, paths[2] = a, spec.n_paths = 3;
    read_all(&spec, 1, &c);
    assert_string_equal(str_text(&c.texts), "a|b|");
    str_release(&c.texts);
    paths[0] = pattern, paths[1] = folder, spec.n_paths = 2;
    read_all(&spec, 1, &c);
    assert_string_equal(str_text(&c.texts), "a|b|c|");
    str_release(&c.texts);
    temp_remove(&t);
}

static void test_nothing_to_read(void **state)
{
    struct temp t;
    char path[sizeof t.path];
    const char *given = path;
    struct source_spec spec = {.paths = &given, .n_paths = 1};
    struct source *s;
    struct error e;

    (void)state;
    temp_make(&t);
    strcpy(path, temp_path(&t, "none*"));
    assert_int_equal(source_open(&s, &spec, &e), ERR_MISSING);
    assert_non_null(strstr(e.message, path));
    temp_write(&t, "d/only.bin", "\0", 1);
    strcpy(path, temp_path(&t, "d"));
    assert_int_equal(source_open(&s, &spec, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "1 not text"));
    strcpy(path, "/dev/null");
    assert_int_equal(source_open(&s, &spec, &e), ERR_CONFIG);
    spec.n_paths = 0;
    assert_int_equal(source_open(&s, &spec, &e), ERR_CONFIG);
    temp_remove(&t);
}

static uint64_t hash_of(const struct source_spec *spec, struct pool *pool)
{
    struct source *s;
    struct error e;
    uint64_t h;

    if (source_open(&s, spec, &e) || source_hash(s, pool, NULL, NULL, &h, &e)) fail_msg("%s", e.message);
    source_close(s);
    return h;
}

static void test_hash_is_of_the_content(void **state)
{
    struct temp t;
    char path[sizeof t.path];
    const char *given = path;
    struct source_spec spec = {.paths = &given, .n_paths = 1};
    struct pool *pool;
    struct error e;
    uint64_t h, before;

    (void)state;
    temp_make(&t);
    assert_int_equal(pool_create(&pool, 3, &e), ERR_NONE);
    temp_write_text(&t, "x/1.txt", "hello");
    temp_write_text(&t, "x/2.txt", "world");
    temp_write_text(&t, "y/1.txt", "hello");
    temp_write_text(&t, "y/9.txt", "world");
    strcpy(path, temp_path(&t, "x"));
    h = hash_of(&spec, pool);
    assert_int_equal(hash_of(&spec, NULL), h);
    strcpy(path, temp_path(&t, "y"));
    assert_int_equal(hash_of(&spec, pool), h); /* names and dates do not matter */
    spec.separator = "%";
    assert_int_not_equal(hash_of(&spec, pool), h);
    spec.separator = NULL;
    temp_write_text(&t, "y/9.txt", "worle");
    assert_int_not_equal(before = hash_of(&spec, pool), h);
    temp_write_text(&t, "y/1.txt", "worle"); /* the order matters */
    temp_write_text(&t, "y/9.txt", "hello");
    assert_int_not_equal(hash_of(&spec, pool), before);
    pool_destroy(pool);
    temp_remove(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_text_and_separators),
        cmocka_unit_test(test_byte_order_mark),
        cmocka_unit_test(test_skipped_documents_are_counted),
        cmocka_unit_test(test_json_texts_and_errors),
        cmocka_unit_test(test_line_numbers),
        cmocka_unit_test(test_json_by_its_first_line),
        cmocka_unit_test(test_huge_line),
        cmocka_unit_test(test_gzip),
        cmocka_unit_test(test_folders_and_patterns),
        cmocka_unit_test(test_nothing_to_read),
        cmocka_unit_test(test_hash_is_of_the_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
