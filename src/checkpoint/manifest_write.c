/* SPDX-License-Identifier: MIT */
/* Writing manifest.json, and its checksum; see manifest.h. A line per tensor, so that people can read and
 * compare it. */
#include "checkpoint/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"

enum { MANIFEST_MAX_BYTES = 1 << 30 };

/* The last key. Everything before its opening quote is covered by its value. */
#define CHECKSUM_KEY "\"manifest_crc32c\":"

/* A line break between two members; base/json.h adds no comma after one. */
static void next_line(struct str *out) { str_add(out, ",\n"); }

static void write_files(const struct manifest *m, struct str *out)
{
    json_key(out, "files");
    json_open(out, '[');
    for (int i = 0; i < m->n_files; i++) {
        if (i) next_line(out);
        json_open(out, '{');
        json_member_text(out, "name", m->files[i].name);
        json_member_int(out, "bytes", (int64_t)m->files[i].bytes);
        json_member_int(out, "crc32c", m->files[i].crc32c);
        json_close(out, '}');
    }
    json_close(out, ']');
}

static void write_piece(const struct manifest_piece *p, struct str *out)
{
    json_open(out, '{');
    json_member_int(out, "file", p->file);
    json_key(out, "rows");
    json_open(out, '[');
    json_int(out, p->first_row);
    json_int(out, p->n_rows);
    json_close(out, ']');
    json_member_int(out, "offset", (int64_t)p->offset);
    json_member_int(out, "bytes", (int64_t)p->bytes);
    json_member_int(out, "crc32c", p->crc32c);
    json_close(out, '}');
}

static void write_tensors(const struct manifest *m, struct str *out)
{
    json_key(out, "tensors");
    json_open(out, '[');
    for (int i = 0; i < m->n_tensors; i++) {
        const struct manifest_tensor *t = &m->tensors[i];

        if (i) next_line(out);
        json_open(out, '{');
        json_member_text(out, "name", t->name);
        json_member_text(out, "kind", checkpoint_kind_name(t->kind));
        json_member_text(out, "dtype", dtype_name(t->type));
        json_key(out, "shape");
        json_open(out, '[');
        for (int d = 0; d < t->n_dims; d++) json_int(out, t->dim[d]);
        json_close(out, ']');
        json_key(out, "pieces");
        json_open(out, '[');
        for (int k = 0; k < t->n_pieces; k++) write_piece(&t->pieces[k], out);
        json_close(out, ']');
        json_close(out, '}');
    }
    json_close(out, ']');
}

static void write_state(const struct checkpoint_state *s, struct str *out)
{
    json_key(out, "state");
    json_open(out, '{');
    json_member_int(out, "step", s->step);
    json_member_int(out, "tokens_seen", s->tokens_seen);
    json_member_int(out, "epoch", s->epoch);
    json_member_int(out, "sample", s->sample);
    json_member_int(out, "shuffle_seed", (int64_t)s->shuffle_seed); /* as signed: what readers of JSON can hold */
    json_member_int(out, "seed", (int64_t)s->seed);
    json_member_int(out, "optimizer_step", s->optimizer_step);
    json_member_int(out, "schedule_step", s->schedule_step);
    json_member_int(out, "data_hash", (int64_t)s->data_hash);
    json_member_int(out, "tokenizer_hash", (int64_t)s->tokenizer_hash);
    json_member_bool(out, "healthy", !s->unhealthy);
    json_close(out, '}');
}

void manifest_write(const struct manifest *m, struct str *out)
{
    size_t start = out->length;

    json_open(out, '{');
    json_member_int(out, "ctitan_checkpoint", MANIFEST_VERSION);
    json_member_text(out, "run_id", m->run_id);
    json_member_text(out, "model", m->model);
    json_member_text(out, "binary", m->binary);
    json_member_text(out, "saved_at", m->saved_at);
    next_line(out);
    write_state(&m->state, out);
    next_line(out);
    json_key(out, "mesh");
    json_open(out, '{');
    json_member_int(out, "world", m->world);
    json_key(out, "axes");
    json_open(out, '{');
    for (int i = 0; i < m->n_axes; i++) json_member_int(out, m->axes[i].name, m->axes[i].degree);
    json_close(out, '}');
    json_close(out, '}');
    next_line(out);
    json_key(out, "config");
    json_raw(out, m->config_json);
    next_line(out);
    write_files(m, out);
    next_line(out);
    write_tensors(m, out);
    next_line(out);
    if (!out->failed) /* else out->text may be NULL */
        str_addf(out, CHECKSUM_KEY "%lu}\n", (unsigned long)hash_crc32c(0, out->text + start, out->length - start));
}

void manifest_part_write(const struct manifest *m, struct str *out)
{
    json_open(out, '{');
    json_member_bool(out, "unhealthy", m->state.unhealthy);
    write_files(m, out);
    write_tensors(m, out);
    json_close(out, '}');
}

err_t manifest_read_text(const char *checkpoint_path, struct str *out, struct error *e)
{
    size_t start = out->length, covered, tail = sizeof CHECKSUM_KEY - 1 + 16; /* the key, ten digits, "}\n" */
    struct arena a = {0};
    char *path = io_join(&a, checkpoint_path, "manifest.json"), *end, *key = NULL;
    const char *text;
    err_t rc;

    rc = path ? io_read_file_up_to(path, MANIFEST_MAX_BYTES, out, e)
              : FAIL(e, ERR_MEMORY, "out of memory while reading %s", checkpoint_path);
    if (rc) goto out;
    text = str_text(out) + start;
    if (out->length - start > tail) key = strstr(text + (out->length - start - tail), CHECKSUM_KEY);
    covered = key ? (size_t)(key - text) : 0;
    if (!key || strtoul(key + sizeof CHECKSUM_KEY - 1, &end, 10) != hash_crc32c(0, text, covered) ||
        strcmp(end, "}\n") != 0)
        rc = FAIL(e, ERR_FORMAT, "%s is damaged: its checksum %s", path, key ? "does not match" : "is missing");
out:
    arena_release(&a);
    return rc;
}

void manifest_mesh_text(const struct checkpoint_axis *axes, int n_axes, int world, struct str *out)
{
    size_t start = out->length;

    for (int i = 0; i < n_axes; i++)
        if (axes[i].degree > 1)
            str_addf(out, "%s%s %d", out->length > start ? " x " : "", axes[i].name, axes[i].degree);
    str_addf(out, "%s(%d rank%s)", out->length > start ? " " : "", world, world == 1 ? "" : "s");
}
