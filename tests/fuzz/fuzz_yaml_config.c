/* SPDX-License-Identifier: MIT */
/* Any bytes as a configuration file: problems or a configuration, and what is printed of it reads back to the
 * same. */
#include <stdint.h>
#include <string.h>

#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct config *load(const char *text, size_t n)
{
    struct config_problems problems = {0};
    struct error e = {0};
    struct config *c;
    err_t rc = config_from_text(&c, text, n, "fuzz.yaml", &problems, &e);

    BUG_ON((rc == ERR_NONE) != (problems.n == 0) || (rc == ERR_NONE) != (c != NULL));
    config_problems_release(&problems);
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config *c = load((const char *)data, size), *again;
    struct str first = {0}, second = {0};

    if (!c) return 0;
    config_print(c, true, &first);
    again = load(str_text(&first), first.length);
    BUG_ON(!again);
    str_clear(&first);
    config_print(c, false, &first);
    config_print(again, false, &second);
    BUG_ON(strcmp(str_text(&first), str_text(&second)) != 0);
    str_release(&first);
    str_release(&second);
    config_destroy(again);
    config_destroy(c);
    return 0;
}
