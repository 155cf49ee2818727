/* SPDX-License-Identifier: MIT */
/* Files: whole reads, durable atomic writes, folders. Errors name the path, the system's reason and what to do where it
 * is known. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/str.h"

/* Opens a file for reading; *fd is the caller's to close. A pipe, a device or a folder is refused at once with
 * ERR_FORMAT: opening or reading it might never end. */
err_t io_open_file(const char *path, int *fd, struct error *e) MUST_CHECK;

err_t io_read_file(const char *path, struct str *out,
                   struct error *e) MUST_CHECK; /* appends the whole file, opened as above */

/* The same, for a file that is no larger when it is what its name says; ERR_FORMAT before anything is read. */
err_t io_read_file_up_to(const char *path, int64_t most_bytes, struct str *out, struct error *e) MUST_CHECK;

/* The same for what a user names to be read from begin to end: pipes and devices too. */
err_t io_read_stream(const char *path, struct str *out, struct error *e) MUST_CHECK;

/* Writes path.tmp-<pid>, fsyncs it, renames it to path and fsyncs the folder: path holds the old or the new content,
 * never a mix. */
err_t io_write_atomic(const char *path, const void *bytes, size_t n, struct error *e) MUST_CHECK;

err_t io_write_all(int fd, const void *bytes, size_t n, const char *path,
                   struct error *e) MUST_CHECK;                      /* path: for messages */
err_t io_make_folders(const char *path, struct error *e) MUST_CHECK; /* like mkdir -p */
err_t io_remove_tree(const char *path, struct error *e) MUST_CHECK;  /* like rm -rf; a missing path is fine */
err_t io_sync_folder(const char *path, struct error *e) MUST_CHECK;  /* fsync of a directory, makes a rename durable */

bool io_exists(const char *path);
bool io_is_folder(const char *path);
int64_t io_file_bytes(const char *path); /* -1: no such file */

/* "a/b" from "a" and "b" (an absolute b wins), in the arena; NULL = out of memory. */
char *io_join(struct arena *a, const char *folder, const char *name);

/* "a" from "a/b", "." from "b", in the arena; NULL = out of memory. */
char *io_folder_of(struct arena *a, const char *path);

/* The error of a system call that just failed, from errno: "cannot <what> <path>: <reason> (<advice>)". Returns
 * ERR_MISSING for ENOENT, else ERR_IO. */
err_t io_fail(struct error *e, const char *what, const char *path);

/* Names (not paths) in a folder, sorted bytewise, without "." and ".."; *out is an array of *n strings in the arena. */
err_t io_list(const char *folder, struct arena *a, char ***out, int *n, struct error *e) MUST_CHECK;

#endif
