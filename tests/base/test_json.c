/* SPDX-License-Identifier: MIT */
/* What is written is JSON that another reader (jansson) takes, with the same texts and numbers, whatever
 * bytes went in. */
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"

static void test_layout(void **state)
{
    struct str s = {0};

    (void)state;
    json_open(&s, '{');
    json_key(&s, "step");
    json_int(&s, INT64_MIN);
    json_key(&s, "tokens");
    json_uint(&s, UINT64_MAX);
    json_key(&s, "tags");
    json_open(&s, '[');
    json_text(&s, "a,b");
    json_text(&s, NULL);
    json_bool(&s, true);
    json_bool(&s, false);
    json_open(&s, '[');
    json_close(&s, ']');
    json_open(&s, '{');
    json_close(&s, '}');
    json_raw(&s, "{\"x\":1}");
    json_close(&s, ']');
    json_member_number(&s, "loss", 0.5);
    json_member_text(&s, "none", NULL);
    json_member_int(&s, "rank", -1);
    json_member_bool(&s, "last", true);
    json_close(&s, '}');
    str_add_char(&s, '\n');
    json_open(&s, '{'); /* the next line begins anew */
    json_close(&s, '}');
    assert_string_equal(str_text(&s),
                        "{\"step\":-9223372036854775808,\"tokens\":18446744073709551615,\"tags\":[\"a,b\",null,true,"
                        "false,[],{},{\"x\":1}],\"loss\":0.5,\"none\":null,\"rank\":-1,\"last\":true}\n{}");
    str_release(&s);
}

/* jansson's view of one written text. */
static json_t *read_back(const struct str *s)
{
    json_error_t error;
    json_t *value = json_loadb(s->text, s->length, JSON_DECODE_ANY, &error);

    if (!value) fail_msg("%s: %s", s->text, error.text);
    return value;
}

static void test_escapes(void **state)
{
    struct str s = {0};

    (void)state;
    json_text(&s, "\"\\/\b\f\n\r\t\x01\x1f\x7f</script>");
    assert_string_equal(str_text(&s), "\"\\\"\\\\/\\u0008\\u000c\\n\\r\\t\\u0001\\u001f\x7f</script>\"");
    str_release(&s);
}

/* Every byte alone and every pair of bytes that matter: well-formed UTF-8 comes back as it was, the rest as
 * U+FFFD. */
static void test_any_bytes(void **state)
{
    struct str s = {0};
    char text[3] = "";

    (void)state;
    for (int a = 1; a < 256; a++)
        for (int b = 0; b < 256; b += b < 0xc0 ? 13 : 1) {
            json_t *value;
            const char *got;

            text[0] = (char)a;
            text[1] = (char)b;
            str_clear(&s);
            json_text(&s, text);
            value = read_back(&s);
            got = json_string_value(value);
            if (a < 0x80 && b < 0x80)
                assert_string_equal(got, text);
            else if (a >= 0xc2 && a < 0xe0 && b >= 0x80 && b < 0xc0)
                assert_string_equal(got, text);
            else
                assert_non_null(strstr(got, "\xef\xbf\xbd"));
            json_decref(value);
        }
    str_release(&s);
}

static void assert_number(double value, const char *want)
{
    struct str s = {0};

    json_number(&s, value);
    assert_string_equal(str_text(&s), want);
    str_release(&s);
}

/* JSON has no NaN; the three texts are what readers of run.jsonl know. */
static void test_numbers(void **state)
{
    (void)state;
    assert_number(NAN, "\"NaN\"");
    assert_number(-NAN, "\"NaN\"");
    assert_number(INFINITY, "\"Infinity\"");
    assert_number(-INFINITY, "\"-Infinity\"");
    assert_number(0, "0");
    assert_number(-0.0, "-0");
    assert_number(0.1, "0.1");
    assert_number(1e-4, "0.0001");
    assert_number(1.0 / 3, "0.3333333333333333");
    assert_number(8.04910, "8.0491");
    assert_number(30, "30");
    assert_number(-86400, "-86400");
    assert_number(999999999999999.0, "999999999999999");
    assert_number(1e15, "1e+15");
    assert_number(5e-324, "5e-324");
    assert_number(DBL_MAX, "1.7976931348623157e+308");
    assert_number(9007199254740993.0, "9007199254740992");
}

/* Random bit patterns read back to the same bits, through strtod and through jansson. */
static void test_numbers_read_back(void **state)
{
    struct rng_key key = rng_key_of(8, "json");
    struct str s = {0};

    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t word[4];
        uint64_t bits;
        double value, got;
        json_t *read;

        rng_block(key, i, 0, word);
        bits = (uint64_t)word[0] << 32 | word[1];
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        str_clear(&s);
        json_number(&s, value);
        assert_true(s.length < 25);
        got = strtod(s.text, NULL);
        assert_memory_equal(&got, &value, sizeof got);
        read = read_back(&s);
        got = json_number_value(read);
        assert_true(got == value);
        json_decref(read);
    }
    str_release(&s);
}

/* A text that could not be built whole says so: no half of a row is ever written. */
static void test_out_of_memory(void **state)
{
    struct error e = {0};
    bool fired = true;
    int n;

    (void)state;
    for (n = 0; fired; n++) {
        struct str s = {0};
        err_t rc;

        mem_fault_arm(n);
        json_open(&s, '{');
        json_key(&s, "a key that is longer than the first block of memory, so that each part must ask for more of it");
        json_text(&s, "and a text of the same kind, with \"quotes\" and a line\nthat must be escaped, to the very end");
        json_number(&s, 0.1);
        json_close(&s, '}');
        fired = mem_fault_fired();
        mem_fault_arm(-1);
        rc = str_ok(&s, &e);
        assert_int_equal(rc, fired ? ERR_MEMORY : ERR_NONE);
        str_release(&s);
    }
    assert_true(n > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),  cmocka_unit_test(test_escapes),           cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_numbers_read_back), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
