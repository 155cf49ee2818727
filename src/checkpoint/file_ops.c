/* SPDX-License-Identifier: MIT */
/* The system's own calls, and the same calls with messages; see file_ops.h. */
#include "checkpoint/file_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

static int system_create(void *context, const char *path)
{
    (void)context;
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

static ssize_t system_write(void *context, int fd, const void *bytes, size_t n)
{
    (void)context;
    return write(fd, bytes, n);
}

static int system_sync(void *context, int fd)
{
    (void)context;
    return fsync(fd);
}

static int system_close(void *context, int fd)
{
    (void)context;
    return close(fd);
}

static int system_make_folder(void *context, const char *path)
{
    (void)context;
    return mkdir(path, 0755);
}

static int system_sync_folder(void *context, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc, kept;

    (void)context;
    if (fd < 0) return -1;
    rc = fsync(fd);
    kept = errno;
    close(fd);
    errno = kept;
    return rc && kept == EINVAL ? 0 : rc; /* EINVAL: a file system whose folders need no flushing */
}

static int system_rename(void *context, const char *from, const char *to)
{
    (void)context;
    return rename(from, to);
}

static int system_exchange(void *context, const char *a, const char *b)
{
    (void)context;
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

const struct file_ops file_ops_system = {
    .create = system_create,
    .write = system_write,
    .sync = system_sync,
    .close = system_close,
    .make_folder = system_make_folder,
    .sync_folder = system_sync_folder,
    .rename = system_rename,
    .exchange = system_exchange,
};

static const struct file_ops *ops_of(const struct file_ops *o) { return o ? o : &file_ops_system; }

err_t file_create(const struct file_ops *o, const char *path, int *fd, struct error *e)
{
    o = ops_of(o);
    *fd = o->create(o->context, path);
    return *fd < 0 ? io_fail(e, "create", path) : ERR_NONE;
}

err_t file_write(const struct file_ops *o, int fd, const void *bytes, size_t n, const char *path, struct error *e)
{
    const char *p = bytes;

    o = ops_of(o);
    while (n) {
        ssize_t done = o->write(o->context, fd, p, n > (1u << 30) ? (1u << 30) : n);

        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = EIO; /* neither progress nor a reason: do not ask for ever */
        if (done <= 0) return io_fail(e, "write", path);
        p += done;
        n -= (size_t)done;
    }
    return ERR_NONE;
}

err_t file_finish(const struct file_ops *o, int fd, const char *path, struct error *e)
{
    err_t rc = ERR_NONE;

    o = ops_of(o);
    if (o->sync(o->context, fd)) rc = io_fail(e, "flush", path);
    if (o->close(o->context, fd) && !rc) rc = io_fail(e, "close", path);
    return rc;
}

void file_abandon(const struct file_ops *o, int fd)
{
    o = ops_of(o);
    if (fd >= 0) o->close(o->context, fd);
}

err_t file_make_folder(const struct file_ops *o, const char *path, struct error *e)
{
    o = ops_of(o);
    return o->make_folder(o->context, path) ? io_fail(e, "make the folder", path) : ERR_NONE;
}

err_t file_sync_folder(const struct file_ops *o, const char *path, struct error *e)
{
    o = ops_of(o);
    return o->sync_folder(o->context, path) ? io_fail(e, "flush the folder", path) : ERR_NONE;
}

err_t file_rename(const struct file_ops *o, const char *from, const char *to, struct error *e)
{
    o = ops_of(o);
    return o->rename(o->context, from, to) ? io_fail(e, "rename to", to) : ERR_NONE;
}

err_t file_replace_folder(const struct file_ops *o, const char *fresh, const char *old, const char *spare,
                          struct error *e)
{
    err_t rc;

    o = ops_of(o);
    if (o->exchange(o->context, fresh, old) == 0) return ERR_NONE;
    if (errno != EINVAL && errno != ENOSYS) return io_fail(e, "swap in", fresh);
    rc = file_rename(o, old, spare, e);
    if (rc) return rc;
    rc = file_rename(o, fresh, old, e);
    if (rc) {
        if (o->rename(o->context, spare, old)) return error_prefix(e, rc, "the former folder is now %s", spare);
        return rc;
    }
    return ERR_NONE;
}
