/* SPDX-License-Identifier: MIT */
/* Reading safetensors: every number of the header is checked against the file before anyone may use it; see
 * safetensors.h. */
#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

static const struct {
    const char *name;
    int bits;
} element_types[] = {
#define X(name, bits) {name, bits},
    SAFETENSORS_TYPES(X)
#undef X
};

enum { N_ELEMENT_TYPES = sizeof element_types / sizeof *element_types };

static err_t out_of_memory(const struct safetensors *s, struct error *e)
{
    return FAIL(e, ERR_MEMORY, "out of memory while reading %s", s->path);
}

/* The size of a tensor in bytes: false if it does not fit into 63 bits or is no whole number of bytes. */
static bool size_of(const struct safetensors_entry *t, int bits, uint64_t *out)
{
    uint64_t n = (uint64_t)bits;

    for (int d = 0; d < t->n_dims; d++)
        if (__builtin_mul_overflow(n, (uint64_t)t->dim[d], &n)) return false;
    *out = n / 8;
    return n % 8 == 0;
}

static err_t read_shape(struct safetensors *s, struct safetensors_entry *t, const json_t *shape, struct error *e)
{
    int64_t *dim;

    if (!json_is_array(shape)) return FAIL(e, ERR_FORMAT, "%s: %s: shape is not a list", s->path, t->name);
    t->n_dims = (int)json_array_size(shape);
    t->dim = dim = arena_array(&s->arena, (size_t)t->n_dims + 1, sizeof *dim);
    if (!dim) return out_of_memory(s, e);
    for (int d = 0; d < t->n_dims; d++) {
        const json_t *v = json_array_get(shape, (size_t)d);

        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return FAIL(e, ERR_FORMAT, "%s: %s: dimension %d of the shape is not a whole number >= 0", s->path, t->name,
                        d);
        dim[d] = json_integer_value(v);
    }
    return ERR_NONE;
}

static err_t read_offsets(struct safetensors *s, struct safetensors_entry *t, const json_t *offsets, struct error *e)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);

    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return FAIL(e, ERR_FORMAT, "%s: %s: data_offsets is not [begin, end] with 0 <= begin <= end", s->path, t->name);
    t->offset = (uint64_t)json_integer_value(begin);
    t->bytes = (uint64_t)json_integer_value(end) - t->offset;
    return ERR_NONE;
}

static err_t read_entry(struct safetensors *s, struct safetensors_entry *t, const char *name, const json_t *value,
                        struct error *e)
{
    const char *type = json_string_value(json_object_get(value, "dtype"));
    uint64_t bytes;
    int k = 0;
    err_t rc;

    t->name = arena_strdup(&s->arena, name);
    if (!t->name) return out_of_memory(s, e);
    if (!json_is_object(value)) return FAIL(e, ERR_FORMAT, "%s: %s: is not an object", s->path, name);
    while (type && k < N_ELEMENT_TYPES && strcmp(element_types[k].name, type) != 0) k++;
    if (!type || k == N_ELEMENT_TYPES)
        return FAIL(e, ERR_FORMAT, "%s: %s: unknown dtype '%s'", s->path, name, type ? type : "");
    t->type_name = element_types[k].name;
    rc = read_shape(s, t, json_object_get(value, "shape"), e);
    if (!rc) rc = read_offsets(s, t, json_object_get(value, "data_offsets"), e);
    if (rc) return rc;
    if (!size_of(t, element_types[k].bits, &bytes))
        return FAIL(e, ERR_FORMAT, "%s: %s: the shape is too large or does not fill whole bytes", s->path, name);
    if (bytes != t->bytes)
        return FAIL(e, ERR_FORMAT, "%s: %s: shape and dtype need %llu bytes, data_offsets span %llu", s->path, name,
                    (unsigned long long)bytes, (unsigned long long)t->bytes);
    return ERR_NONE;
}

static err_t read_metadata(struct safetensors *s, json_t *object, struct error *e)
{
    const char *key;
    json_t *value;
    int n = 0;

    if (!json_is_object(object)) return FAIL(e, ERR_FORMAT, "%s: __metadata__ is not an object", s->path);
    s->metadata = arena_array(&s->arena, 2 * json_object_size(object) + 1, sizeof *s->metadata);
    if (!s->metadata) return out_of_memory(s, e);
    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value))
            return FAIL(e, ERR_FORMAT, "%s: __metadata__: the value of '%s' is not a text", s->path, key);
        s->metadata[2 * n] = arena_strdup(&s->arena, key);
        s->metadata[2 * n + 1] = arena_strdup(&s->arena, json_string_value(value));
        if (!s->metadata[2 * n] || !s->metadata[2 * n + 1]) return out_of_memory(s, e);
        n++;
    }
    s->n_metadata = n;
    return ERR_NONE;
}

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;

    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* The tensors must tile the data: no hole, no overlap, nothing left over. */
static err_t check_tiling(struct safetensors *s, struct error *e)
{
    uint64_t at = 0;

    qsort(s->entries, (size_t)s->n_entries, sizeof *s->entries, by_offset);
    for (int i = 0; i < s->n_entries; i++) {
        const struct safetensors_entry *t = &s->entries[i];

        if (t->offset != at)
            return FAIL(e, ERR_FORMAT, "%s: %s begins at byte %llu of the data, %s byte %llu", s->path, t->name,
                        (unsigned long long)t->offset,
                        t->offset > at ? "leaving a hole from" : "inside the tensor that ends at",
                        (unsigned long long)at);
        at += t->bytes; /* cannot overflow: offsets fit into 63 bits */
    }
    if (at != s->data_bytes)
        return FAIL(e, ERR_FORMAT, "%s: the tensors take %llu bytes, the file holds %llu (%s)", s->path,
                    (unsigned long long)at, (unsigned long long)s->data_bytes,
                    at > s->data_bytes ? "it was cut off" : "something was appended");
    qsort(s->entries, (size_t)s->n_entries, sizeof *s->entries, by_name);
    return ERR_NONE;
}

static err_t read_header(struct safetensors *s, json_t *root, struct error *e)
{
    const char *key;
    json_t *value;
    err_t rc;

    s->entries = arena_array(&s->arena, json_object_size(root) + 1, sizeof *s->entries);
    if (!s->entries) return out_of_memory(s, e);
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0)
            rc = read_metadata(s, value, e);
        else
            rc = read_entry(s, &s->entries[s->n_entries++], key, value, e);
        if (rc) return rc;
    }
    return check_tiling(s, e);
}

err_t safetensors_parse(struct safetensors *s, const void *bytes, size_t n, const char *path, struct error *e)
{
    const unsigned char *p = bytes;
    json_error_t why;
    uint64_t header = 0;
    json_t *root = NULL;
    err_t rc;

    memset(s, 0, sizeof *s);
    s->path = arena_strdup(&s->arena, path);
    if (!s->path) return FAIL(e, ERR_MEMORY, "out of memory while reading %s", path);
    for (int i = 0; n >= 8 && i < 8; i++) header |= (uint64_t)p[i] << (8 * i);
    if (n < 8) {
        rc = FAIL(e, ERR_FORMAT, "%s: %zu bytes are too few for a safetensors file", path, n);
        goto out;
    }
    if (header > SAFETENSORS_MAX_HEADER_BYTES || header > n - 8) {
        rc = FAIL(e, ERR_FORMAT,
                  "%s: the header's length is given as %llu bytes, the file has %zu: not a safetensors file, "
                  "or cut off",
                  path, (unsigned long long)header, n);
        goto out;
    }
    s->data_start = 8 + header;
    s->data_bytes = n - s->data_start;
    s->data = p + s->data_start;
    root = json_loadb((const char *)p + 8, header, 0, &why);
    if (!root) {
        rc = FAIL(e, ERR_FORMAT, "%s: the header is not JSON: %s (byte %d)", path, why.text, why.position);
        goto out;
    }
    rc = json_is_object(root) ? read_header(s, root, e)
                              : FAIL(e, ERR_FORMAT, "%s: the header is not a JSON object", path);
out:
    json_decref(root);
    if (rc) safetensors_close(s);
    return rc;
}

err_t safetensors_open(struct safetensors *s, const char *path, struct error *e)
{
    int fd;
    void *map = MAP_FAILED;
    struct stat st;
    err_t rc = io_open_file(path, &fd, e);

    memset(s, 0, sizeof *s);
    if (rc) return rc;
    if (fstat(fd, &st)) {
        rc = io_fail(e, "look at", path);
        goto out;
    }
    if (st.st_size < 8) {
        rc = FAIL(e, ERR_FORMAT, "%s: not a safetensors file (shorter than 8 bytes)", path);
        goto out;
    }
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        rc = io_fail(e, "map", path);
        goto out;
    }
    rc = safetensors_parse(s, map, (size_t)st.st_size, path, e);
    if (rc) goto out;
    s->map = map;
    s->map_bytes = (size_t)st.st_size;
    s->fd_plus_one = fd + 1;
    return ERR_NONE;
out:
    if (map != MAP_FAILED) munmap(map, (size_t)st.st_size);
    close(fd);
    return rc;
}

void safetensors_close(struct safetensors *s)
{
    if (s->map) munmap(s->map, s->map_bytes);
    if (s->fd_plus_one) close(s->fd_plus_one - 1);
    arena_release(&s->arena);
    memset(s, 0, sizeof *s);
}

const struct safetensors_entry *safetensors_find(const struct safetensors *s, const char *name)
{
    struct safetensors_entry key = {.name = name};

    if (!s->n_entries) return NULL;
    return bsearch(&key, s->entries, (size_t)s->n_entries, sizeof *s->entries, by_name);
}

err_t safetensors_read(const struct safetensors *s, const struct safetensors_entry *entry, uint64_t first, void *out,
                       size_t n, struct error *e)
{
    uint64_t at = s->data_start + entry->offset + first;
    char *p = out;

    BUG_ON(first > entry->bytes || n > entry->bytes - first);
    if (!s->fd_plus_one) {
        if (n) memcpy(out, s->data + entry->offset + first, n);
        return ERR_NONE;
    }
    while (n) {
        ssize_t done = pread(s->fd_plus_one - 1, p, n > (1u << 30) ? (1u << 30) : n, (off_t)at);

        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return io_fail(e, "read", s->path);
        if (done == 0) return FAIL(e, ERR_IO, "%s became shorter while it was read", s->path);
        p += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return ERR_NONE;
}
