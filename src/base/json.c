/* SPDX-License-Identifier: MIT */
/* Writing JSON; see json.h. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A comma is needed unless a container or a key has just been opened. */
static void comma(struct str *s)
{
    char last;

    if (!s->length) return;
    last = s->text[s->length - 1];
    if (last != '{' && last != '[' && last != ':' && last != '\n') str_add_char(s, ',');
}

void json_open(struct str *s, char bracket)
{
    comma(s);
    str_add_char(s, bracket);
}

void json_close(struct str *s, char bracket) { str_add_char(s, bracket); }

/* Length of the valid UTF-8 sequence at p (n bytes left), 0 if there is none. RFC 3629: no surrogates, no overlong forms. */
static size_t utf8_sequence(const unsigned char *p, size_t n)
{
    size_t length = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;

    if (!length || length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if (p[0] == 0xe0 && p[1] < 0xa0) return 0;
    if (p[0] == 0xed && p[1] > 0x9f) return 0;
    if (p[0] == 0xf0 && p[1] < 0x90) return 0;
    if (p[0] == 0xf4 && p[1] > 0x8f) return 0;
    return length;
}

void json_clean_utf8(struct str *out, const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;

    while (n) {
        size_t length = utf8_sequence(p, n);

        if (length)
            str_add_bytes(out, p, length);
        else
            str_add(out, "\xef\xbf\xbd");
        p += length ? length : 1;
        n -= length ? length : 1;
    }
}

static void quoted(struct str *s, const char *text)
{
    struct str clean = {0};

    json_clean_utf8(&clean, text, strlen(text));
    str_add_char(s, '"');
    for (size_t i = 0; i < clean.length; i++) {
        unsigned char c = (unsigned char)clean.text[i];

        switch (c) {
        case '"': str_add(s, "\\\""); break;
        case '\\': str_add(s, "\\\\"); break;
        case '\n': str_add(s, "\\n"); break;
        case '\r': str_add(s, "\\r"); break;
        case '\t': str_add(s, "\\t"); break;
        default:
            if (c < 0x20)
                str_addf(s, "\\u%04x", c);
            else
                str_add_char(s, (char)c);
        }
    }
    str_add_char(s, '"');
    if (clean.failed) s->failed = true;
    str_release(&clean);
}

void json_key(struct str *s, const char *key)
{
    comma(s);
    quoted(s, key);
    str_add_char(s, ':');
}

void json_text(struct str *s, const char *value)
{
    comma(s);
    if (value)
        quoted(s, value);
    else
        str_add(s, "null");
}

void json_int(struct str *s, int64_t value)
{
    comma(s);
    str_addf(s, "%lld", (long long)value);
}

void json_uint(struct str *s, uint64_t value)
{
    comma(s);
    str_addf(s, "%llu", (unsigned long long)value);
}

void json_shortest(double value, char *out)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, value);
        if (strtod(out, NULL) == value) return;
    }
}

void json_number(struct str *s, double value)
{
    char text[32];

    comma(s);
    if (isnan(value)) {
        str_add(s, "\"NaN\"");
    } else if (isinf(value)) {
        str_add(s, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    } else {
        json_shortest(value, text);
        str_add(s, text);
    }
}

void json_bool(struct str *s, bool value)
{
    comma(s);
    str_add(s, value ? "true" : "false");
}

void json_raw(struct str *s, const char *json)
{
    comma(s);
    str_add(s, json);
}
