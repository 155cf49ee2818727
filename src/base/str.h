/* SPDX-License-Identifier: MIT */
/*
 * Growing byte strings, and the few string questions asked in many places.
 *
 * A zeroed struct str is an empty string. `text` is always NUL-terminated once something was added. Running out of
 * memory while building a string sets `failed` and later additions do nothing: check once, at the end, with str_ok().
 */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct str {
    char *text;    /* owned */
    size_t length; /* bytes before the NUL */
    size_t capacity;
    bool failed;
};

void str_add(struct str *s, const char *text);
void str_add_bytes(struct str *s, const void *bytes, size_t n);
void str_add_char(struct str *s, char c);
void str_addf(struct str *s, const char *format, ...) PRINTF_LIKE(2, 3);
void str_clear(struct str *s);             /* length 0, memory kept */
void str_release(struct str *s);           /* memory freed; usable again as an empty string */
const char *str_text(const struct str *s); /* never NULL: "" for an empty string */
err_t str_ok(const struct str *s, struct error *e) MUST_CHECK;

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Optimal string alignment distance (insert, delete, replace, swap neighbours), for "did you mean". */
int str_distance(const char *a, const char *b);

/* Of n candidates the nearest to s, or NULL if none is near enough to be a likely slip (distance <= 1 + length/3). */
const char *str_nearest(const char *s, const char *const *candidates, int n);

#endif
