/* SPDX-License-Identifier: MIT */
/*
 * A file that only grows, by whole records: what is added to the buffer reaches the file in one flush or not
 * at all. Private to sinks/.
 */
#ifndef SINKS_APPEND_H
#define SINKS_APPEND_H

#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"

struct append {
    int fd_plus_one; /* 0: closed */
    char *path;      /* owned */
    struct str buffer;
    bool is_torn;   /* a half-written record could not be cut off yet */
    long long size; /* of the whole records, while is_torn */
};

/* flags: O_CREAT, O_EXCL. On failure nothing is held and errno says why. */
err_t append_open(struct append *a, const char *path, int flags, struct error *e) MUST_CHECK;

/* Writes the buffer and empties it. On failure the file is cut back to what it was and the buffer is empty
 * too. */
err_t append_flush(struct append *a, struct error *e) MUST_CHECK;

void append_close(struct append *a); /* drops what was not flushed; zeroed is fine */

#endif
