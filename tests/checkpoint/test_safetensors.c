/* SPDX-License-Identifier: MIT */
/* The safetensors reader takes and refuses what the reference reader does; the writer's files lie aligned and
 * read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/io.h"
#include "checkpoint/safetensors.h"
#include "tests/support/temp.h"

/* A file of this header and n bytes of data, in memory of exactly its size; the caller frees it. */
static unsigned char *make(const char *header, size_t header_bytes, size_t n, size_t *total)
{
    unsigned char *p = malloc(8 + header_bytes + n);

    assert_non_null(p);
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(header_bytes >> (8 * i));
    memcpy(p + 8, header, header_bytes);
    for (size_t i = 0; i < n; i++) p[8 + header_bytes + i] = (unsigned char)i;
    *total = 8 + header_bytes + n;
    return p;
}

static err_t try(const char *header, size_t header_bytes, size_t n, struct error *e)
{
    struct safetensors s;
    size_t total;
    unsigned char *p = make(header, header_bytes, n, &total);
    err_t rc = safetensors_parse(&s, p, total, "x.safetensors", e);

    if (!rc) safetensors_close(&s);
    free(p);
    return rc;
}

#define T(dtype, shape, begin, end)                                                                                    \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void test_accepted(void **state)
{
    static const struct {
        const char *what, *header;
        size_t data;
    } cases[] = {
        {"empty", "{}", 0},
        {"metadata only", "{\"__metadata__\":{\"a\":\"b\"}}", 0},
        {"one", "{\"a\":" T("F32", "[2]", 0, 8) "}", 8},
        {"order of entries is not that of offsets", "{\"a\":" T("F32", "[1]", 4, 8) ",\"b\":" T("U8", "[4]", 0, 4) "}",
         8},
        {"header no multiple of 8", "{\"abc\":" T("U8", "[1]", 0, 1) "}", 1},
        {"unaligned, even odd", "{\"a\":" T("U8", "[1]", 0, 1) ",\"b\":" T("F32", "[1]", 1, 5) "}", 5},
        {"scalar", "{\"a\":" T("F32", "[]", 0, 4) "}", 4},
        {"no elements", "{\"a\":" T("F32", "[0]", 0, 0) ",\"b\":" T("F32", "[3,0]", 0, 0) "}", 0},
        {"no elements between others",
         "{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("F32", "[0]", 2, 2) ",\"c\":" T("U8", "[1]", 2, 3) "}", 3},
        {"unknown keys in an entry", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":{}}}", 1},
        {"duplicate names: the last wins", "{\"a\":" T("U8", "[9]", 0, 9) ",\"a\":" T("U8", "[1]", 0, 1) "}", 1},
        {"leading spaces", "   {\"a\":" T("U8", "[1]", 0, 1) "}", 1},
        {"trailing spaces", "{\"a\":" T("U8", "[1]", 0, 1) "}     ", 1},
        {"more than four dimensions", "{\"a\":" T("U8", "[1,1,1,1,1,1,2]", 0, 2) "}", 2},
        {"a type that ctitan does not compute with", "{\"a\":" T("F8_E4M3", "[3]", 0, 3) "}", 3},
        {"half bytes that fill whole ones", "{\"a\":" T("F4", "[2]", 0, 1) "}", 1},
        {"six bits that fill whole bytes", "{\"a\":" T("F6_E2M3", "[4]", 0, 3) "}", 3},
        {"a name in Chinese", "{\"\xe6\x9d\x83\xe9\x87\x8d\":" T("U8", "[1]", 0, 1) "}", 1},
    };
    struct error e;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (try(cases[i].header, strlen(cases[i].header), cases[i].data, &e))
            fail_msg("refused: %s: %s", cases[i].what, e.message);
}

static void test_refused(void **state)
{
    static const struct {
        const char *what, *header;
        size_t data;
        const char *says;
    } cases[] = {
        {"hole", "{\"a\":" T("U8", "[1]", 0, 1) ",\"b\":" T("U8", "[1]", 2, 3) "}", 3, "hole"},
        {"hole at the start", "{\"a\":" T("U8", "[1]", 1, 2) "}", 2, "hole"},
        {"overlap", "{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 1, 3) "}", 3, "inside"},
        {"the same bytes twice", "{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 0, 2) "}", 2, "inside"},
        {"data longer", "{\"a\":" T("U8", "[2]", 0, 2) "}", 3, "appended"},
        {"data shorter", "{\"a\":" T("U8", "[2]", 0, 2) "}", 1, "cut off"},
        {"data without tensors", "{}", 1, "appended"},
        {"metadata that is not text", "{\"__metadata__\":{\"a\":1}}", 0, "not a text"},
        {"metadata that is no object", "{\"__metadata__\":[]}", 0, "not an object"},
        {"unknown type", "{\"a\":" T("F31", "[1]", 0, 4) "}", 4, "F31"},
        {"type is a number", "{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype"},
        {"no type", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype"},
        {"no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "shape"},
        {"no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets"},
        {"three offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "data_offsets"},
        {"offsets backwards", "{\"a\":" T("U8", "[1]", 1, 0) "}", 1, "data_offsets"},
        {"negative offset", "{\"a\":" T("U8", "[1]", -1, 0) "}", 1, "data_offsets"},
        {"broken offset", "{\"a\":" T("U8", "[1]", 0.0, 1) "}", 1, "data_offsets"},
        {"offset beyond 64 bits", "{\"a\":" T("U8", "[1]", 0, 99999999999999999999) "}", 1, "JSON"},
        {"negative dimension", "{\"a\":" T("U8", "[-1]", 0, 1) "}", 1, "dimension 0"},
        {"dimension is a text", "{\"a\":" T("U8", "[\"1\"]", 0, 1) "}", 1, "dimension 0"},
        {"shape and bytes differ", "{\"a\":" T("F32", "[2]", 0, 4) "}", 4, "8 bytes"},
        {"shape overflows", "{\"a\":" T("F32", "[4611686018427387904,4611686018427387904]", 0, 0) "}", 0, "too large"},
        {"half a byte", "{\"a\":" T("F4", "[3]", 0, 1) "}", 1, "whole bytes"},
        {"an entry is a list", "{\"a\":[]}", 0, "object"},
        {"the header is a list", "[]", 0, "object"},
        {"the header is empty", "", 0, "JSON"},
        {"the header is cut", "{\"a\":", 0, "JSON"},
        {"two headers", "{}{}", 0, "JSON"},
        {"invalid UTF-8", "{\"\xff\":" T("U8", "[1]", 0, 1) "}", 1, "JSON"},
    };
    struct error e;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err_t rc = try(cases[i].header, strlen(cases[i].header), cases[i].data, &e);

        if (rc != ERR_FORMAT) fail_msg("not refused: %s", cases[i].what);
        if (!strstr(e.message, cases[i].says)) fail_msg("%s: the message is '%s'", cases[i].what, e.message);
        assert_non_null(strstr(e.message, "x.safetensors"));
    }
    assert_int_equal(try("{}\0\0\0", 5, 0, &e), ERR_FORMAT); /* padding by NUL */
}

static void test_refuses_wrong_lengths(void **state)
{
    unsigned char bytes[16] = {0};
    struct safetensors s;
    struct error e;

    (void)state;
    assert_int_equal(safetensors_parse(&s, bytes, 0, "x", &e), ERR_FORMAT);
    assert_int_equal(safetensors_parse(&s, bytes, 7, "x", &e), ERR_FORMAT);
    bytes[0] = 9;
    assert_int_equal(safetensors_parse(&s, bytes, 16, "x", &e), ERR_FORMAT);
    memset(bytes, 0xff, 8);
    assert_int_equal(safetensors_parse(&s, bytes, 16, "x", &e), ERR_FORMAT);
}

/* ---- writing ---- */
struct sample {
    float a[6];
    double b[2];
    uint16_t c[3];
    uint8_t d[5];
    struct safetensors_item items[5];
};

static void make_sample(struct sample *s)
{
    static const int64_t a[] = {2, 3}, b[] = {2}, c[] = {3}, d[] = {5}, none[] = {0, 7};

    *s = (struct sample){.a = {1, 2, 3, 4, 5, 6}, .b = {7, 8}, .c = {9, 10, 11}, .d = {1, 2, 3, 4, 5}};
    s->items[0] = (struct safetensors_item){.name = "d", .type = DTYPE_UINT8, .n_dims = 1, .dim = d, .data = s->d};
    s->items[1] = (struct safetensors_item){.name = "c", .type = DTYPE_BFLOAT16, .n_dims = 1, .dim = c, .data = s->c};
    s->items[2] = (struct safetensors_item){.name = "z", .type = DTYPE_FLOAT32, .n_dims = 2, .dim = a, .data = s->a};
    s->items[3] = (struct safetensors_item){.name = "b", .type = DTYPE_FLOAT64, .n_dims = 1, .dim = b, .data = s->b};
    s->items[4] = (struct safetensors_item){.name = "a", .type = DTYPE_FLOAT32, .n_dims = 2, .dim = none};
}

static void test_writes_and_reads_back(void **state)
{
    static const char *const metadata[] = {"key", "va\"lue", NULL};
    const struct safetensors_entry *entry;
    struct safetensors_written written;
    struct safetensors s = {0};
    struct str text = {0};
    struct sample sample;
    struct temp t;
    struct error e;
    float back[6];

    (void)state;
    temp_make(&t);
    make_sample(&sample);
    if (safetensors_write(NULL, temp_path(&t, "x"), sample.items, 5, metadata, &written, &e)) fail_msg("%s", e.message);
    if (io_read_file(t.path, &text, &e)) fail_msg("%s", e.message);
    assert_int_equal(text.length, written.bytes);
    assert_int_equal(hash_crc32c(0, text.text, text.length), written.crc32c);
    /* 8 byte elements first, then by name; every tensor aligned to its element, the data to 8 */
    assert_string_equal(sample.items[0].name, "b");
    assert_string_equal(sample.items[1].name, "a");
    assert_string_equal(sample.items[4].name, "d");
    for (int i = 0; i < 5; i++) {
        const struct safetensors_item *item = &sample.items[i];

        assert_int_equal(item->offset % dtype_bytes(item->type), 0);
        assert_int_equal(hash_crc32c(0, text.text + item->offset, item->bytes), item->crc32c);
        if (item->bytes) assert_memory_equal(text.text + item->offset, item->data, item->bytes);
    }
    if (safetensors_open(&s, t.path, &e)) fail_msg("%s", e.message);
    assert_int_equal(s.data_start % 8, 0);
    assert_int_equal(s.n_entries, 5);
    assert_int_equal(s.n_metadata, 2);
    assert_string_equal(s.metadata[0], "format");
    assert_string_equal(s.metadata[1], "pt");
    assert_string_equal(s.metadata[3], "va\"lue");
    entry = safetensors_find(&s, "z");
    assert_non_null(entry);
    assert_string_equal(entry->type_name, "F32");
    assert_int_equal(entry->n_dims, 2);
    assert_int_equal(entry->dim[1], 3);
    assert_memory_equal(s.data + entry->offset, sample.a, sizeof sample.a);
    assert_int_equal(safetensors_read(&s, entry, 4, back, 20, &e), ERR_NONE);
    assert_memory_equal(back, sample.a + 1, 20);
    assert_null(safetensors_find(&s, "nothing"));
    safetensors_close(&s);
    str_release(&text);
    temp_remove(&t);
}

/* Cut at any byte, or with any byte changed, a file is refused or read, never a crash. */
static void test_survives_damage(void **state)
{
    struct safetensors_written written;
    struct safetensors s;
    struct str text = {0};
    struct sample sample;
    struct temp t;
    struct error e;

    (void)state;
    temp_make(&t);
    make_sample(&sample);
    assert_int_equal(safetensors_write(NULL, temp_path(&t, "x"), sample.items, 5, NULL, &written, &e), ERR_NONE);
    assert_int_equal(io_read_file(t.path, &text, &e), ERR_NONE);
    for (size_t n = 0; n < text.length; n++) {
        unsigned char *p = malloc(n + 1);

        assert_non_null(p);
        memcpy(p, text.text, n);
        assert_int_equal(safetensors_parse(&s, p, n, "x", &e), ERR_FORMAT);
        free(p);
    }
    for (size_t i = 0; i < text.length; i++) {
        text.text[i] ^= 0x15;
        if (!safetensors_parse(&s, text.text, text.length, "x", &e)) safetensors_close(&s);
        text.text[i] ^= 0x15;
    }
    str_release(&text);
    temp_remove(&t);
}

static void test_open_says_why(void **state)
{
    struct safetensors s = {0};
    struct temp t;
    struct error e;

    (void)state;
    temp_make(&t);
    assert_int_equal(safetensors_open(&s, temp_path(&t, "none"), &e), ERR_MISSING);
    assert_non_null(strstr(e.message, "none"));
    assert_int_equal(safetensors_open(&s, t.folder, &e), ERR_FORMAT);
    assert_int_equal(safetensors_open(&s, temp_write_text(&t, "short", "abc"), &e), ERR_FORMAT);
    safetensors_close(&s); /* after failure: nothing to do */
    temp_remove(&t);
}

static void test_writer_refuses_names(void **state)
{
    static const int64_t one[] = {1};
    struct safetensors_written written;
    uint8_t byte = 0;
    struct safetensors_item items[2] = {{.name = "a", .type = DTYPE_UINT8, .n_dims = 1, .dim = one, .data = &byte},
                                        {.name = "a", .type = DTYPE_UINT8, .n_dims = 1, .dim = one, .data = &byte}};
    struct temp t;
    struct error e;

    (void)state;
    temp_make(&t);
    assert_int_equal(safetensors_write(NULL, temp_path(&t, "x"), items, 2, NULL, &written, &e), ERR_RANGE);
    items[0].name = "__metadata__";
    assert_int_equal(safetensors_write(NULL, temp_path(&t, "x"), items, 1, NULL, &written, &e), ERR_RANGE);
    temp_remove(&t);
}

static void test_out_of_memory(void **state)
{
    static const char header[] = "{\"__metadata__\":{\"k\":\"v\"},\"a\":" T("F32", "[2]", 0, 8) "}";
    size_t total;
    unsigned char *p = make(header, sizeof header - 1, 8, &total);
    struct safetensors s;
    struct error e;
    bool fired = true;

    (void)state;
    for (long n = 0; fired; n++) {
        err_t rc;

        mem_fault_arm(n);
        rc = safetensors_parse(&s, p, total, "x", &e);
        fired = mem_fault_fired();
        mem_fault_arm(-1);
        assert_int_equal(rc, fired ? ERR_MEMORY : ERR_NONE);
        if (!rc) safetensors_close(&s);
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refuses_wrong_lengths),
        cmocka_unit_test(test_writes_and_reads_back),
        cmocka_unit_test(test_survives_damage),
        cmocka_unit_test(test_open_says_why),
        cmocka_unit_test(test_writer_refuses_names),
        cmocka_unit_test(test_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
