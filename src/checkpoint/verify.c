/* SPDX-License-Identifier: MIT */
/* Comparing every checksum of a checkpoint; see load.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "checkpoint/load.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_reader.h"

static err_t verify_file(const char *path, const struct manifest_file *f, struct error *e)
{
    char buffer[1 << 16];
    int fd;
    uint32_t crc = 0;
    uint64_t bytes = 0;
    err_t rc = io_open_file(path, &fd, e);
    ssize_t n;

    if (rc) return rc;
    while (!rc && (n = read(fd, buffer, sizeof buffer)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            rc = io_fail(e, "read", path);
        } else {
            crc = hash_crc32c(crc, buffer, (size_t)n);
            bytes += (uint64_t)n;
        }
    }
    close(fd);
    if (rc) return rc;
    if (bytes != f->bytes)
        return FAIL(e, ERR_FORMAT, "%s is damaged: it has %llu bytes, the manifest says %llu", path,
                    (unsigned long long)bytes, (unsigned long long)f->bytes);
    if (crc != f->crc32c) return FAIL(e, ERR_FORMAT, "%s is damaged: its checksum does not match", path);
    return ERR_NONE;
}

/* Every tensor's pieces in file number `file`. */
static err_t verify_pieces(struct piece_reader *reader, const struct manifest *m, int file, struct error *e)
{
    err_t rc = piece_reader_open(reader, file, e);

    for (int i = 0; !rc && i < m->n_tensors; i++)
        for (int k = 0; !rc && k < m->tensors[i].n_pieces; k++)
            if (m->tensors[i].pieces[k].file == file)
                rc = piece_reader_read(reader, &m->tensors[i], &m->tensors[i].pieces[k], NULL, e);
    return rc;
}

err_t checkpoint_verify(const char *path, int64_t *out_bytes, struct error *e)
{
    struct piece_reader reader = {0};
    struct manifest m = {0};
    struct arena a = {0};
    err_t rc;

    *out_bytes = 0;
    rc = manifest_read(&m, path, e);
    if (!rc) rc = piece_reader_init(&reader, &m, path, e);
    for (int i = 0; !rc && i < m.n_files; i++) {
        char *file = io_join(&a, path, m.files[i].name);

        rc = file ? verify_file(file, &m.files[i], e) : FAIL(e, ERR_MEMORY, "out of memory while reading %s", path);
        if (!rc) rc = verify_pieces(&reader, &m, i, e);
        *out_bytes += (int64_t)m.files[i].bytes;
    }
    piece_reader_release(&reader);
    manifest_release(&m);
    arena_release(&a);
    return rc;
}
