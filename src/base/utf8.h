/* SPDX-License-Identifier: MIT */
/* UTF-8 by RFC 3629: no overlong forms, no surrogates, up to U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* How many leading bytes are valid UTF-8, and how many are not, up to the next valid character. */
size_t utf8_valid_prefix(const char *text, size_t n);
size_t utf8_invalid_prefix(const char *text, size_t n);

/* The code point at text, which must begin with a valid character, and its length in bytes. */
uint32_t utf8_code(const char *text, size_t *n_bytes);

/* Unicode's White_Space property (Unicode 14). */
bool utf8_is_space(uint32_t code);

/* Appends text with each byte that is not part of a valid character replaced by U+FFFD. */
void utf8_clean(struct str *out, const char *text, size_t n);

#endif
