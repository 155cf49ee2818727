/* SPDX-License-Identifier: MIT */
/* Growing strings; see str.h. */
#include "base/str.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static bool reserve(struct str *s, size_t more)
{
    size_t need, capacity;
    char *text;

    if (s->failed) return false;
    if (more > SIZE_MAX / 2 - s->length - 1) goto failed;
    need = s->length + more + 1;
    if (need <= s->capacity) return true;
    capacity = s->capacity ? s->capacity : 64;
    while (capacity < need) capacity *= 2;
    text = mem_resize(s->text, capacity, 1);
    if (!text) goto failed;
    s->text = text;
    s->capacity = capacity;
    return true;
failed:
    s->failed = true;
    return false;
}

void str_add_bytes(struct str *s, const void *bytes, size_t n)
{
    if (!reserve(s, n)) return;
    if (n) memcpy(s->text + s->length, bytes, n);
    s->length += n;
    s->text[s->length] = '\0';
}

void str_add(struct str *s, const char *text) { str_add_bytes(s, text, strlen(text)); }

void str_add_char(struct str *s, char c) { str_add_bytes(s, &c, 1); }

void str_addf(struct str *s, const char *format, ...)
{
    va_list args, again;
    int n;

    va_start(args, format);
    va_copy(again, args);
    n = vsnprintf(NULL, 0, format, args);
    if (n < 0) s->failed = true;
    if (n >= 0 && reserve(s, (size_t)n)) {
        vsnprintf(s->text + s->length, (size_t)n + 1, format, again);
        s->length += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

void str_clear(struct str *s)
{
    s->length = 0;
    s->failed = false;
    if (s->text) s->text[0] = '\0';
}

void str_release(struct str *s)
{
    mem_free(s->text);
    *s = (struct str){0};
}

const char *str_text(const struct str *s) { return s->text ? s->text : ""; }

err_t str_ok(const struct str *s, struct error *e)
{
    return s->failed ? FAIL(e, ERR_MEMORY, "out of memory while building a text of %zu bytes", s->length) : ERR_NONE;
}

bool str_starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);

    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;

    return m < c ? m : c;
}

int str_distance(const char *a, const char *b)
{
    enum { MAX_LENGTH = 96 }; /* keys are short; longer tails are cut */
    int d[3][MAX_LENGTH + 1];
    int n = (int)strnlen(a, MAX_LENGTH), m = (int)strnlen(b, MAX_LENGTH), i, j;

    for (j = 0; j <= m; j++) d[0][j] = j;
    for (i = 1; i <= n; i++) {
        int *row = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];

        row[0] = i;
        for (j = 1; j <= m; j++) {
            row[j] = min3(up[j] + 1, row[j - 1] + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < row[j])
                row[j] = up2[j - 2] + 1;
        }
    }
    return d[n % 3][m];
}

const char *str_nearest(const char *s, const char *const *candidates, int n)
{
    int best = 1 + (int)strlen(s) / 3 + 1, i;
    const char *nearest = NULL;

    for (i = 0; i < n; i++) {
        int d = (int)strlen(s) - (int)strlen(candidates[i]);

        if (abs(d) >= best) continue; /* no distance is less than that of the lengths */
        d = str_distance(s, candidates[i]);
        if (d < best) {
            best = d;
            nearest = candidates[i];
        }
    }
    return nearest;
}
