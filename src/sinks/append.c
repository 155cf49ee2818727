/* SPDX-License-Identifier: MIT */
/* Whole records at the end of a file; see append.h. */
#include "sinks/append.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"

err_t append_open(struct append *a, const char *path, int flags, struct error *e)
{
    int fd, number;

    *a = (struct append){0};
    fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | flags, 0644);
    if (fd < 0) {
        number = errno;
        FAIL(e, ERR_IO, "cannot open %s for appending: %s", path, strerror(number));
        errno = number;
        return ERR_IO;
    }
    a->path = mem_strdup(path);
    if (!a->path) {
        close(fd);
        return FAIL(e, ERR_MEMORY, "out of memory while opening %s", path);
    }
    a->fd_plus_one = fd + 1;
    return ERR_NONE;
}

static err_t cut(struct append *a, struct error *e)
{
    a->is_torn = ftruncate(a->fd_plus_one - 1, a->size) != 0;
    if (!a->is_torn) return ERR_NONE;
    return FAIL(e, ERR_IO, "cannot cut a half-written record off %s: %s", a->path, strerror(errno));
}

err_t append_flush(struct append *a, struct error *e)
{
    struct stat st;
    err_t rc = str_ok(&a->buffer, e);

    if (!rc && a->is_torn) rc = cut(a, e);
    if (!rc && fstat(a->fd_plus_one - 1, &st)) rc = FAIL(e, ERR_IO, "cannot look at %s: %s", a->path, strerror(errno));
    if (!rc && a->buffer.length) {
        a->size = st.st_size;
        rc = io_write_all(a->fd_plus_one - 1, a->buffer.text, a->buffer.length, a->path, e);
        if (rc) cut(a, NULL);
    }
    str_clear(&a->buffer);
    return rc;
}

void append_close(struct append *a)
{
    if (a->fd_plus_one) close(a->fd_plus_one - 1);
    mem_free(a->path);
    str_release(&a->buffer);
    *a = (struct append){0};
}
