/* SPDX-License-Identifier: MIT */
/* One file's content from start to end, decompressed on the way if asked. */
#ifndef DATA_SOURCE_STREAM_H
#define DATA_SOURCE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A zeroed struct is closed. */
struct source_stream {
    const char *path; /* borrowed, for messages; NULL = closed */
    int fd;
    void *gzip; /* zlib's handle, which then owns fd */
};

err_t source_stream_open(struct source_stream *s, const char *path, bool is_gzip, struct error *e) MUST_CHECK;
/* Fills up to n bytes; *got < n only at the end of the content. A cut or damaged gzip file is ERR_FORMAT. */
err_t source_stream_read(struct source_stream *s, char *out, size_t n, size_t *got, struct error *e) MUST_CHECK;
int64_t source_stream_position(const struct source_stream *s); /* in the stored file */
void source_stream_close(struct source_stream *s);

#endif
