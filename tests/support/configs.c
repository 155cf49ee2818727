/* SPDX-License-Identifier: MIT */
/* See configs.h. */
#include "tests/support/configs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/temp.h"

static err_t load(struct config **c, const char *yaml, const char *const *arguments, struct config_problems *p,
                  struct error *e)
{
    int argc = 0;

    if (yaml) return config_from_text(c, yaml, strlen(yaml), "test.yaml", p, e);
    while (arguments[argc]) argc++;
    return config_load(c, argc, (char **)arguments, p, e);
}

static struct config *good(const char *yaml, const char *const *arguments)
{
    struct config_problems problems = {0};
    struct error e = {0};
    struct config *c;

    if (load(&c, yaml, arguments, &problems, &e)) fail_msg("refused: %s", e.message);
    assert_int_equal(problems.n, 0);
    config_problems_release(&problems);
    return c;
}

static void refused(const char *yaml, const char *const *arguments, int n, const char *const *texts)
{
    struct config_problems problems = {0};
    struct error e = {0};
    struct config *c;
    err_t rc = load(&c, yaml, arguments, &problems, &e);

    assert_int_equal(rc, ERR_CONFIG);
    assert_null(c);
    for (; *texts; texts++)
        if (!strstr(str_text(&problems.text), *texts))
            fail_msg("\"%s\" is missing in:\n%s", *texts, str_text(&problems.text));
    if (problems.n != n) fail_msg("%d problems, not %d:\n%s", problems.n, n, str_text(&problems.text));
    config_problems_release(&problems);
}

struct config *config_of_text(const char *yaml) { return good(yaml, NULL); }
struct config *config_of_text_and(const char *yaml, const char *const *arguments)
{
    const char *all[16] = {"--config"};
    struct config *c;
    struct temp t;
    int n = 2;

    temp_make(&t);
    all[1] = temp_write_text(&t, "test.yaml", yaml);
    while (*arguments && n < 15) all[n++] = *arguments++;
    assert_null(*arguments);
    c = good(NULL, all);
    temp_remove(&t);
    return c;
}
struct config *config_of_arguments(const char *const *arguments) { return good(NULL, arguments); }
void assert_text_refused(const char *yaml, int n, const char *const *texts) { refused(yaml, NULL, n, texts); }
void assert_arguments_refused(const char *const *arguments, int n, const char *const *texts)
{
    refused(NULL, arguments, n, texts);
}
