/* SPDX-License-Identifier: MIT */
/*
 * JSON texts are written through these few functions and read through the jansson library.
 *
 * Writing appends to a struct str; commas are placed by the caller-visible rule that every json_key / json_*_value in a
 * container first adds the comma it needs. Text that is not valid UTF-8 is written with U+FFFD in place of the bad
 * bytes. Non-finite numbers have no JSON form: they are written as the strings "NaN", "Infinity" and "-Infinity", which
 * readers of run.jsonl know.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

void json_open(struct str *s, char bracket);  /* '{' or '[' as a value */
void json_close(struct str *s, char bracket); /* '}' or ']' */
void json_key(struct str *s, const char *key);
void json_text(struct str *s, const char *value); /* NULL is written as null */
void json_int(struct str *s, int64_t value);
void json_uint(struct str *s, uint64_t value);
void json_number(struct str *s, double value); /* a short text that reads back to the same double */
void json_bool(struct str *s, bool value);
void json_raw(struct str *s, const char *json); /* an already written value */

/* A key with its value. */
void json_member_text(struct str *s, const char *key, const char *value);
void json_member_int(struct str *s, const char *key, int64_t value);
void json_member_number(struct str *s, const char *key, double value);
void json_member_bool(struct str *s, const char *key, bool value);

/* A text that strtod reads back to exactly `value`: whole numbers below 1e15 in full, others as the shortest
 * "%.{1..17}g"; out has at least 32 bytes. */
void json_shortest(double value, char *out);

#endif
