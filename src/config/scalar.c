/* SPDX-License-Identifier: MIT */
/*
 * The YAML 1.2 core schema (its section 10.3.2): which texts are null, integers and numbers. Stricter than
 * strtoll and strtod, which would take blanks, hexadecimal floats and "infinity".
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/table.h"

bool config_is_one_of(const char *text, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(text, *names) == 0) return true;
    return false;
}

bool config_list_has(const struct config_list *list, const char *text)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->item[i], text) == 0) return true;
    return false;
}

bool config_is_null(const char *text)
{
    static const char *const names[] = {"", "~", "null", "Null", "NULL", NULL};

    return config_is_one_of(text, names);
}

static bool all_digits(const char *s, const char *digits) { return *s && strspn(s, digits) == strlen(s); }

/* core schema: [-+]?[0-9]+, 0o[0-7]+, 0x[0-9a-fA-F]+ */
bool config_parse_int(const char *text, int64_t *out, bool *is_out_of_range)
{
    const char *digits = text;
    int base = 10;
    long long value;

    *is_out_of_range = false;
    if (strncmp(text, "0o", 2) == 0) {
        base = 8;
        digits = text + 2;
        if (!all_digits(digits, "01234567")) return false;
    } else if (strncmp(text, "0x", 2) == 0) {
        base = 16;
        digits = text + 2;
        if (!all_digits(digits, "0123456789abcdefABCDEF")) return false;
    } else if (!all_digits(text + (*text == '-' || *text == '+'), "0123456789")) {
        return false;
    }
    errno = 0;
    value = strtoll(digits, NULL, base);
    *is_out_of_range = errno == ERANGE;
    *out = value;
    return true;
}

/* core schema: [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?, [-+]?\.inf, \.nan; integers are numbers
 * too */
bool config_parse_real(const char *text, double *out)
{
    static const char *const infinities[] = {".inf", ".Inf", ".INF", NULL}, *const nans[] = {".nan", ".NaN", ".NAN",
                                                                                             NULL};
    const char *s = text + (*text == '-' || *text == '+');
    size_t whole, part = 0;
    int64_t integer;
    bool is_out_of_range;

    if (config_is_one_of(s, infinities)) return *out = *text == '-' ? -INFINITY : INFINITY, true;
    if (config_is_one_of(text, nans)) return *out = NAN, true;
    if (s[0] == '0' && (s[1] == 'x' || s[1] == 'o')) { /* strtod would read hexadecimal floats */
        if (!config_parse_int(text, &integer, &is_out_of_range) || is_out_of_range) return false;
        *out = (double)integer;
        return true;
    }
    whole = strspn(s, "0123456789");
    s += whole;
    if (*s == '.') {
        part = strspn(s + 1, "0123456789");
        s += 1 + part;
    }
    if (!whole && !part) return false;
    if (*s == 'e' || *s == 'E') {
        s += s[1] == '-' || s[1] == '+' ? 2 : 1;
        if (!all_digits(s, "0123456789")) return false;
        s += strlen(s);
    }
    if (*s) return false;
    *out = strtod(text, NULL);
    return true;
}
