/* SPDX-License-Identifier: MIT */
/* Patterns: a part of a text is compiled, what is none is refused by name, want of memory is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/pattern.h"

static void test_part_of_a_text(void **state)
{
    struct error e = {0};
    regex_t regex;

    (void)state;
    assert_int_equal(pattern_compile(&regex, "^wq|norm$: more", 9, &e), ERR_NONE);
    assert_int_equal(regexec(&regex, "wq.weight", 0, NULL, 0), 0);
    assert_int_equal(regexec(&regex, "ffn_norm", 0, NULL, 0), 0);
    assert_int_not_equal(regexec(&regex, "norm.weight", 0, NULL, 0), 0);
    regfree(&regex);
}

static void test_refused(void **state)
{
    struct error e = {0};
    regex_t regex;

    (void)state;
    assert_int_equal(pattern_compile(&regex, "(wq", 3, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "\"(wq\" is not a regular expression: "));
    mem_fault_arm(0);
    assert_int_equal(pattern_compile(&regex, "wq", 2, &e), ERR_MEMORY);
    mem_fault_arm(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_part_of_a_text),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
