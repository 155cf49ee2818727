/* SPDX-License-Identifier: MIT */
/* Writing JSON; see json.h. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

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

static void quoted(struct str *s, const char *text)
{
    struct str clean = {0};

    utf8_clean(&clean, text, strlen(text));
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
    if (fabs(value) < 1e15 && value == trunc(value)) {
        snprintf(out, 32, "%.0f", value);
        return;
    }
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

void json_member_text(struct str *s, const char *key, const char *value)
{
    json_key(s, key);
    json_text(s, value);
}

void json_member_int(struct str *s, const char *key, int64_t value)
{
    json_key(s, key);
    json_int(s, value);
}

void json_member_number(struct str *s, const char *key, double value)
{
    json_key(s, key);
    json_number(s, value);
}

void json_member_bool(struct str *s, const char *key, bool value)
{
    json_key(s, key);
    json_bool(s, value);
}
