/* SPDX-License-Identifier: MIT */
/*
 * run.jsonl; see kinds.h. Lines are whole: a flush writes them all or cuts the file back, and the torn last
 * line that a killed run left is completed or removed when the file is opened again.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "base/mem.h"
#include "sinks/append.h"
#include "sinks/kinds.h"

struct jsonl {
    struct append file;
    struct str tags; /* a JSON object, or empty */
};

static void add_head(struct str *out, const char *run, int segment, int64_t step, double wall_s, const char *tags_json)
{
    json_open(out, '{');
    json_member_text(out, "run", run);
    json_member_int(out, "segment", segment);
    json_member_int(out, "step", step);
    json_member_number(out, "wall_s", wall_s);
    if (!tags_json) return;
    json_key(out, "tags");
    json_raw(out, tags_json);
}

void jsonl_line(struct str *out, const struct metric_row *row, const char *tags_json)
{
    add_head(out, row->run, row->segment, row->step, row->wall_s, tags_json);
    for (int i = 0; i < METRIC_COUNT; i++) {
        double value = row->value[i];

        if (!metric_row_has(row, i)) continue;
        json_key(out, metric_table[i].tag);
        if (metric_table[i].number == METRIC_INTEGER && value == floor(value) && fabs(value) < 9007199254740992.0)
            json_int(out, (int64_t)value);
        else
            json_number(out, value);
    }
    json_close(out, '}');
    str_add_char(out, '\n');
}

/* ---- the file of an earlier life ---- */

/* The step of one line, without its newline; false: not a line of ours. */
static bool line_step(const char *line, size_t n, int64_t *step)
{
    json_t *object = json_loadb(line, n, 0, NULL);
    json_t *member = json_object_get(object, "step");
    bool is_ours = json_is_integer(member);

    if (is_ours) *step = json_integer_value(member);
    json_decref(object);
    return is_ours;
}

void jsonl_split(const char *bytes, size_t n, int64_t step, struct str *kept, struct str *cut, int64_t *n_cut)
{
    *n_cut = 0;
    for (size_t at = 0; at < n;) {
        const char *newline = memchr(bytes + at, '\n', n - at);
        size_t length = newline ? (size_t)(newline - (bytes + at)) : n - at;
        int64_t line = 0;
        bool is_kept = line_step(bytes + at, length, &line) && line <= step;
        struct str *to = is_kept ? kept : cut;

        str_add_bytes(to, bytes + at, length);
        str_add_char(to, '\n');
        *n_cut += !is_kept;
        at += length + 1;
    }
}

/* Appends the cut lines, unless an earlier try that was killed before it replaced run.jsonl already did. */
static err_t keep_superseded(const char *path, const struct str *cut, struct error *e)
{
    struct append file = {0};
    struct str there = {0};
    err_t rc = append_open(&file, path, O_CREAT, e);

    if (!rc) rc = io_read_file(path, &there, e);
    if (rc) goto out;
    if (there.length >= cut->length && !memcmp(there.text + there.length - cut->length, cut->text, cut->length))
        goto out;
    if (there.length && there.text[there.length - 1] != '\n') str_add_char(&file.buffer, '\n');
    str_add_bytes(&file.buffer, cut->text, cut->length);
    rc = append_flush(&file, e);
    if (!rc && fsync(file.fd_plus_one - 1)) rc = FAIL(e, ERR_IO, "cannot flush %s: %s", path, strerror(errno));
out:
    append_close(&file);
    str_release(&there);
    return rc;
}

err_t jsonl_rewind(const char *path, int64_t step, const char *superseded_path, int64_t *n_cut, struct error *e)
{
    struct str all = {0}, kept = {0}, cut = {0};
    int64_t n = 0;
    err_t rc = ERR_NONE;

    if (io_exists(path)) rc = io_read_file(path, &all, e);
    if (!rc) {
        jsonl_split(str_text(&all), all.length, step, &kept, &cut, &n);
        rc = str_ok(&kept, e);
    }
    if (!rc) rc = str_ok(&cut, e);
    if (!rc && n) rc = keep_superseded(superseded_path, &cut, e);
    if (!rc && n) rc = io_write_atomic(path, str_text(&kept), kept.length, e);
    if (n_cut) *n_cut = rc ? 0 : n;
    str_release(&all);
    str_release(&kept);
    str_release(&cut);
    return rc;
}

err_t jsonl_has(const char *path, int64_t step, const char *tag, bool *out, struct error *e)
{
    struct str all = {0};
    err_t rc = ERR_NONE;

    *out = false;
    if (io_exists(path)) rc = io_read_file(path, &all, e);
    for (size_t at = 0; !rc && at < all.length && !*out;) {
        const char *line = all.text + at, *newline = memchr(line, '\n', all.length - at);
        size_t length = newline ? (size_t)(newline - line) : all.length - at;

        at += length + 1;
        if (!memmem(line, length, tag, strlen(tag))) continue; /* most lines need not be parsed */
        json_t *object = json_loadb(line, length, 0, NULL), *number = json_object_get(object, "step");

        *out = json_is_integer(number) && json_integer_value(number) == step && json_object_get(object, tag);
        json_decref(object);
    }
    str_release(&all);
    return rc;
}

/* Makes the file end with a newline: a torn last line is completed if only its newline is missing, else
 * removed. */
static err_t repair(struct append *file, struct error *e)
{
    struct str all = {0};
    const char *newline;
    size_t start;
    int64_t step;
    err_t rc = io_read_file(file->path, &all, e);

    if (rc || !all.length || all.text[all.length - 1] == '\n') goto out;
    newline = memrchr(all.text, '\n', all.length);
    start = newline ? (size_t)(newline - all.text) + 1 : 0;
    if (line_step(all.text + start, all.length - start, &step)) {
        str_add_char(&file->buffer, '\n');
        rc = append_flush(file, e);
    } else if (ftruncate(file->fd_plus_one - 1, (off_t)start)) {
        rc = FAIL(e, ERR_IO, "cannot remove the torn last line of %s: %s", file->path, strerror(errno));
    }
out:
    str_release(&all);
    return rc;
}

/* ---- the sink ---- */

static void add_tags(struct str *out, const struct jsonl_options *o)
{
    if (!o->n_tags) return;
    json_open(out, '{');
    for (int i = 0; i < o->n_tags; i++) {
        const char *equals = strchr(o->tags[i], '=');
        struct str name = {0};

        str_add_bytes(&name, o->tags[i], equals ? (size_t)(equals - o->tags[i]) : strlen(o->tags[i]));
        json_member_text(out, str_text(&name), equals ? equals + 1 : "");
        str_release(&name);
    }
    json_close(out, '}');
}

static void jsonl_close(void *sink)
{
    struct jsonl *j = sink;

    append_close(&j->file);
    str_release(&j->tags);
    mem_free(j);
}

static err_t jsonl_open(void **out, const void *options, struct error *e)
{
    const struct jsonl_options *o = options;
    struct jsonl *j = mem_zalloc(1, sizeof *j);
    err_t rc;

    if (!j) return FAIL(e, ERR_MEMORY, "out of memory for %s", o->path);
    rc = append_open(&j->file, o->path, O_CREAT, e);
    if (!rc) rc = repair(&j->file, e);
    add_tags(&j->tags, o);
    if (!rc) rc = str_ok(&j->tags, e);
    if (rc)
        jsonl_close(j);
    else
        *out = j;
    return rc;
}

static const char *tags_of(const struct jsonl *j) { return j->tags.length ? j->tags.text : NULL; }

static err_t jsonl_write(void *sink, const struct metric_row *row, struct error *e)
{
    struct jsonl *j = sink;

    (void)e; /* running out of memory shows in the flush */
    jsonl_line(&j->file.buffer, row, tags_of(j));
    return ERR_NONE;
}

static err_t jsonl_text(void *sink, const struct sink_text *text, struct error *e)
{
    struct jsonl *j = sink;
    struct str *out = &j->file.buffer;

    (void)e;
    add_head(out, text->run, text->segment, text->step, text->wall_s, tags_of(j));
    json_member_text(out, "tag", text->tag);
    json_member_text(out, "text", text->text);
    json_close(out, '}');
    str_add_char(out, '\n');
    return ERR_NONE;
}

static err_t jsonl_flush(void *sink, struct error *e)
{
    struct jsonl *j = sink;

    return append_flush(&j->file, e);
}

const struct sink_ops sink_ops_jsonl = {
    .name = "jsonl",
    .open = jsonl_open,
    .write = jsonl_write,
    .text = jsonl_text,
    .flush = jsonl_flush,
    .close = jsonl_close,
};
