/* SPDX-License-Identifier: MIT */
/* Files and folders; see io.h. */
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *advice(int error_number)
{
    switch (error_number) {
    case ENOSPC: return " (the disk is full: free space or choose another folder)";
    case EDQUOT: return " (the disk quota is used up: free space or choose another folder)";
    case EROFS: return " (the file system is read-only)";
    case EACCES: return " (check the permissions)";
    default: return "";
    }
}

err_t io_fail(struct error *e, const char *what, const char *path)
{
    int n = errno;

    return FAIL(e, n == ENOENT ? ERR_MISSING : ERR_IO, "cannot %s %s: %s%s", what, path, strerror(n), advice(n));
}

/* O_NONBLOCK: a pipe without a writer would hold up open() itself. Files do not know it. */
static err_t open_file(const char *path, int *fd, struct stat *st, struct error *e)
{
    err_t rc = ERR_NONE;

    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return io_fail(e, "open", path);
    if (fstat(*fd, st))
        rc = io_fail(e, "look at", path);
    else if (!S_ISREG(st->st_mode))
        rc = FAIL(e, ERR_FORMAT, "%s is a %s, not a file: move it away", path,
                  S_ISDIR(st->st_mode) ? "folder" : "pipe or device");
    if (rc) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}

err_t io_open_file(const char *path, int *fd, struct error *e)
{
    struct stat st;

    return open_file(path, fd, &st, e);
}

/* Appends all that is left in fd, and closes it. */
static err_t read_rest(int fd, const char *path, struct str *out, struct error *e)
{
    char buffer[1 << 16];
    err_t rc = ERR_NONE;
    ssize_t n;

    while ((n = read(fd, buffer, sizeof buffer)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            rc = io_fail(e, "read", path);
            break;
        }
        str_add_bytes(out, buffer, (size_t)n);
    }
    close(fd);
    return rc ? rc : str_ok(out, e);
}

err_t io_read_file_up_to(const char *path, int64_t most_bytes, struct str *out, struct error *e)
{
    struct stat st;
    int fd;
    err_t rc = open_file(path, &fd, &st, e);

    if (rc) return rc;
    if (st.st_size > most_bytes) {
        close(fd);
        return FAIL(e, ERR_FORMAT, "%s has %lld bytes; more than %lld are no such file", path, (long long)st.st_size,
                    (long long)most_bytes);
    }
    return read_rest(fd, path, out, e);
}

err_t io_read_file(const char *path, struct str *out, struct error *e)
{
    return io_read_file_up_to(path, INT64_MAX, out, e);
}

err_t io_read_stream(const char *path, struct str *out, struct error *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? io_fail(e, "open", path) : read_rest(fd, path, out, e);
}

err_t io_write_all(int fd, const void *bytes, size_t n, const char *path, struct error *e)
{
    const char *p = bytes;

    while (n) {
        ssize_t done = write(fd, p, n > (1u << 30) ? (1u << 30) : n);

        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = EIO; /* neither progress nor a reason: do not ask for ever */
        if (done <= 0) return io_fail(e, "write", path);
        p += done;
        n -= (size_t)done;
    }
    return ERR_NONE;
}

err_t io_write_atomic(const char *path, const void *bytes, size_t n, struct error *e)
{
    struct arena a = {0};
    char *temporary = arena_printf(&a, "%s.tmp-%ld", path, (long)getpid()), *folder = io_folder_of(&a, path);
    int fd = -1;
    err_t rc;

    if (!temporary || !folder) {
        rc = FAIL(e, ERR_MEMORY, "out of memory while writing %s", path);
        goto out;
    }
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        rc = io_fail(e, "create", temporary);
        goto out;
    }
    rc = io_write_all(fd, bytes, n, temporary, e);
    if (!rc && fsync(fd)) rc = io_fail(e, "flush", temporary);
    if (close(fd) && !rc) rc = io_fail(e, "close", temporary);
    if (!rc && rename(temporary, path)) rc = io_fail(e, "rename to", path);
    if (!rc) rc = io_sync_folder(folder, e);
    if (rc) unlink(temporary);
out:
    arena_release(&a);
    return rc;
}

err_t io_make_folders(const char *path, struct error *e)
{
    struct arena a = {0};
    char *copy = arena_strdup(&a, path);
    err_t rc = ERR_NONE;

    if (!copy) return FAIL(e, ERR_MEMORY, "out of memory while making the folder %s", path);
    for (char *p = copy + 1; !rc; p++) {
        char c = *p;

        if (c != '/' && c != '\0') continue;
        *p = '\0';
        if (mkdir(copy, 0755) && !io_is_folder(copy)) {
            if (errno == EEXIST) errno = ENOTDIR; /* "File exists" would say nothing of what is wrong with it */
            rc = io_fail(e, "make the folder", copy);
        }
        *p = c;
        if (!c) break;
    }
    arena_release(&a);
    return rc;
}

err_t io_remove_tree(const char *path, struct error *e)
{
    struct arena a = {0};
    struct stat st;
    char **names;
    err_t rc = ERR_NONE;
    int n;

    if (lstat(path, &st)) return errno == ENOENT ? ERR_NONE : io_fail(e, "look at", path);
    if (S_ISDIR(st.st_mode)) {
        rc = io_list(path, &a, &names, &n, e);
        for (int i = 0; !rc && i < n; i++) {
            char *child = io_join(&a, path, names[i]);

            rc = child ? io_remove_tree(child, e) : FAIL(e, ERR_MEMORY, "out of memory while removing %s", path);
        }
        if (!rc && rmdir(path)) rc = io_fail(e, "remove", path);
    } else if (unlink(path)) {
        rc = io_fail(e, "remove", path);
    }
    arena_release(&a);
    return rc;
}

err_t io_sync_folder(const char *path, struct error *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    err_t rc = ERR_NONE;

    if (fd < 0) return io_fail(e, "open the folder", path);
    if (fsync(fd) && errno != EINVAL) rc = io_fail(e, "flush the folder", path);
    close(fd);
    return rc;
}

bool io_exists(const char *path) { return access(path, F_OK) == 0; }

bool io_is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int64_t io_file_bytes(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

char *io_join(struct arena *a, const char *folder, const char *name)
{
    if (name[0] == '/' || !folder[0]) return arena_strdup(a, name);
    return arena_printf(a, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name);
}

char *io_folder_of(struct arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash) return arena_strdup(a, ".");
    return slash == path ? arena_strdup(a, "/") : arena_strndup(a, path, (size_t)(slash - path));
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

err_t io_list(const char *folder, struct arena *a, char ***out, int *n, struct error *e)
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    char **names = NULL, **kept;
    int count = 0, capacity = 0;
    err_t rc = ERR_NONE;

    *out = NULL;
    *n = 0;
    if (!d) return io_fail(e, "open the folder", folder);
    while (!rc) {
        errno = 0;
        entry = readdir(d);
        if (!entry) {
            if (errno) rc = io_fail(e, "list the folder", folder);
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 32;
            kept = mem_resize(names, (size_t)capacity, sizeof *names);
            if (!kept)
                rc = FAIL(e, ERR_MEMORY, "out of memory while listing %s", folder);
            else
                names = kept;
        }
        if (!rc && !(names[count++] = arena_strdup(a, entry->d_name)))
            rc = FAIL(e, ERR_MEMORY, "out of memory while listing %s", folder);
    }
    closedir(d);
    if (!rc && count) {
        qsort(names, (size_t)count, sizeof *names, by_name);
        *out = arena_array(a, (size_t)count, sizeof *names);
        if (*out)
            memcpy(*out, names, (size_t)count * sizeof *names);
        else
            rc = FAIL(e, ERR_MEMORY, "out of memory while listing %s", folder);
    }
    if (!rc) *n = count;
    mem_free(names);
    return rc;
}
