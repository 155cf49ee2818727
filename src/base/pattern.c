/* SPDX-License-Identifier: MIT */
/* Compiling a pattern; see pattern.h. */
#include "base/pattern.h"

#include <string.h>

#include "base/mem.h"

err_t pattern_compile(regex_t *out, const char *text, int n, struct error *e)
{
    char *copy = mem_zalloc(1, (size_t)n + 1), reason[128];
    err_t rc = ERR_NONE;
    int status;

    if (!copy) return FAIL(e, ERR_MEMORY, "out of memory for a regular expression");
    memcpy(copy, text, (size_t)n);
    status = regcomp(out, copy, REG_EXTENDED | REG_NOSUB);
    if (status) {
        regerror(status, out, reason, sizeof reason);
        rc = FAIL(e, ERR_CONFIG, "\"%s\" is not a regular expression: %s", copy, reason);
    }
    mem_free(copy);
    return rc;
}
