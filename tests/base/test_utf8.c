/* SPDX-License-Identifier: MIT */
/* What is a character and what is not, by RFC 3629. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/utf8.h"

static void assert_clean(const char *text, const char *want)
{
    struct str s = {0};

    utf8_clean(&s, text, strlen(text));
    assert_string_equal(str_text(&s), want);
    str_release(&s);
}

/* RFC 3629: the shortest and longest of each length, surrogates, overlong forms, beyond U+10FFFF, cut at the
 * end. */
static void test_repair(void **state)
{
#define BAD "\xef\xbf\xbd"
    (void)state;
    assert_clean("\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf \xf0\x90\x80\x80 "
                 "\xf4\x8f\xbf\xbf",
                 "\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf \xf0\x90\x80\x80 "
                 "\xf4\x8f\xbf\xbf");
    assert_clean("\xc0\x80", BAD BAD);
    assert_clean("\xe0\x9f\xbf", BAD BAD BAD);
    assert_clean("\xf0\x8f\xbf\xbf", BAD BAD BAD BAD);
    assert_clean("\xed\xa0\x80", BAD BAD BAD);
    assert_clean("\xf4\x90\x80\x80", BAD BAD BAD BAD);
    assert_clean("\xf5\x80\x80\x80", BAD BAD BAD BAD);
    assert_clean("a\xf0\x9f\x98", "a" BAD BAD BAD);
    assert_clean("\xe2\x82z\xff", BAD BAD "z" BAD);
#undef BAD
}

static void test_prefixes(void **state)
{
    (void)state;
    assert_int_equal(utf8_valid_prefix("abc\xC3\xA9\xFF", 6), 5);
    assert_int_equal(utf8_valid_prefix("\xC0\x80", 2), 0);
    assert_int_equal(utf8_valid_prefix("\xED\xA0\x80", 3), 0);
    assert_int_equal(utf8_valid_prefix("\xF4\x90\x80\x80", 4), 0);
    assert_int_equal(utf8_valid_prefix("\xF0\x9F\x98", 3), 0);
    assert_int_equal(utf8_valid_prefix("12345678\xE2\x82\xAC", 11), 11);
    assert_int_equal(utf8_invalid_prefix("\xFF\xC0\x80"
                                         "a",
                                         4),
                     3);
}

/* Every code point there is: its bytes are valid, one less is not, and it reads back. */
static void test_code_points(void **state)
{
    uint32_t n_spaces = 0;

    (void)state;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char text[4];
        size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4, read = 0;

        if (code >= 0xd800 && code < 0xe000) continue;
        for (size_t i = n; i-- > 1;) text[i] = (char)(0x80 | (code >> 6 * (n - 1 - i) & 0x3f));
        text[0] = (char)(n == 1 ? code : (0xf00u >> n & 0xff) | code >> 6 * (n - 1));
        if (utf8_valid_prefix(text, n) != n || (n > 1 && utf8_valid_prefix(text, n - 1) != 0))
            fail_msg("U+%04X is not taken whole", code);
        if (utf8_code(text, &read) != code || read != n) fail_msg("U+%04X reads back as another", code);
        n_spaces += utf8_is_space(code);
    }
    assert_int_equal(n_spaces, 25); /* PropList.txt */
    assert_true(utf8_is_space(0x3000) && utf8_is_space(0x85) && !utf8_is_space(0x180e) && !utf8_is_space(0x200b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_repair), cmocka_unit_test(test_prefixes),
                                       cmocka_unit_test(test_code_points)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
