/* SPDX-License-Identifier: MIT */
/* A folder of its own for one test, and files in it. Failures fail the running cmocka test. */
#ifndef SUPPORT_TEMP_H
#define SUPPORT_TEMP_H

#include <stddef.h>

enum { TEMP_PATH_BYTES = 512 };

struct temp {
    char folder[TEMP_PATH_BYTES];
    char path[TEMP_PATH_BYTES + 128]; /* the last temp_path() */
};

void temp_make(struct temp *t);                          /* under ${TMPDIR:-/tmp} */
void temp_remove(struct temp *t);                        /* with everything in it */
const char *temp_path(struct temp *t, const char *name); /* <folder>/<name>; valid until the next call */
const char *temp_write(struct temp *t, const char *name, const void *bytes,
                       size_t n); /* makes the folders on the way; returns the path */
const char *temp_write_text(struct temp *t, const char *name, const char *text);

#endif
