/* SPDX-License-Identifier: MIT */
/*
 * Cutting the files of a source into records and records into text; see source.h.
 *
 * A batch's bytes are what was read, in place; what follows the last whole record is carried over to the next batch, so
 * a record is moved at most once and one of any length up to the limit needs only memory for itself.
 */
#include "data/source.h"

#include <jansson.h>
#include <string.h>

#include "data/source_stream.h"

enum { READ_BLOCK_BYTES = 1 << 18 };

struct source_reader {
    const struct source *source;
    int64_t file;                /* the open one, or the next to open */
    struct source_stream stream; /* closed between files */
    struct str carry;            /* start of the record that the last batch ended in */
    size_t scanned;              /* of the record so far: bytes in whole lines without a separator */
    int64_t line;                /* of the next unscanned line */
    int64_t record_line;         /* of the record's first byte */
    int64_t finished_bytes;      /* of the files already closed */
    bool at_start;               /* nothing of the file read yet */
    char *block;
};

void source_batch_release(struct source_batch *b)
{
    str_release(&b->bytes);
    mem_free(b->records);
    memset(b, 0, sizeof *b);
}

err_t source_reader_open(struct source_reader **out, const struct source *s, struct error *e)
{
    struct source_reader *r = mem_zalloc(1, sizeof *r);

    *out = NULL;
    if (r) r->block = mem_alloc(READ_BLOCK_BYTES);
    if (!r || !r->block) {
        source_reader_close(r);
        return FAIL(e, ERR_MEMORY, "out of memory while opening the data source");
    }
    r->source = s;
    *out = r;
    return ERR_NONE;
}

void source_reader_close(struct source_reader *r)
{
    if (!r) return;
    source_stream_close(&r->stream);
    str_release(&r->carry);
    mem_free(r->block);
    mem_free(r);
}

int64_t source_read_bytes(const struct source_reader *r)
{
    return r->finished_bytes + source_stream_position(&r->stream);
}

static err_t add_record(struct source_reader *r, struct source_batch *b, size_t offset, size_t n, struct error *e)
{
    if (b->n_records == b->capacity) {
        int64_t capacity = b->capacity ? 2 * b->capacity : 1024;
        struct source_record *grown = mem_resize(b->records, (size_t)capacity, sizeof *grown);

        if (!grown) return FAIL(e, ERR_MEMORY, "out of memory while reading %s", r->stream.path);
        b->records = grown;
        b->capacity = capacity;
    }
    b->records[b->n_records++] =
        (struct source_record){.offset = offset, .n_bytes = n, .file = r->file, .line = r->record_line};
    return ERR_NONE;
}

static bool is_separator(const struct source *s, const char *line, size_t n)
{
    size_t k = strlen(s->separator);

    if (n && line[n - 1] == '\r') n--;
    return n == k && memcmp(line, s->separator, k) == 0;
}

/* Cuts whole records out of b->bytes from *start (where the current record begins) on; moves *start behind the last
 * one. */
static err_t cut(struct source_reader *r, struct source_batch *b, size_t *start, bool at_end, struct error *e)
{
    const struct source_file *f = &r->source->files[r->file];
    bool by_line = f->is_jsonl, by_separator = !by_line && r->source->separator[0];
    size_t scan = *start + r->scanned, end = b->bytes.length;
    err_t rc = ERR_NONE;

    while (!rc && (by_line || by_separator) && scan < end) {
        const char *line = b->bytes.text + scan, *newline = memchr(line, '\n', end - scan);
        size_t n = newline ? (size_t)(newline - line) : end - scan, next = scan + n + (newline ? 1 : 0);

        if (!newline && !at_end) break;
        if (by_line || is_separator(r->source, line, n)) {
            rc = add_record(r, b, *start, by_line ? n : scan - *start, e);
            *start = next;
            r->record_line = r->line + 1;
        }
        r->line++;
        scan = next;
    }
    if (!rc && at_end && (end > *start || (!by_line && !by_separator))) {
        rc = add_record(r, b, *start, end - *start, e); /* the rest of the file; an empty file is one empty document */
        *start = end;
    }
    r->scanned = by_line || by_separator ? scan - *start : 0;
    if ((int64_t)(end - *start) > SOURCE_RECORD_MAX_BYTES && !rc)
        rc = FAIL(e, ERR_FORMAT, "%s, line %lld: the document is longer than %lld bytes: split it", f->path,
                  (long long)r->record_line, (long long)SOURCE_RECORD_MAX_BYTES);
    return rc;
}

/* Bytes of the block to leave out: a UTF-8 byte order mark. */
static err_t skip_mark(const struct source_reader *r, size_t n, size_t *skip, struct error *e)
{
    const unsigned char *p = (const unsigned char *)r->block;

    *skip = 0;
    if (!r->at_start) return ERR_NONE;
    if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) *skip = 3;
    if (n >= 4 && ((p[0] == 0xff && p[1] == 0xfe && p[3] == 0) || (p[0] == 0xfe && p[1] == 0xff && p[2] == 0)))
        return FAIL(e, ERR_FORMAT, "%s is UTF-16 text: convert it with `iconv -f UTF-16 -t UTF-8`", r->stream.path);
    return ERR_NONE;
}

/* One block of the open file: appended, cut, and the file closed at its end. */
static err_t read_block(struct source_reader *r, struct source_batch *b, size_t *start, struct error *e)
{
    size_t n, skip;
    bool at_end;
    err_t rc = source_stream_read(&r->stream, r->block, READ_BLOCK_BYTES, &n, e);

    if (!rc) rc = skip_mark(r, n, &skip, e);
    if (rc) return rc;
    r->at_start = false;
    at_end = n < READ_BLOCK_BYTES;
    str_add_bytes(&b->bytes, r->block + skip, n - skip);
    rc = str_ok(&b->bytes, e);
    if (!rc) rc = cut(r, b, start, at_end, e);
    if (!rc && at_end) {
        source_stream_close(&r->stream);
        r->finished_bytes += r->source->files[r->file++].bytes;
    }
    return rc;
}

err_t source_read(struct source_reader *r, size_t want_bytes, struct source_batch *b, struct error *e)
{
    size_t start = 0;
    err_t rc = ERR_NONE;

    b->n_records = 0;
    str_clear(&b->bytes);
    if (r->carry.length) {
        str_add_bytes(&b->bytes, r->carry.text, r->carry.length);
        str_clear(&r->carry);
        rc = str_ok(&b->bytes, e);
    }
    while (!rc && (b->n_records == 0 || start < want_bytes)) {
        if (!r->stream.path) {
            if (r->file == r->source->n_files) break;
            rc = source_stream_open(&r->stream, r->source->files[r->file].path, r->source->files[r->file].is_gzip, e);
            if (rc) break;
            r->at_start = true;
            r->line = r->record_line = 1;
            r->scanned = 0;
        }
        rc = read_block(r, b, &start, e);
    }
    if (!rc && start < b->bytes.length) {
        str_add_bytes(&r->carry, b->bytes.text + start, b->bytes.length - start);
        rc = str_ok(&r->carry, e);
    }
    return rc;
}

/* ---- text ---- */
static enum source_skip judge(const char *text, size_t n)
{
    if (n == 0) return SOURCE_SKIP_EMPTY;
    for (size_t i = 0; i < n; i++)
        if (!memchr(" \t\r\n\f\v", text[i], 6)) return SOURCE_USED;
    return SOURCE_SKIP_BLANK;
}

/* Integers are read as reals, so that a large number in another field is no error; ids and hashes of others are often
 * unsigned. */
static err_t json_line(const struct source *s, const struct source_record *record, const char *line,
                       struct str *scratch, enum source_skip *reason, struct error *e)
{
    json_error_t bad;
    json_t *value = json_loadb(line, record->n_bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &bad),
           *text;

    if (!value)
        return FAIL(e, ERR_FORMAT, "%s, line %lld, byte %d: not valid JSON: %s", s->files[record->file].path,
                    (long long)record->line, bad.position, bad.text);
    text = json_object_get(value, s->text_field);
    if (!json_is_object(value))
        *reason = SOURCE_SKIP_NOT_OBJECT;
    else if (!text)
        *reason = SOURCE_SKIP_NO_FIELD;
    else if (!json_is_string(text))
        *reason = SOURCE_SKIP_NOT_TEXT;
    else {
        str_add_bytes(scratch, json_string_value(text), json_string_length(text));
        *reason = judge(json_string_value(text), json_string_length(text));
    }
    json_decref(value);
    return str_ok(scratch, e);
}

err_t source_text(const struct source *s, const struct source_batch *b, int64_t i, struct str *scratch,
                  const char **text, size_t *n_bytes, enum source_skip *reason, struct error *e)
{
    const struct source_record *record = &b->records[i];
    const char *bytes = str_text(&b->bytes) + record->offset;
    err_t rc = ERR_NONE;

    str_clear(scratch);
    *text = bytes;
    *n_bytes = record->n_bytes;
    *reason = judge(bytes, record->n_bytes);
    if (s->files[record->file].is_jsonl && *reason == SOURCE_USED) {
        rc = json_line(s, record, bytes, scratch, reason, e);
        *text = str_text(scratch);
        *n_bytes = scratch->length;
    }
    return rc;
}
