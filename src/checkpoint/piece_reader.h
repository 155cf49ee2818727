/* SPDX-License-Identifier: MIT */
/* Reading the pieces of a checkpoint's files, one file open at a time, each piece compared with its checksum.
 */
#ifndef CHECKPOINT_PIECE_READER_H
#define CHECKPOINT_PIECE_READER_H

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

struct piece_reader {
    const struct manifest *m;
    const char *folder;
    struct safetensors file;
    char *bounce; /* for bytes of a piece that nobody asked for */
};

/* Where rows [first, first + n) of a tensor go. */
struct row_range {
    int64_t first, n;
    void *data;
};

err_t piece_reader_init(struct piece_reader *r, const struct manifest *m, const char *folder,
                        struct error *e) MUST_CHECK;
void piece_reader_release(struct piece_reader *r);

/* Opens file number `file` of the manifest in place of the one that was open. */
err_t piece_reader_open(struct piece_reader *r, int file, struct error *e) MUST_CHECK;

/* Reads the whole piece of tensor t, which lies in the open file, compares its checksum, and copies the rows
 * that `rows` asks for. rows NULL: only compares. */
err_t piece_reader_read(struct piece_reader *r, const struct manifest_tensor *t, const struct manifest_piece *p,
                        const struct row_range *rows, struct error *e) MUST_CHECK;

#endif
