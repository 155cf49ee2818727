/* SPDX-License-Identifier: MIT */
/* Files, plain through read(2) and compressed through zlib; see source_stream.h. */
#include "data/source_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/io.h"

enum { GZIP_BUFFER_BYTES = 1 << 18, READ_MAX_BYTES = 1 << 30 };

err_t source_stream_open(struct source_stream *s, const char *path, bool is_gzip, struct error *e)
{
    int fd;
    err_t rc = io_open_file(path, &fd, e);

    memset(s, 0, sizeof *s);
    if (rc) return rc;
    if (is_gzip) {
        gzFile gz = gzdopen(fd, "rb");

        if (!gz) {
            close(fd);
            return FAIL(e, ERR_MEMORY, "out of memory while opening %s", path);
        }
        gzbuffer(gz, GZIP_BUFFER_BYTES);
        s->gzip = gz;
    }
    s->fd = fd;
    s->path = path;
    return ERR_NONE;
}

static err_t read_plain(struct source_stream *s, char *out, size_t n, size_t *got, struct error *e)
{
    while (*got < n) {
        size_t want = n - *got;
        ssize_t done = read(s->fd, out + *got, want > READ_MAX_BYTES ? READ_MAX_BYTES : want);

        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return io_fail(e, "read", s->path);
        if (done == 0) break;
        *got += (size_t)done;
    }
    return ERR_NONE;
}

static err_t read_gzip(struct source_stream *s, char *out, size_t n, size_t *got, struct error *e)
{
    int status = Z_OK;
    const char *reason;

    while (*got < n) {
        size_t want = n - *got;
        int done = gzread(s->gzip, out + *got, want > READ_MAX_BYTES ? (unsigned)READ_MAX_BYTES : (unsigned)want);

        if (done <= 0) break;
        *got += (size_t)done;
    }
    if (*got && gzdirect(s->gzip))
        return FAIL(e, ERR_FORMAT, "%s is not a gzip file although its name ends with .gz: rename or recompress it",
                    s->path);
    reason = gzerror(s->gzip, &status);
    if (status == Z_OK || status == Z_STREAM_END) return ERR_NONE;
    if (status == Z_ERRNO) return io_fail(e, "read", s->path);
    return FAIL(e, ERR_FORMAT, "cannot decompress %s near byte %lld: %s (the file is cut short or damaged)", s->path,
                (long long)gzoffset(s->gzip), reason);
}

err_t source_stream_read(struct source_stream *s, char *out, size_t n, size_t *got, struct error *e)
{
    *got = 0;
    return s->gzip ? read_gzip(s, out, n, got, e) : read_plain(s, out, n, got, e);
}

int64_t source_stream_position(const struct source_stream *s)
{
    if (!s->path) return 0;
    return s->gzip ? (int64_t)gzoffset(s->gzip) : (int64_t)lseek(s->fd, 0, SEEK_CUR);
}

void source_stream_close(struct source_stream *s)
{
    if (!s->path) return;
    if (s->gzip)
        gzclose(s->gzip);
    else
        close(s->fd);
    memset(s, 0, sizeof *s);
}
