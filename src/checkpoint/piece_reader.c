/* SPDX-License-Identifier: MIT */
/* Pieces of a checkpoint's files; see piece_reader.h. */
#include "checkpoint/piece_reader.h"

#include <string.h>

#include "base/hash.h"
#include "base/io.h"

enum { READ_CHUNK_BYTES = 1 << 20 }; /* so that the checksum finds the bytes in the cache */

err_t piece_reader_init(struct piece_reader *r, const struct manifest *m, const char *folder, struct error *e)
{
    *r = (struct piece_reader){.m = m, .folder = folder, .bounce = mem_alloc(READ_CHUNK_BYTES)};
    return r->bounce ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory while reading %s", folder);
}

void piece_reader_release(struct piece_reader *r)
{
    safetensors_close(&r->file);
    mem_free(r->bounce);
    *r = (struct piece_reader){0};
}

err_t piece_reader_open(struct piece_reader *r, int file, struct error *e)
{
    const struct manifest_file *f = &r->m->files[file];
    struct arena a = {0};
    char *path = io_join(&a, r->folder, f->name);
    err_t rc;

    safetensors_close(&r->file);
    rc = path ? safetensors_open(&r->file, path, e) : FAIL(e, ERR_MEMORY, "out of memory while reading %s", r->folder);
    if (!rc && r->file.data_start + r->file.data_bytes != f->bytes)
        rc = FAIL(e, ERR_FORMAT, "%s is damaged: it has %llu bytes, the manifest says %llu", path,
                  (unsigned long long)(r->file.data_start + r->file.data_bytes), (unsigned long long)f->bytes);
    arena_release(&a);
    return rc;
}

/* The entry in the file must be what the manifest promises. */
static err_t find_entry(const struct piece_reader *r, const struct manifest_tensor *t, const struct manifest_piece *p,
                        const struct safetensors_entry **out, struct error *e)
{
    const struct safetensors_entry *entry = safetensors_find(&r->file, t->name);

    if (!entry) return FAIL(e, ERR_FORMAT, "%s: %s is not there, though the manifest says so", r->file.path, t->name);
    if (strcmp(entry->type_name, dtype_file_name(t->type)) != 0 || entry->bytes != p->bytes ||
        r->file.data_start + entry->offset != p->offset)
        return FAIL(e, ERR_FORMAT, "%s: %s has another type or place than the manifest says", r->file.path, t->name);
    *out = entry;
    return ERR_NONE;
}

err_t piece_reader_read(struct piece_reader *r, const struct manifest_tensor *t, const struct manifest_piece *p,
                        const struct row_range *rows, struct error *e)
{
    uint64_t row_bytes = p->bytes / (uint64_t)p->n_rows, low = 0, high = 0; /* bytes of the piece that are wanted */
    const struct safetensors_entry *entry = NULL;
    char *to = NULL; /* where byte `low` goes */
    uint32_t crc = 0;
    err_t rc;

    rc = find_entry(r, t, p, &entry, e);
    if (rows) {
        int64_t first = rows->first > p->first_row ? rows->first : p->first_row;
        int64_t end =
            rows->first + rows->n < p->first_row + p->n_rows ? rows->first + rows->n : p->first_row + p->n_rows;

        low = (uint64_t)(first - p->first_row) * row_bytes;
        high = (uint64_t)(end - p->first_row) * row_bytes;
        to = (char *)rows->data + (uint64_t)(first - rows->first) * row_bytes;
    }
    for (uint64_t at = 0, n; !rc && at < p->bytes; at += n) {
        bool is_wanted;
        char *chunk;

        n = p->bytes - at < READ_CHUNK_BYTES ? p->bytes - at : READ_CHUNK_BYTES;
        is_wanted = at >= low && at + n <= high;
        chunk = is_wanted ? to + (at - low) : r->bounce;
        rc = safetensors_read(&r->file, entry, at, chunk, n, e);
        if (rc) break;
        crc = hash_crc32c(crc, chunk, n);
        if (!is_wanted && at < high && at + n > low) {
            uint64_t begin = at > low ? at : low, end = at + n < high ? at + n : high;

            memcpy(to + (begin - low), chunk + (begin - at), end - begin);
        }
    }
    if (!rc && crc != p->crc32c)
        rc = FAIL(e, ERR_FORMAT,
                  "%s is damaged: the checksum of %s does not match; use an earlier checkpoint "
                  "(checkpoint.load_step)",
                  r->file.path, t->name);
    return rc;
}
