/* SPDX-License-Identifier: MIT */
/*
 * Ids equal the reference's: tests/golden/tokenizer/cases.json holds what the `tokenizers` package gives for files of
 * several kinds (its own and one that ctitan trained), for chosen texts and for every code point assigned in
 * Unicode 14.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/hash.h"
#include "base/str.h"
#include "data/tokenizer.h"
#include "tests/support/temp.h"

#define GOLDEN "tests/golden/tokenizer/"

static json_t *golden; /* the whole of cases.json, read once */

static int load_golden(void **state)
{
    json_error_t where;

    (void)state;
    golden = json_load_file(GOLDEN "cases.json", JSON_ALLOW_NUL, &where);
    return golden ? 0 : -1;
}

static int drop_golden(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

struct subject {
    struct tokenizer *t;
    struct tokenizer_scratch *s;
    struct token_list ids;
    struct str text;
};

static void open_subject(struct subject *x, const char *path)
{
    struct error e = {0};

    *x = (struct subject){0};
    if (tokenizer_open(&x->t, path, &e)) fail_msg("%s", e.message);
    assert_int_equal(tokenizer_scratch_create(&x->s, x->t, &e), ERR_NONE);
}

static void close_subject(struct subject *x)
{
    tokenizer_scratch_destroy(x->s);
    tokenizer_close(x->t);
    token_list_release(&x->ids);
    str_release(&x->text);
}

static void encode(struct subject *x, const char *text, size_t n, bool parse_special)
{
    struct error e = {0};

    x->ids.count = 0;
    if (tokenizer_encode(x->t, x->s, text, n, parse_special, &x->ids, &e)) fail_msg("%s", e.message);
    str_clear(&x->text);
    if (tokenizer_decode(x->t, x->ids.ids, x->ids.count, &x->text, &e)) fail_msg("%s", e.message);
}

static uint64_t hash_ids(uint64_t h, const struct token_list *ids)
{
    for (size_t i = 0; i < ids->count; i++) {
        unsigned char bytes[4];

        for (int k = 0; k < 4; k++) bytes[k] = (unsigned char)(ids->ids[i] >> 8 * k);
        h = hash_fnv(h, bytes, 4);
    }
    return h;
}

static void check_text(struct subject *x, const char *file, const char *name, const json_t *want, bool parse_special)
{
    const json_t *text = json_object_get(json_object_get(golden, "texts"), name);
    size_t n = json_string_length(text);

    for (int round = 0; round < 2; round++) { /* the second time from the cache of pieces */
        encode(x, json_string_value(text), n, parse_special);
        if (json_is_string(want)) {
            char hash[20];

            snprintf(hash, sizeof hash, "%016llx", (unsigned long long)hash_ids(HASH_FNV_START, &x->ids));
            if (strcmp(hash, json_string_value(want)) != 0)
                fail_msg("%s: other ids for \"%s\"", file, json_string_value(text));
        } else {
            assert_int_equal(x->ids.count, json_array_size(want));
            for (size_t i = 0; i < x->ids.count; i++)
                if (x->ids.ids[i] != json_integer_value(json_array_get(want, i)))
                    fail_msg("%s: \"%s\": id %zu is %d, not %d", file, name, i, x->ids.ids[i],
                             (int)json_integer_value(json_array_get(want, i)));
        }
        if (!parse_special && strcmp(file, "llama3_whole") != 0) { /* that one's tokens take white space along */
            assert_int_equal(x->text.length, n);
            assert_memory_equal(str_text(&x->text), json_string_value(text), n);
        }
    }
}

static void check_texts(struct subject *x, const char *file, const json_t *entry)
{
    const char *name;
    json_t *want;

    json_object_foreach(json_object_get(entry, "plain"), name, want) check_text(x, file, name, want, false);
    json_object_foreach(json_object_get(entry, "special"), name, want) check_text(x, file, name, want, true);
}

static void test_texts(void **state)
{
    const char *file;
    json_t *entry;
    struct temp temp;

    (void)state;
    temp_make(&temp);
    json_object_foreach(json_object_get(golden, "tokenizers"), file, entry)
    {
        struct subject read, written;
        struct error e = {0};
        char path[256];

        snprintf(path, sizeof path, GOLDEN "%s.json", file);
        open_subject(&read, path);
        check_texts(&read, file, entry);
        /* written by ctitan and read again it is the same */
        temp_path(&temp, "again.json");
        assert_int_equal(tokenizer_save(read.t, temp.path, &e), ERR_NONE);
        open_subject(&written, temp.path);
        assert_int_equal(tokenizer_hash(written.t), tokenizer_hash(read.t));
        check_texts(&written, file, entry);
        close_subject(&written);
        close_subject(&read);
    }
    temp_remove(&temp);
}

static size_t put_code(char *out, uint32_t c)
{
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) return out[0] = (char)(0xC0 | c >> 6), out[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        return out[2] = (char)(0x80 | (c & 63)), 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    return out[3] = (char)(0x80 | (c & 63)), 4;
}

/* The generator's around(): '@' stands for the character. */
static size_t around(char out[128], uint32_t code)
{
    size_t n = 0;

    for (const char *p = "a@b @ @1@@.@\n@  @'@ \n @'s"; *p; p++) {
        if (*p == '@')
            n += put_code(out + n, code);
        else
            out[n++] = *p;
    }
    return n;
}

static void check_block(const char *file, const json_t *hashes, uint32_t block, uint64_t h, bool is_empty)
{
    char got[20] = "";

    if (!is_empty) snprintf(got, sizeof got, "%016llx", (unsigned long long)h);
    if (strcmp(got, json_string_value(json_array_get(hashes, block))) != 0)
        fail_msg("%s: other ids in U+%04X..U+%04X", file, block * 1024, block * 1024 + 1023);
}

static void test_code_points(void **state)
{
    const json_t *ranges = json_object_get(golden, "assigned");
    const char *file;
    json_t *entry;

    (void)state;
    json_object_foreach(json_object_get(golden, "tokenizers"), file, entry)
    {
        const json_t *hashes = json_object_get(entry, "code_points");
        uint64_t h = HASH_FNV_START;
        uint32_t block = 0;
        bool is_empty = true;
        struct subject x;
        char text[256];

        snprintf(text, sizeof text, GOLDEN "%s.json", file);
        open_subject(&x, text);
        for (size_t r = 0; r < json_array_size(ranges); r++) {
            uint32_t c = (uint32_t)json_integer_value(json_array_get(json_array_get(ranges, r), 0));
            uint32_t last = (uint32_t)json_integer_value(json_array_get(json_array_get(ranges, r), 1));

            if (c >= 0xF0000) last = c + 8; /* private use planes: all alike */
            for (; c <= last; c++) {
                for (; c / 1024 != block; block++, h = HASH_FNV_START, is_empty = true)
                    check_block(file, hashes, block, h, is_empty);
                encode(&x, text, around(text, c), false);
                h = hash_ids(h, &x.ids);
                is_empty = false;
            }
        }
        check_block(file, hashes, block, h, is_empty);
        assert_int_equal(json_array_size(hashes), block + 1);
        close_subject(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_code_points)};

    return cmocka_run_group_tests(tests, load_golden, drop_golden);
}
