/* SPDX-License-Identifier: MIT */
/* Failing file calls; see fault_files.h. */
#include "tests/support/fault_files.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static bool hits(struct fault_files *f, const char *call)
{
    if (f->countdown < 0 || f->countdown-- != 0) return false;
    if (f->kill) raise(SIGKILL);
    f->fired = true;
    f->call = call;
    errno = f->error;
    return true;
}

static int fault_create(void *context, const char *path)
{
    return hits(context, "create") ? -1 : file_ops_system.create(NULL, path);
}

static ssize_t fault_write(void *context, int fd, const void *bytes, size_t n)
{
    struct fault_files *f = context;

    if (f->half_written) {
        errno = f->error;
        return -1;
    }
    if (!hits(f, "write")) return file_ops_system.write(NULL, fd, bytes, n);
    f->half_written = n > 1;
    return f->half_written ? file_ops_system.write(NULL, fd, bytes, n / 2) : -1;
}

static int fault_sync(void *context, int fd)
{
    struct fault_files *f = context;

    if (hits(f, "sync")) return -1;
    return f->no_sync ? 0 : file_ops_system.sync(NULL, fd);
}

static int fault_close(void *context, int fd)
{
    bool hit = hits(context, "close");
    int rc = file_ops_system.close(NULL, fd);

    if (!hit) return rc;
    errno = ((struct fault_files *)context)->error;
    return -1;
}

static int fault_make_folder(void *context, const char *path)
{
    return hits(context, "make_folder") ? -1 : file_ops_system.make_folder(NULL, path);
}

static int fault_sync_folder(void *context, const char *path)
{
    struct fault_files *f = context;

    if (hits(f, "sync_folder")) return -1;
    return f->no_sync ? 0 : file_ops_system.sync_folder(NULL, path);
}

static int fault_rename(void *context, const char *from, const char *to)
{
    return hits(context, "rename") ? -1 : file_ops_system.rename(NULL, from, to);
}

static int fault_exchange(void *context, const char *a, const char *b)
{
    struct fault_files *f = context;

    if (f->no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return hits(f, "exchange") ? -1 : file_ops_system.exchange(NULL, a, b);
}

void fault_files_init(struct fault_files *f, long countdown, int error)
{
    *f = (struct fault_files){.countdown = countdown, .error = error};
    f->ops = (struct file_ops){.context = f,
                               .create = fault_create,
                               .write = fault_write,
                               .sync = fault_sync,
                               .close = fault_close,
                               .make_folder = fault_make_folder,
                               .sync_folder = fault_sync_folder,
                               .rename = fault_rename,
                               .exchange = fault_exchange};
}
