/* SPDX-License-Identifier: MIT */
/*
 * manifest.json: the table of contents of a checkpoint. It holds the global shape of every tensor and, for
 * each, the pieces (row ranges) that make it up: in which file, at which offset, with which checksum. Any
 * rank of any mesh can find its rows with it.
 */
#ifndef CHECKPOINT_MANIFEST_H
#define CHECKPOINT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"

enum { MANIFEST_VERSION = 1 };

struct manifest_piece {
    int file;                  /* index into files */
    int64_t first_row, n_rows; /* n_rows > 0 */
    uint64_t offset, bytes;    /* in the file */
    uint32_t crc32c;
};

struct manifest_tensor {
    const char *name;
    enum checkpoint_kind kind;
    enum dtype type;
    int n_dims;
    int64_t dim[PARAMETER_MAX_DIMS];
    struct manifest_piece *pieces; /* sorted by first_row; together they cover every row once */
    int n_pieces;
};

struct manifest_file {
    const char *name; /* in the checkpoint's folder */
    uint64_t bytes;
    uint32_t crc32c;
};

struct manifest {
    const char *run_id, *model, *binary; /* binary: version of the program that wrote it */
    const char *saved_at;                /* UTC, ISO 8601 */
    const char *config_json;             /* the configuration, one JSON value */
    struct checkpoint_state state;
    struct checkpoint_axis *axes;
    int n_axes;
    int world;
    struct manifest_file *files;
    int n_files;
    struct manifest_tensor *tensors; /* sorted by kind, then name */
    int n_tensors;
    /* private */
    struct arena arena; /* owns what was parsed */
    int files_capacity, tensors_capacity;
};

/* Reads and checks everything: version, shapes, offsets inside files, pieces that cover each tensor once,
 * file names without a folder. `path`: for messages. On failure m is released. */
err_t manifest_parse(struct manifest *m, const char *text, size_t n, const char *path, struct error *e) MUST_CHECK;
void manifest_release(struct manifest *m);

/* The text of manifest.json, whose last line is a checksum of all before it; check out with str_ok. */
void manifest_write(const struct manifest *m, struct str *out);

/* Appends <checkpoint_path>/manifest.json after comparing its checksum. */
err_t manifest_read_text(const char *checkpoint_path, struct str *out, struct error *e) MUST_CHECK;
err_t manifest_read(struct manifest *m, const char *checkpoint_path, struct error *e) MUST_CHECK;

/* NULL: none */
const struct manifest_tensor *manifest_find(const struct manifest *m, enum checkpoint_kind kind, const char *name);
int64_t manifest_tensor_rows(const struct manifest_tensor *t);

/* Appends "dp_replicate 2 x dp_shard 4 (8 ranks)"; axes of degree 1 are left out. */
void manifest_mesh_text(const struct checkpoint_axis *axes, int n_axes, int world, struct str *out);

/* ---- what one rank wrote, gathered on rank 0 and merged into the manifest ---- */

/* Appends one rank's part as JSON: files, tensors and health of m. */
void manifest_part_write(const struct manifest *m, struct str *out);
/* Adds a part to m (text need not outlive the call). */
err_t manifest_part_merge(struct manifest *m, const char *text, size_t n, struct error *e) MUST_CHECK;
/* Sorts and checks m as manifest_parse does. */
err_t manifest_finish(struct manifest *m, const char *path, struct error *e) MUST_CHECK;

#endif
