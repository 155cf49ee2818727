/* SPDX-License-Identifier: MIT */
/*
 * The safetensors format: an 8-byte little-endian header length, a JSON header {name: {dtype, shape,
 * data_offsets}}, the data.
 *
 * The reader maps the file and checks everything before it hands out an offset: it takes what the reference
 * reader takes (any order of entries, unaligned tensors, empty tensors, scalars, unknown keys in an entry,
 * padding by spaces) and refuses what that refuses (holes, overlaps, missing or spare data, unknown types,
 * metadata that is not text). The writer sorts by element size, then by name, and pads the header, so that
 * every tensor lies aligned to its element.
 */
#ifndef CHECKPOINT_SAFETENSORS_H
#define CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/mem.h"
#include "checkpoint/file_ops.h"

#define SAFETENSORS_MAX_HEADER_BYTES 100000000u

/* All element types of the format, with their sizes in bits; ctitan computes with those that
 * dtype_file_name() gives. */
/* clang-format off */
#define SAFETENSORS_TYPES(X)                                                                                 \
    X("BOOL", 8)                                                                                             \
    X("F4", 4)                                                                                               \
    X("F6_E2M3", 6)                                                                                          \
    X("F6_E3M2", 6)                                                                                          \
    X("U8", 8) X("I8", 8) X("F8_E5M2", 8) X("F8_E4M3", 8) X("F8_E8M0", 8) X("F8_E4M3FNUZ", 8)                \
        X("F8_E5M2FNUZ", 8) X("I16", 16) X("U16", 16) X("F16", 16) X("BF16", 16) X("I32", 32) X("U32", 32)   \
            X("F32", 32) X("C64", 64) X("F64", 64) X("I64", 64) X("U64", 64)
/* clang-format on */

struct safetensors_entry {
    const char *name;
    const char *type_name; /* "BF16" */
    int n_dims;
    const int64_t *dim; /* [n_dims] */
    uint64_t offset;    /* of the first byte, from the start of the data */
    uint64_t bytes;
};

struct safetensors {
    const char *path;                  /* for messages */
    struct safetensors_entry *entries; /* sorted by name */
    int n_entries;
    const char **metadata;     /* key, value, key, value.. ; "" texts included */
    int n_metadata;            /* pairs */
    const unsigned char *data; /* mapped; unaligned tensors are legal, so copy before use as numbers */
    uint64_t data_bytes;
    uint64_t data_start; /* of data in the file */
    /* private */
    struct arena arena;
    void *map;
    size_t map_bytes;
    int fd_plus_one; /* 0 = none, so that a zeroed struct is closed */
};

err_t safetensors_open(struct safetensors *s, const char *path, struct error *e) MUST_CHECK;
void safetensors_close(struct safetensors *s);

/* The same on bytes in memory, which must outlive s. */
err_t safetensors_parse(struct safetensors *s, const void *bytes, size_t n, const char *path,
                        struct error *e) MUST_CHECK;

const struct safetensors_entry *safetensors_find(const struct safetensors *s, const char *name); /* NULL: none */

/* Copies bytes [first, first + n) of an entry by read(2): a failing disk gives an error, where touching
 * `data` would end the process. */
err_t safetensors_read(const struct safetensors *s, const struct safetensors_entry *entry, uint64_t first, void *out,
                       size_t n, struct error *e) MUST_CHECK;

/* ---- writing ---- */
struct safetensors_item {
    const char *name;
    enum dtype type;
    int n_dims;
    const int64_t *dim; /* of what is stored */
    const void *data;
    /* results */
    uint64_t offset; /* of the first byte, from the start of the file */
    uint64_t bytes;
    uint32_t crc32c; /* of those bytes */
};

struct safetensors_written {
    uint64_t bytes; /* of the whole file */
    uint32_t crc32c;
};

/* Creates path, writes, flushes and closes it; sorts items. metadata = {"key", "value", .., NULL} or NULL;
 * "format": "pt" is added, because some readers insist on it. On failure the file is left for the caller to
 * remove. */
err_t safetensors_write(const struct file_ops *files, const char *path, struct safetensors_item *items, int n_items,
                        const char *const *metadata, struct safetensors_written *out, struct error *e) MUST_CHECK;

#endif
