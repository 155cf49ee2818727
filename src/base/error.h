/* SPDX-License-Identifier: MIT */
/*
 * The one error convention of the project.
 *
 * A function that can fail returns err_t (0 = success) and takes a `struct error *` as its last parameter, which it
 * fills with a message that says what failed, with which value, and what to do about it. Layers never print and never
 * exit: only main() does. A broken invariant (a mistake in ctitan, not in its input) is BUG(), which aborts.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

typedef int err_t;

/* name, text used when only the code is known */
#define ERROR_CODES(X)                                                                                                 \
    X(ERR_NONE, "no error")                                                                                            \
    X(ERR_MEMORY, "out of memory")                                                                                     \
    X(ERR_USAGE, "wrong use of the command line")                                                                      \
    X(ERR_CONFIG, "invalid configuration")                                                                             \
    X(ERR_IO, "input or output failed")                                                                                \
    X(ERR_FORMAT, "malformed file")                                                                                    \
    X(ERR_RANGE, "value out of range")                                                                                 \
    X(ERR_DEVICE, "device failed")                                                                                     \
    X(ERR_COMM, "communication failed")                                                                                \
    X(ERR_TIMEOUT, "timed out")                                                                                        \
    X(ERR_PEER, "another rank failed")                                                                                 \
    X(ERR_BUSY, "in use by another process")                                                                           \
    X(ERR_MISSING, "not found")                                                                                        \
    X(ERR_UNSUPPORTED, "not supported by this build")                                                                  \
    X(ERR_STOPPED, "stopped on request; starting again goes on")                                                       \
    X(ERR_INTERRUPTED, "stopped on request; nothing was saved")

enum error_code {
#define X(code, text) code,
    ERROR_CODES(X)
#undef X
        ERR_COUNT
};

enum { ERROR_MESSAGE_BYTES = 2048 };

struct error {
    err_t code;
    const char *file; /* where in the source it was raised */
    int line;
    char message[ERROR_MESSAGE_BYTES];
};

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_index, first_arg) __attribute__((format(printf, format_index, first_arg)))

/* Fills e (may be NULL) and returns code, so that `return FAIL(...)` and `rc = FAIL(...)` both read well. */
#define FAIL(e, code, ...) error_fill((e), (code), __FILE__, __LINE__, __VA_ARGS__)
err_t error_fill(struct error *e, err_t code, const char *file, int line, const char *format, ...) PRINTF_LIKE(5, 6);

/* Puts "<text>: " before the message already in e (may be NULL), whose code becomes `code`, and returns that code. For
 * adding context on the way up: `return error_prefix(e, rc, "step %d", step)`. */
err_t error_prefix(struct error *e, err_t code, const char *format, ...) PRINTF_LIKE(3, 4);

const char *error_code_name(err_t code); /* "ERR_CONFIG" */
const char *error_code_text(err_t code); /* "invalid configuration" */

/* A broken invariant: prints where and what to stderr, then aborts. */
#define BUG(...) error_bug(__FILE__, __LINE__, __VA_ARGS__)
void error_bug(const char *file, int line, const char *format, ...) PRINTF_LIKE(3, 4) __attribute__((noreturn));
#define BUG_ON(condition)                                                                                              \
    do {                                                                                                               \
        if (condition) BUG("%s", #condition);                                                                          \
    } while (0)

#endif
