/* SPDX-License-Identifier: MIT */
/* Reading and checking manifest.json; see manifest.h. Writing is in manifest_write.c. */
#include "checkpoint/manifest.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"

/* One place for "what is wrong with this manifest". */
struct reader {
    struct manifest *m;
    const char *path;
    struct error *e;
};

static err_t bad(const struct reader *r, const char *what, const json_error_t *why)
{
    return FAIL(r->e, ERR_FORMAT, "%s: %s: %s", r->path, what, why->text);
}

static err_t no_memory(const struct reader *r)
{
    return FAIL(r->e, ERR_MEMORY, "out of memory while reading %s", r->path);
}

static err_t keep(const struct reader *r, const char *text, const char **out)
{
    *out = arena_strdup(&r->m->arena, text);
    return *out ? ERR_NONE : no_memory(r);
}

/* Room for `more` elements behind the first n; the arena keeps the outgrown array until the end. */
static err_t grow(const struct reader *r, void **array, int n, size_t more, int *capacity, size_t size)
{
    size_t wanted = (size_t)n + more;
    void *fresh;

    if (wanted <= (size_t)*capacity) return ERR_NONE;
    if (wanted > 1u << 30) return FAIL(r->e, ERR_RANGE, "%s: %zu entries are too many", r->path, wanted);
    if (wanted < 2 * (size_t)n) wanted = 2 * (size_t)n;
    fresh = arena_array(&r->m->arena, wanted, size);
    if (!fresh) return no_memory(r);
    if (n) memcpy(fresh, *array, (size_t)n * size);
    *array = fresh;
    *capacity = (int)wanted;
    return ERR_NONE;
}

/* ---- reading ---- */
static err_t read_files(const struct reader *r, json_t *list)
{
    struct manifest *m = r->m;
    json_error_t why;
    json_t *v;
    size_t i;
    err_t rc;

    rc = grow(r, (void **)&m->files, m->n_files, json_array_size(list), &m->files_capacity, sizeof *m->files);
    if (rc) return rc;
    json_array_foreach(list, i, v)
    {
        struct manifest_file *f = &m->files[m->n_files];
        const char *name;
        json_int_t bytes, crc;

        if (json_unpack_ex(v, &why, 0, "{s:s, s:I, s:I}", "name", &name, "bytes", &bytes, "crc32c", &crc))
            return bad(r, "files", &why);
        if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            return FAIL(r->e, ERR_FORMAT, "%s: '%s' is not the name of a file in the checkpoint's folder", r->path,
                        name);
        if (bytes < 0 || crc < 0 || crc > UINT32_MAX)
            return FAIL(r->e, ERR_FORMAT, "%s: %s: size or checksum out of range", r->path, name);
        *f = (struct manifest_file){.bytes = (uint64_t)bytes, .crc32c = (uint32_t)crc};
        rc = keep(r, name, &f->name);
        if (rc) return rc;
        m->n_files++;
    }
    return ERR_NONE;
}

static err_t read_pieces(const struct reader *r, struct manifest_tensor *t, json_t *list, int first_file)
{
    json_error_t why;
    json_t *v;
    size_t i;

    t->pieces = arena_array(&r->m->arena, json_array_size(list) + 1, sizeof *t->pieces);
    if (!t->pieces) return no_memory(r);
    json_array_foreach(list, i, v)
    {
        json_int_t file, first, n, offset, bytes, crc;

        if (json_unpack_ex(v, &why, 0, "{s:I, s:[I, I!], s:I, s:I, s:I}", "file", &file, "rows", &first, &n, "offset",
                           &offset, "bytes", &bytes, "crc32c", &crc))
            return bad(r, t->name, &why);
        if (file < 0 || file >= r->m->n_files - first_file || first < 0 || n < 1 || n > INT64_MAX - first ||
            offset < 0 || bytes < 0 || crc < 0 || crc > UINT32_MAX)
            return FAIL(r->e, ERR_FORMAT, "%s: %s: piece %zu is out of range", r->path, t->name, i);
        t->pieces[t->n_pieces++] = (struct manifest_piece){.file = first_file + (int)file,
                                                           .first_row = first,
                                                           .n_rows = n,
                                                           .offset = (uint64_t)offset,
                                                           .bytes = (uint64_t)bytes,
                                                           .crc32c = (uint32_t)crc};
    }
    return ERR_NONE;
}

static err_t read_shape(const struct reader *r, struct manifest_tensor *t, const json_t *shape)
{
    uint64_t bytes = dtype_bytes(t->type);

    if (json_array_size(shape) > PARAMETER_MAX_DIMS)
        return FAIL(r->e, ERR_FORMAT, "%s: %s: %zu dimensions are more than %d", r->path, t->name,
                    json_array_size(shape), PARAMETER_MAX_DIMS);
    t->n_dims = (int)json_array_size(shape);
    for (int d = 0; d < t->n_dims; d++) {
        const json_t *v = json_array_get(shape, (size_t)d);

        t->dim[d] = json_integer_value(v);
        if (!json_is_integer(v) || t->dim[d] < 0 ||
            (t->dim[d] && __builtin_mul_overflow(bytes, (uint64_t)t->dim[d], &bytes)) || bytes > INT64_MAX)
            return FAIL(r->e, ERR_FORMAT, "%s: %s: dimension %d of the shape is out of range", r->path, t->name, d);
    }
    return ERR_NONE;
}

static err_t read_tensors(const struct reader *r, json_t *list, int first_file)
{
    struct manifest *m = r->m;
    json_error_t why;
    json_t *v;
    size_t i;
    err_t rc;

    rc = grow(r, (void **)&m->tensors, m->n_tensors, json_array_size(list), &m->tensors_capacity, sizeof *m->tensors);
    if (rc) return rc;
    json_array_foreach(list, i, v)
    {
        struct manifest_tensor *t = &m->tensors[m->n_tensors];
        const char *name, *kind, *type;
        json_t *shape, *pieces;

        memset(t, 0, sizeof *t);
        if (json_unpack_ex(v, &why, 0, "{s:s, s:s, s:s, s:o, s:o}", "name", &name, "kind", &kind, "dtype", &type,
                           "shape", &shape, "pieces", &pieces))
            return bad(r, "tensors", &why);
        if (!*name || !checkpoint_kind_parse(kind, &t->kind) || !dtype_parse(type, &t->type) || !json_is_array(shape) ||
            !json_is_array(pieces))
            return FAIL(r->e, ERR_FORMAT, "%s: tensor '%s': unknown kind '%s' or dtype '%s', or no shape or pieces",
                        r->path, name, kind, type);
        rc = keep(r, name, &t->name);
        if (!rc) rc = read_shape(r, t, shape);
        if (!rc) rc = read_pieces(r, t, pieces, first_file);
        if (rc) return rc;
        m->n_tensors++;
    }
    return ERR_NONE;
}

static err_t read_state(const struct reader *r, json_t *state)
{
    json_int_t step, tokens, epoch, sample, shuffle_seed, seed, optimizer_step, schedule_step;
    json_int_t data_hash = 0, tokenizer_hash = 0;
    json_error_t why;
    int healthy;

    if (json_unpack_ex(state, &why, 0, "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s?I, s?I, s:b}", "step", &step,
                       "tokens_seen", &tokens, "epoch", &epoch, "sample", &sample, "shuffle_seed", &shuffle_seed,
                       "seed", &seed, "optimizer_step", &optimizer_step, "schedule_step", &schedule_step, "data_hash",
                       &data_hash, "tokenizer_hash", &tokenizer_hash, "healthy", &healthy))
        return bad(r, "state", &why);
    if (step < 0 || tokens < 0 || epoch < 0 || sample < 0 || optimizer_step < 0 || schedule_step < 0)
        return FAIL(r->e, ERR_FORMAT, "%s: state: a counter is negative", r->path);
    r->m->state = (struct checkpoint_state){.step = step,
                                            .tokens_seen = tokens,
                                            .epoch = epoch,
                                            .sample = sample,
                                            .shuffle_seed = (uint64_t)shuffle_seed,
                                            .seed = (uint64_t)seed,
                                            .optimizer_step = optimizer_step,
                                            .schedule_step = schedule_step,
                                            .data_hash = (uint64_t)data_hash,
                                            .tokenizer_hash = (uint64_t)tokenizer_hash,
                                            .unhealthy = !healthy};
    return ERR_NONE;
}

static err_t read_mesh(const struct reader *r, json_t *mesh)
{
    struct manifest *m = r->m;
    json_error_t why;
    json_t *axes, *v;
    const char *key;
    json_int_t world;

    if (json_unpack_ex(mesh, &why, 0, "{s:I, s:o}", "world", &world, "axes", &axes)) return bad(r, "mesh", &why);
    if (world < 1 || world > INT32_MAX || !json_is_object(axes))
        return FAIL(r->e, ERR_FORMAT, "%s: mesh: world is not a number of ranks, or axes is not an object", r->path);
    m->world = (int)world;
    m->axes = arena_array(&m->arena, json_object_size(axes) + 1, sizeof *m->axes);
    if (!m->axes) return no_memory(r);
    json_object_foreach(axes, key, v)
    {
        struct checkpoint_axis *a = &m->axes[m->n_axes++];

        if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > INT32_MAX)
            return FAIL(r->e, ERR_FORMAT, "%s: mesh: the degree of %s is not a number >= 1", r->path, key);
        a->degree = (int)json_integer_value(v);
        if (keep(r, key, &a->name)) return ERR_MEMORY;
    }
    return ERR_NONE;
}

static int add_text(const char *text, size_t n, void *out)
{
    str_add_bytes(out, text, n);
    return 0;
}

static err_t read_config(const struct reader *r, const json_t *config)
{
    struct str text = {0};
    err_t rc = ERR_NONE;

    if (json_dump_callback(config, add_text, &text, JSON_ENCODE_ANY | JSON_COMPACT) || str_ok(&text, NULL))
        rc = no_memory(r);
    if (!rc) rc = keep(r, str_text(&text), &r->m->config_json);
    str_release(&text);
    return rc;
}

static err_t read_root(const struct reader *r, json_t *root)
{
    json_t *state, *mesh, *files, *tensors, *config;
    const char *run_id, *model, *binary, *saved_at;
    struct manifest *m = r->m;
    json_error_t why;
    json_int_t version;
    err_t rc;

    if (json_unpack_ex(root, &why, 0, "{s:I}", "ctitan_checkpoint", &version))
        return bad(r, "not a checkpoint of ctitan", &why);
    if (version != MANIFEST_VERSION)
        return FAIL(r->e, ERR_FORMAT,
                    "%s: format version %lld, this program reads version %d: use the version that wrote it", r->path,
                    (long long)version, MANIFEST_VERSION);
    if (json_unpack_ex(root, &why, 0, "{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "run_id", &run_id, "model",
                       &model, "binary", &binary, "saved_at", &saved_at, "state", &state, "mesh", &mesh, "files",
                       &files, "tensors", &tensors, "config", &config))
        return bad(r, "manifest", &why);
    if (!checkpoint_id_ok(run_id) || !json_is_array(files) || !json_is_array(tensors))
        return FAIL(r->e, ERR_FORMAT,
                    "%s: run id '%s' is not 1..%d letters and digits, or files or tensors is not a list", r->path,
                    run_id, CHECKPOINT_ID_BYTES - 1);
    rc = keep(r, run_id, &m->run_id);
    if (!rc) rc = keep(r, model, &m->model);
    if (!rc) rc = keep(r, binary, &m->binary);
    if (!rc) rc = keep(r, saved_at, &m->saved_at);
    if (!rc) rc = read_state(r, state);
    if (!rc) rc = read_mesh(r, mesh);
    if (!rc) rc = read_config(r, config);
    if (!rc) rc = read_files(r, files);
    if (!rc) rc = read_tensors(r, tensors, 0);
    return rc;
}

err_t manifest_parse(struct manifest *m, const char *text, size_t n, const char *path, struct error *e)
{
    struct reader r = {m, path, e};
    json_error_t why;
    json_t *root;
    err_t rc;

    memset(m, 0, sizeof *m);
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!root) return FAIL(e, ERR_FORMAT, "%s: line %d: %s", path, why.line, why.text);
    rc = read_root(&r, root);
    if (!rc) rc = manifest_finish(m, path, e);
    json_decref(root);
    if (rc) manifest_release(m);
    return rc;
}

void manifest_release(struct manifest *m)
{
    arena_release(&m->arena);
    memset(m, 0, sizeof *m);
}

err_t manifest_read(struct manifest *m, const char *checkpoint_path, struct error *e)
{
    struct str text = {0};
    struct arena a = {0};
    char *path = io_join(&a, checkpoint_path, "manifest.json");
    err_t rc;

    memset(m, 0, sizeof *m);
    rc = path ? manifest_read_text(checkpoint_path, &text, e)
              : FAIL(e, ERR_MEMORY, "out of memory while reading %s", checkpoint_path);
    if (!rc) rc = manifest_parse(m, str_text(&text), text.length, path, e);
    str_release(&text);
    arena_release(&a);
    return rc;
}

err_t manifest_part_merge(struct manifest *m, const char *text, size_t n, struct error *e)
{
    struct reader r = {m, "the report of a rank", e};
    int first_file = m->n_files, unhealthy;
    json_t *root, *files, *tensors;
    json_error_t why;
    err_t rc;

    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!root) return FAIL(e, ERR_FORMAT, "%s: %s", r.path, why.text);
    if (json_unpack_ex(root, &why, 0, "{s:b, s:o, s:o}", "unhealthy", &unhealthy, "files", &files, "tensors",
                       &tensors)) {
        rc = bad(&r, "part", &why);
    } else {
        m->state.unhealthy |= unhealthy != 0;
        rc = read_files(&r, files);
        if (!rc) rc = read_tensors(&r, tensors, first_file);
    }
    json_decref(root);
    return rc;
}

/* ---- order and completeness ---- */
static int by_kind_and_name(const void *a, const void *b)
{
    const struct manifest_tensor *x = a, *y = b;

    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_first_row(const void *a, const void *b)
{
    const struct manifest_piece *x = a, *y = b;

    return x->first_row < y->first_row ? -1 : x->first_row > y->first_row;
}

int64_t manifest_tensor_rows(const struct manifest_tensor *t) { return t->n_dims ? t->dim[0] : 1; }

static err_t check_cover(const struct manifest *m, struct manifest_tensor *t, const char *path, struct error *e)
{
    uint64_t row_bytes = dtype_bytes(t->type);
    int64_t at = 0;

    for (int d = 1; d < t->n_dims; d++) row_bytes *= (uint64_t)t->dim[d];
    if (t->n_pieces) qsort(t->pieces, (size_t)t->n_pieces, sizeof *t->pieces, by_first_row);
    for (int i = 0; i < t->n_pieces; i++) {
        const struct manifest_piece *p = &t->pieces[i];
        uint64_t bytes;

        if (p->first_row != at)
            return FAIL(e, ERR_FORMAT, "%s: %s: rows from %lld are %s", path, t->name,
                        (long long)(p->first_row < at ? p->first_row : at),
                        p->first_row < at ? "stored twice" : "missing");
        if (__builtin_mul_overflow((uint64_t)p->n_rows, row_bytes, &bytes) || bytes != p->bytes)
            return FAIL(e, ERR_FORMAT, "%s: %s: rows %lld.. have %llu bytes, which does not fit their shape", path,
                        t->name, (long long)p->first_row, (unsigned long long)p->bytes);
        if (p->offset > m->files[p->file].bytes || p->bytes > m->files[p->file].bytes - p->offset)
            return FAIL(e, ERR_FORMAT, "%s: %s: rows %lld.. lie outside the file %s", path, t->name,
                        (long long)p->first_row, m->files[p->file].name);
        at += p->n_rows;
    }
    if (at != manifest_tensor_rows(t))
        return FAIL(e, ERR_FORMAT, "%s: %s: %lld of %lld rows are stored", path, t->name, (long long)at,
                    (long long)manifest_tensor_rows(t));
    return ERR_NONE;
}

/* Puts the pieces of the n tensors at t, which share a name, into the first of them. */
static err_t unite(const struct reader *r, struct manifest_tensor *t, int n)
{
    struct manifest_piece *pieces;
    int total = 0;

    if (n == 1) return ERR_NONE;
    for (int i = 0; i < n; i++) {
        total += t[i].n_pieces;
        if (t[i].type != t->type || t[i].n_dims != t->n_dims || memcmp(t[i].dim, t->dim, sizeof t->dim) != 0)
            return FAIL(r->e, ERR_FORMAT, "%s: %s: described with two shapes or types", r->path, t->name);
    }
    pieces = arena_array(&r->m->arena, (size_t)total + 1, sizeof *pieces);
    if (!pieces) return no_memory(r);
    total = 0;
    for (int i = 0; i < n; i++) {
        memcpy(pieces + total, t[i].pieces, (size_t)t[i].n_pieces * sizeof *pieces);
        total += t[i].n_pieces;
    }
    t->pieces = pieces;
    t->n_pieces = total;
    return ERR_NONE;
}

err_t manifest_finish(struct manifest *m, const char *path, struct error *e)
{
    struct reader r = {m, path, e};
    int n_kept = 0;

    if (m->n_tensors) qsort(m->tensors, (size_t)m->n_tensors, sizeof *m->tensors, by_kind_and_name);
    for (int i = 0, n; i < m->n_tensors; i += n) {
        err_t rc;

        for (n = 1; i + n < m->n_tensors && !by_kind_and_name(&m->tensors[i], &m->tensors[i + n]);) n++;
        rc = unite(&r, &m->tensors[i], n);
        m->tensors[n_kept] = m->tensors[i];
        if (!rc) rc = check_cover(m, &m->tensors[n_kept++], path, e);
        if (rc) return rc;
    }
    m->n_tensors = n_kept;
    return ERR_NONE;
}

const struct manifest_tensor *manifest_find(const struct manifest *m, enum checkpoint_kind kind, const char *name)
{
    struct manifest_tensor key = {.name = name, .kind = kind};

    if (!m->n_tensors) return NULL;
    return bsearch(&key, m->tensors, (size_t)m->n_tensors, sizeof *m->tensors, by_kind_and_name);
}
