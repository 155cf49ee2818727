/* SPDX-License-Identifier: MIT */
/* Filling and extending error messages; see error.h for the convention. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

err_t error_fill(struct error *e, err_t code, const char *file, int line, const char *format, ...)
{
    va_list args;

    if (!e) return code;
    e->code = code;
    e->file = file;
    e->line = line;
    va_start(args, format);
    vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
    return code;
}

err_t error_prefix(struct error *e, err_t code, const char *format, ...)
{
    char tail[ERROR_MESSAGE_BYTES];
    va_list args;
    int n;

    if (!e) return code;
    memcpy(tail, e->message, sizeof tail);
    va_start(args, format);
    n = vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
    e->code = code;
    if (n >= 0 && (size_t)n < sizeof e->message) snprintf(e->message + n, sizeof e->message - (size_t)n, ": %s", tail);
    return code;
}

const char *error_code_name(err_t code)
{
    static const char *const names[] = {
#define X(code, text) #code,
        ERROR_CODES(X)
#undef X
    };
    return code >= 0 && code < ERR_COUNT ? names[code] : "ERR_UNKNOWN";
}

const char *error_code_text(err_t code)
{
    static const char *const texts[] = {
#define X(code, text) text,
        ERROR_CODES(X)
#undef X
    };
    return code >= 0 && code < ERR_COUNT ? texts[code] : "unknown error";
}

void error_bug(const char *file, int line, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "ctitan: internal error at %s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("\nThis is a mistake in ctitan itself; please report it with the lines above.\n", stderr);
    abort();
}
