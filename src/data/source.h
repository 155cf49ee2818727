/* SPDX-License-Identifier: MIT */
/*
 * Which documents there are, and their text.
 *
 * A source is a fixed, sorted list of files: found once by source_open, then read any number of times in the same
 * order. A reader walks it sequentially and hands out batches of records (a document's bytes, or one JSONL line), cheap
 * to cut; source_text turns a record into the document's text and may run on many threads at once.
 *
 * Rules. An entry is a file, a folder or a glob pattern (an existing path is never taken as a pattern). A file named
 * literally is always read. Files found in folders (recursively) and by patterns are read unless they are symbolic
 * links, hidden (".name"), not regular, not text (a NUL byte in the first 8 KiB of content) or match an `exclude`
 * pattern; each is counted by its reason. Entries keep their order, the files of one entry are sorted bytewise, a path
 * that comes up again is read once.
 * *.jsonl and *.ndjson hold one JSON object a line, and so does *.json if its first line is one; everything else is
 * plain text. A further .gz means compressed by gzip. A UTF-8 byte order mark at the start of a file is dropped; line
 * ends stay as they are. Documents without text are skipped and counted. The longest record is SOURCE_RECORD_MAX_BYTES.
 * Errors name the file and the line.
 */
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/str.h"
#include "data/report.h"

#define SOURCE_RECORD_MAX_BYTES ((int64_t)1 << 30)

/* why a document is not used: id, text for people */
#define SOURCE_SKIPS(X)                                                                                                \
    X(SOURCE_SKIP_EMPTY, "empty")                                                                                      \
    X(SOURCE_SKIP_BLANK, "only white space")                                                                           \
    X(SOURCE_SKIP_NO_FIELD, "no text field")                                                                           \
    X(SOURCE_SKIP_NOT_TEXT, "text field is not a string")                                                              \
    X(SOURCE_SKIP_NOT_OBJECT, "line is not a JSON object")

enum source_skip {
#define X(id, text) id,
    SOURCE_SKIPS(X)
#undef X
        SOURCE_SKIP_COUNT,
    SOURCE_USED = -1
};
const char *source_skip_text(enum source_skip reason);

/* why a file found in a folder or by a pattern is not read */
#define SOURCE_PASSES(X)                                                                                               \
    X(SOURCE_PASS_LINK, "symbolic link")                                                                               \
    X(SOURCE_PASS_HIDDEN, "hidden")                                                                                    \
    X(SOURCE_PASS_SPECIAL, "not a regular file")                                                                       \
    X(SOURCE_PASS_BINARY, "not text")                                                                                  \
    X(SOURCE_PASS_EXCLUDED, "excluded")

enum source_pass {
#define X(id, text) id,
    SOURCE_PASSES(X)
#undef X
        SOURCE_PASS_COUNT
};
const char *source_pass_text(enum source_pass reason);

struct source_spec {
    const char *const *paths; /* [n_paths] files, folders, glob patterns */
    int n_paths;
    const char *const *exclude; /* [n_exclude] glob patterns, matched against the name and against the whole path */
    int n_exclude;
    const char *separator; /* plain text: documents are divided by lines equal to this; NULL or "": a document a file */
    const char *text_field; /* JSONL: NULL = "text" */
};

struct source_file {
    char *path;
    int64_t bytes;       /* as stored */
    int64_t modified_ns; /* mtime */
    int64_t changed_ns;  /* ctime: moves with every change of the content, also where the mtime is set back */
    uint64_t device, inode;
    bool found;             /* in a folder or by a pattern, not named literally */
    bool is_jsonl, is_gzip; /* known after source_look */
};

struct source {
    struct arena arena;
    struct source_file *files; /* [n_files] in reading order */
    int64_t n_files;
    int64_t passed[SOURCE_PASS_COUNT];
    int64_t bytes;    /* sum over files, as stored */
    char *first_path; /* of the description, for messages */
    char *separator;  /* "" = none */
    char *text_field;
};

/* ERR_MISSING: an entry matches nothing, or there is no file at all; ERR_CONFIG: all of them are passed over. */
err_t source_open(struct source **out, const struct source_spec *spec, struct error *e) MUST_CHECK;

/* The two halves of source_open: names and states, without opening any file; then what the files begin with, which
 * drops those that are not text. Between the two nothing but `files` may be used. */
err_t source_list(struct source **out, const struct source_spec *spec, struct error *e) MUST_CHECK;
err_t source_look(struct source *s, struct error *e) MUST_CHECK;
void source_close(struct source *s);

/* Identity of the content: file bytes and kinds in order, separator and text field; not names or dates. Reads
 * everything once. */
err_t source_hash(const struct source *s, struct pool *pool, data_report report, void *report_arg, uint64_t *out,
                  struct error *e) MUST_CHECK;

/* ---- reading ---- */
struct source_record {
    size_t offset, n_bytes; /* in the batch's bytes */
    int64_t file;           /* index into files */
    int64_t line;           /* of its first byte, from 1 */
};

/* A zeroed struct is ready for use. */
struct source_batch {
    struct str bytes;
    struct source_record *records; /* [n_records] */
    int64_t n_records, capacity;
};
void source_batch_release(struct source_batch *b);

struct source_reader;
err_t source_reader_open(struct source_reader **out, const struct source *s, struct error *e) MUST_CHECK;
void source_reader_close(struct source_reader *r);

/* Fills b with the next records: as many as come to about `want_bytes`, at least one; n_records 0 = the end. */
err_t source_read(struct source_reader *r, size_t want_bytes, struct source_batch *b, struct error *e) MUST_CHECK;
int64_t source_read_bytes(const struct source_reader *r); /* stored bytes read so far, for progress */

/* The text of record i: *text points into b or into `scratch` (cleared first). *reason: SOURCE_USED, or why it is
 * skipped. */
err_t source_text(const struct source *s, const struct source_batch *b, int64_t i, struct str *scratch,
                  const char **text, size_t *n_bytes, enum source_skip *reason, struct error *e) MUST_CHECK;

#endif
