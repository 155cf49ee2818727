/* SPDX-License-Identifier: MIT */
/* Validity, code points and repair of UTF-8; see utf8.h. */
#include "base/utf8.h"

#include <string.h>

/* Length of the valid character at p, 0 if there is none. */
static size_t character(const unsigned char *p, size_t n)
{
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n < 2 || (p[1] & 0xC0) != 0x80) return 0;
    if (p[0] < 0xE0) return 2;
    if (n < 3 || (p[2] & 0xC0) != 0x80) return 0;
    if (p[0] < 0xF0) {
        if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F)) return 0;
        return 3;
    }
    if (n < 4 || (p[3] & 0xC0) != 0x80 || (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F)) return 0;
    return 4;
}

size_t utf8_valid_prefix(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t i = 0, step;

    while (i < n) {
        uint64_t eight;

        if (n - i >= 8) {
            memcpy(&eight, p + i, 8);
            if (!(eight & 0x8080808080808080u)) {
                i += 8;
                continue;
            }
        }
        step = character(p + i, n - i);
        if (!step) break;
        i += step;
    }
    return i;
}

size_t utf8_invalid_prefix(const char *text, size_t n)
{
    size_t i = 0;

    while (i < n && !character((const unsigned char *)text + i, n - i)) i++;
    return i;
}

uint32_t utf8_code(const char *text, size_t *n_bytes)
{
    const unsigned char *p = (const unsigned char *)text;

    if (p[0] < 0x80) return *n_bytes = 1, p[0];
    if (p[0] < 0xE0) return *n_bytes = 2, (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    if (p[0] < 0xF0) return *n_bytes = 3, (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    return *n_bytes = 4, (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

bool utf8_is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
           code == 0x3000;
}

void utf8_clean(struct str *out, const char *text, size_t n)
{
    while (n) {
        size_t good = utf8_valid_prefix(text, n);

        if (good)
            str_add_bytes(out, text, good);
        else
            str_add(out, "\xef\xbf\xbd");
        text += good ? good : 1;
        n -= good ? good : 1;
    }
}
