/* SPDX-License-Identifier: MIT */
/* Writing safetensors, with the checksums of what was written; see safetensors.h. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "checkpoint/safetensors.h"

enum { WRITE_CHUNK_BYTES = 1 << 20 }; /* small enough that both checksums find the bytes in the cache */

static int by_size_then_name(const void *a, const void *b)
{
    const struct safetensors_item *x = a, *y = b;
    size_t nx = dtype_bytes(x->type), ny = dtype_bytes(y->type);

    if (nx != ny) return nx > ny ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sets bytes and the offset from the start of the data. */
static err_t lay_out(struct safetensors_item *items, int n_items, const char *path, struct error *e)
{
    uint64_t at = 0;

    qsort(items, (size_t)n_items, sizeof *items, by_size_then_name);
    for (int i = 0; i < n_items; i++) {
        struct safetensors_item *t = &items[i];

        if (strcmp(t->name, "__metadata__") == 0 || (i && strcmp(t->name, items[i - 1].name) == 0))
            return FAIL(e, ERR_RANGE, "%s: a tensor cannot be named '%s'%s", path, t->name,
                        i ? " (is the name given twice?)" : "");
        t->bytes = dtype_bytes(t->type);
        for (int d = 0; d < t->n_dims; d++) t->bytes *= (uint64_t)t->dim[d];
        t->offset = at;
        at += t->bytes;
    }
    return ERR_NONE;
}

/* Length, JSON and padding: a multiple of 8 bytes in all. */
static err_t make_header(const struct safetensors_item *items, int n_items, const char *const *metadata,
                         struct str *out, const char *path, struct error *e)
{
    uint64_t n;

    str_add_bytes(out, "\0\0\0\0\0\0\0\n", 8); /* the last byte keeps json_open from adding a comma */
    json_open(out, '{');
    json_key(out, "__metadata__");
    json_open(out, '{');
    json_member_text(out, "format", "pt");
    for (; metadata && *metadata; metadata += 2) json_member_text(out, metadata[0], metadata[1]);
    json_close(out, '}');
    for (int i = 0; i < n_items; i++) {
        const struct safetensors_item *t = &items[i];

        json_key(out, t->name);
        json_open(out, '{');
        json_member_text(out, "dtype", dtype_file_name(t->type));
        json_key(out, "shape");
        json_open(out, '[');
        for (int d = 0; d < t->n_dims; d++) json_int(out, t->dim[d]);
        json_close(out, ']');
        json_key(out, "data_offsets");
        json_open(out, '[');
        json_uint(out, t->offset);
        json_uint(out, t->offset + t->bytes);
        json_close(out, ']');
        json_close(out, '}');
    }
    json_close(out, '}');
    str_add_bytes(out, "        ", (8 - out->length % 8) % 8);
    if (str_ok(out, e)) return ERR_MEMORY;
    n = out->length - 8;
    if (n > SAFETENSORS_MAX_HEADER_BYTES)
        return FAIL(e, ERR_RANGE, "%s: the header would take %llu bytes, the format allows %u", path,
                    (unsigned long long)n, SAFETENSORS_MAX_HEADER_BYTES);
    for (int i = 0; i < 8; i++) out->text[i] = (char)(n >> (8 * i));
    return ERR_NONE;
}

static err_t write_item(const struct file_ops *files, int fd, struct safetensors_item *t, const char *path,
                        struct safetensors_written *out, struct error *e)
{
    const char *p = t->data;

    t->crc32c = 0;
    for (uint64_t left = t->bytes; left;) {
        size_t n = left > WRITE_CHUNK_BYTES ? WRITE_CHUNK_BYTES : (size_t)left;
        err_t rc;

        t->crc32c = hash_crc32c(t->crc32c, p, n);
        out->crc32c = hash_crc32c(out->crc32c, p, n);
        rc = file_write(files, fd, p, n, path, e);
        if (rc) return rc;
        p += n;
        left -= n;
    }
    return ERR_NONE;
}

err_t safetensors_write(const struct file_ops *files, const char *path, struct safetensors_item *items, int n_items,
                        const char *const *metadata, struct safetensors_written *out, struct error *e)
{
    struct str header = {0};
    int fd = -1;
    err_t rc;

    memset(out, 0, sizeof *out);
    rc = lay_out(items, n_items, path, e);
    if (!rc) rc = make_header(items, n_items, metadata, &header, path, e);
    if (!rc) rc = file_create(files, path, &fd, e);
    if (!rc) rc = file_write(files, fd, header.text, header.length, path, e);
    if (rc) goto out;
    out->crc32c = hash_crc32c(0, header.text, header.length);
    out->bytes = header.length;
    for (int i = 0; !rc && i < n_items; i++) {
        rc = write_item(files, fd, &items[i], path, out, e);
        items[i].offset += header.length;
        out->bytes += items[i].bytes;
    }
    if (rc) goto out;
    rc = file_finish(files, fd, path, e);
    fd = -1;
out:
    file_abandon(files, fd);
    str_release(&header);
    return rc;
}
