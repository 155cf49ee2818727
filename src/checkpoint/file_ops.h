/* SPDX-License-Identifier: MIT */
/*
 * The system calls by which a checkpoint reaches the disk, as a table: tests put a decorator in their place
 * that fails the n-th one. Each entry returns as the call of the same name does: -1 and errno on failure.
 */
#ifndef CHECKPOINT_FILE_OPS_H
#define CHECKPOINT_FILE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

struct file_ops {
    void *context;                                  /* of a decorator; passed to every call */
    int (*create)(void *context, const char *path); /* open for writing, made empty; the descriptor */
    ssize_t (*write)(void *context, int fd, const void *bytes, size_t n);
    int (*sync)(void *context, int fd);
    int (*close)(void *context, int fd);
    int (*make_folder)(void *context, const char *path);
    int (*sync_folder)(void *context, const char *path);
    int (*rename)(void *context, const char *from, const char *to); /* `to` must not exist as a filled folder */
    int (*exchange)(void *context, const char *a,
                    const char *b); /* swaps two folders; ENOSYS or EINVAL where it cannot be done */
};

extern const struct file_ops file_ops_system;

/* The same calls with messages that name the path and the reason. o NULL = the system's. */
err_t file_create(const struct file_ops *o, const char *path, int *fd, struct error *e) MUST_CHECK;
err_t file_write(const struct file_ops *o, int fd, const void *bytes, size_t n, const char *path,
                 struct error *e) MUST_CHECK;
err_t file_finish(const struct file_ops *o, int fd, const char *path,
                  struct error *e) MUST_CHECK;       /* sync and close; closes always */
void file_abandon(const struct file_ops *o, int fd); /* close without a word; fd < 0: nothing */
err_t file_make_folder(const struct file_ops *o, const char *path, struct error *e) MUST_CHECK;
err_t file_sync_folder(const struct file_ops *o, const char *path, struct error *e) MUST_CHECK;
err_t file_rename(const struct file_ops *o, const char *from, const char *to, struct error *e) MUST_CHECK;

/* Puts the folder `fresh` in the place of the folder `old`, which is then called `fresh` or `spare`. One
 * atomic step where the file system can swap two names, else two renames. */
err_t file_replace_folder(const struct file_ops *o, const char *fresh, const char *old, const char *spare,
                          struct error *e) MUST_CHECK;

#endif
