/* SPDX-License-Identifier: MIT */
/* Regular expressions that people write into the configuration (POSIX, extended). */
#ifndef BASE_PATTERN_H
#define BASE_PATTERN_H

#include <regex.h>

#include "base/error.h"

/* Compiles the first n bytes of text, for regexec() without positions; the caller gives *out to regfree(). ERR_CONFIG
 * says what is wrong with it; *out is nothing to free then, as after ERR_MEMORY. */
err_t pattern_compile(regex_t *out, const char *text, int n, struct error *e) MUST_CHECK;

#endif
