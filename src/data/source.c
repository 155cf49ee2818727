/* SPDX-License-Identifier: MIT */
/* Finding the files of a source and the identity of their content; see source.h. Reading them is source_read.c. */
#include "data/source.h"

#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/io.h"
#include "data/source_stream.h"

enum { SNIFF_BYTES = 8192, HASH_BLOCK_BYTES = 1 << 18, MAX_DEPTH = 64 };

const char *source_skip_text(enum source_skip reason)
{
    static const char *const names[] = {
#define X(id, text) text,
        SOURCE_SKIPS(X)
#undef X
    };
    return reason >= 0 && reason < SOURCE_SKIP_COUNT ? names[reason] : "used";
}

const char *source_pass_text(enum source_pass reason)
{
    static const char *const names[] = {
#define X(id, text) text,
        SOURCE_PASSES(X)
#undef X
    };
    return reason < SOURCE_PASS_COUNT ? names[reason] : "read";
}

/* What source_open gathers into. */
struct search {
    struct source *source;
    const struct source_spec *spec;
    int64_t capacity;
};

static bool is_excluded(const struct source_spec *spec, const char *path)
{
    const char *slash = strrchr(path, '/');

    for (int i = 0; i < spec->n_exclude; i++) {
        if (fnmatch(spec->exclude[i], slash ? slash + 1 : path, 0) == 0) return true;
        if (fnmatch(spec->exclude[i], path, 0) == 0) return true;
    }
    return false;
}

static bool name_ends(const char *path, size_t n, const char *end)
{
    size_t k = strlen(end);

    return n > k && strncmp(path + n - k, end, k) == 0;
}

/* One JSON object a line, judged by the first line of a file: a document that is spread over lines is not. */
static bool starts_with_object(const char *head, size_t n)
{
    const char *newline;

    if (n >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0) head += 3, n -= 3;
    newline = memchr(head, '\n', n);
    if (n == 0 || head[0] != '{') return false;
    if (!newline) return true; /* one long line */
    while (newline > head && (newline[-1] == '\r' || newline[-1] == ' ')) newline--;
    return newline[-1] == '}';
}

/* What the name and, where that leaves a doubt, the first bytes say. */
static err_t look_at(struct source_file *f, bool *is_text, struct error *e)
{
    size_t length = strlen(f->path), n = 0;
    struct source_stream stream;
    char head[SNIFF_BYTES];
    bool is_json;
    err_t rc;

    f->is_gzip = name_ends(f->path, length, ".gz");
    if (f->is_gzip) length -= 3;
    f->is_jsonl = name_ends(f->path, length, ".jsonl") || name_ends(f->path, length, ".ndjson");
    is_json = name_ends(f->path, length, ".json");
    *is_text = true;
    if (!f->found && !is_json) return ERR_NONE;
    rc = source_stream_open(&stream, f->path, f->is_gzip, e);
    if (rc) return rc;
    rc = source_stream_read(&stream, head, sizeof head, &n, e);
    source_stream_close(&stream);
    if (f->found) *is_text = !memchr(head, '\0', n);
    if (is_json) f->is_jsonl = starts_with_object(head, n);
    return rc;
}

/* Adds a regular file; `found`: in a folder or by a pattern, so that the rules for such files hold. */
static err_t add_file(struct search *q, const char *path, const struct stat *st, bool found, struct error *e)
{
    struct source *s = q->source;
    struct source_file *grown, f = {.bytes = st->st_size, .device = st->st_dev, .inode = st->st_ino};

    f.found = found;
    f.modified_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    f.changed_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
    f.path = arena_strdup(&s->arena, path);
    if (!f.path) return FAIL(e, ERR_MEMORY, "out of memory while listing %s", path);
    if (s->n_files == q->capacity) {
        int64_t capacity = q->capacity ? 2 * q->capacity : 64;

        grown = mem_resize(s->files, (size_t)capacity, sizeof *grown);
        if (!grown) return FAIL(e, ERR_MEMORY, "out of memory while listing %s", path);
        s->files = grown;
        q->capacity = capacity;
    }
    s->files[s->n_files++] = f;
    return ERR_NONE;
}

static err_t walk(struct search *q, const char *path, bool found, int depth, struct error *e)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct source *s = q->source;
    struct arena a = {0};
    struct stat st;
    char **names;
    int n = 0;
    err_t rc;

    if (found && name[0] == '.') return s->passed[SOURCE_PASS_HIDDEN]++, ERR_NONE;
    if (found && is_excluded(q->spec, path)) return s->passed[SOURCE_PASS_EXCLUDED]++, ERR_NONE;
    if (found ? lstat(path, &st) : stat(path, &st)) return io_fail(e, "look at", path);
    if (S_ISLNK(st.st_mode)) return s->passed[SOURCE_PASS_LINK]++, ERR_NONE;
    if (S_ISREG(st.st_mode)) return add_file(q, path, &st, found, e);
    if (!S_ISDIR(st.st_mode)) {
        if (!found) return FAIL(e, ERR_CONFIG, "%s is neither a file nor a folder: it cannot be a data source", path);
        return s->passed[SOURCE_PASS_SPECIAL]++, ERR_NONE;
    }
    if (depth == MAX_DEPTH) return FAIL(e, ERR_CONFIG, "%s lies more than %d folders deep", path, MAX_DEPTH);
    rc = io_list(path, &a, &names, &n, e);
    for (int i = 0; !rc && i < n; i++) {
        char *child = io_join(&a, path, names[i]);

        rc = child ? walk(q, child, true, depth + 1, e) : FAIL(e, ERR_MEMORY, "out of memory while listing %s", path);
    }
    arena_release(&a);
    return rc;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static err_t walk_pattern(struct search *q, const char *pattern, struct error *e)
{
    glob_t g = {0};
    int status = glob(pattern, GLOB_NOSORT, NULL, &g);
    err_t rc = ERR_NONE;

    if (status == GLOB_NOMATCH) {
        rc = FAIL(e, ERR_MISSING, "no file, folder or match for the data source '%s': check the path", pattern);
    } else if (status) {
        rc = FAIL(e, ERR_IO, "cannot search for the data source '%s': %s", pattern,
                  status == GLOB_NOSPACE ? "out of memory" : strerror(errno));
    } else {
        qsort(g.gl_pathv, g.gl_pathc, sizeof *g.gl_pathv, by_bytes);
        for (size_t i = 0; !rc && i < g.gl_pathc; i++) rc = walk(q, g.gl_pathv[i], true, 0, e);
    }
    globfree(&g);
    return rc;
}

struct place {
    uint64_t device, inode;
    int64_t index;
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode) return x->inode < y->inode ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Keeps the first appearance of each file. */
static err_t drop_repeats(struct source *s, struct error *e)
{
    struct place *places = mem_alloc((size_t)s->n_files * sizeof *places);
    int64_t kept = 0;

    if (!places) return FAIL(e, ERR_MEMORY, "out of memory while listing %lld files", (long long)s->n_files);
    for (int64_t i = 0; i < s->n_files; i++) places[i] = (struct place){s->files[i].device, s->files[i].inode, i};
    qsort(places, (size_t)s->n_files, sizeof *places, by_place);
    for (int64_t i = 1; i < s->n_files; i++)
        if (places[i].device == places[i - 1].device && places[i].inode == places[i - 1].inode)
            s->files[places[i].index].path = NULL;
    for (int64_t i = 0; i < s->n_files; i++)
        if (s->files[i].path) s->files[kept++] = s->files[i];
    s->n_files = kept;
    mem_free(places);
    return ERR_NONE;
}

static err_t fail_empty(const struct source *s, struct error *e)
{
    struct str passed = {0};
    err_t rc;

    for (int i = 0; i < SOURCE_PASS_COUNT; i++)
        if (s->passed[i])
            str_addf(&passed, "%s %lld %s", passed.length ? "," : "; passed over:", (long long)s->passed[i],
                     source_pass_text(i));
    rc = FAIL(e, passed.length ? ERR_CONFIG : ERR_MISSING, "the data source (first entry '%s') holds no text file%s",
              s->first_path, str_text(&passed));
    str_release(&passed);
    return rc;
}

err_t source_list(struct source **out, const struct source_spec *spec, struct error *e)
{
    struct source *s = mem_zalloc(1, sizeof *s);
    struct search q = {.source = s, .spec = spec};
    struct stat st;
    err_t rc = ERR_NONE;

    *out = NULL;
    if (!s) return FAIL(e, ERR_MEMORY, "out of memory while opening the data source");
    s->separator = arena_strdup(&s->arena, spec->separator ? spec->separator : "");
    s->text_field = arena_strdup(&s->arena, spec->text_field && spec->text_field[0] ? spec->text_field : "text");
    if (!s->separator || !s->text_field)
        rc = FAIL(e, ERR_MEMORY, "out of memory while opening the data source");
    else if (strchr(s->separator, '\n'))
        rc = FAIL(e, ERR_CONFIG, "the document separator must be one line, without a line end");
    else if (spec->n_paths < 1)
        rc = FAIL(e, ERR_CONFIG, "the data source names no file: give a file, folder or pattern");
    for (int i = 0; !rc && i < spec->n_paths; i++)
        rc = stat(spec->paths[i], &st) == 0 ? walk(&q, spec->paths[i], false, 0, e)
                                            : walk_pattern(&q, spec->paths[i], e);
    if (!rc) s->first_path = arena_strdup(&s->arena, spec->paths[0]);
    if (!rc && !s->first_path) rc = FAIL(e, ERR_MEMORY, "out of memory while opening the data source");
    if (!rc) rc = s->n_files ? drop_repeats(s, e) : fail_empty(s, e);
    if (rc)
        source_close(s);
    else
        *out = s;
    return rc;
}

err_t source_look(struct source *s, struct error *e)
{
    int64_t kept = 0;
    err_t rc = ERR_NONE;

    s->bytes = 0;
    for (int64_t i = 0; !rc && i < s->n_files; i++) {
        bool is_text = true;

        rc = look_at(&s->files[i], &is_text, e);
        if (is_text) {
            s->bytes += s->files[i].bytes;
            s->files[kept++] = s->files[i];
        } else {
            s->passed[SOURCE_PASS_BINARY]++;
        }
    }
    if (rc) return rc;
    s->n_files = kept;
    return kept ? ERR_NONE : fail_empty(s, e);
}

err_t source_open(struct source **out, const struct source_spec *spec, struct error *e)
{
    err_t rc = source_list(out, spec, e);

    if (!rc) rc = source_look(*out, e);
    if (rc) {
        source_close(*out);
        *out = NULL;
    }
    return rc;
}

void source_close(struct source *s)
{
    if (!s) return;
    mem_free(s->files);
    arena_release(&s->arena);
    mem_free(s);
}

/* ---- identity ---- */
static uint64_t add_word(uint64_t h, uint64_t word) { return (((h << 29) | (h >> 35)) ^ word) * 0x9e3779b97f4a7c15u; }

/* Eight bytes a step: a warm start after a copy reads everything once, so this must keep up with the disk. */
static uint64_t add_block(uint64_t h, const char *bytes, size_t n)
{
    uint64_t word;

    for (; n >= 8; n -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        h = add_word(h, word);
    }
    word = 0;
    memcpy(&word, bytes, n);
    return n ? add_word(h, word) : h;
}

struct hash_job {
    const struct source *source;
    uint64_t *hashes;
    data_report report;
    void *report_arg;
    pthread_t caller; /* whose thread reports */
    _Atomic int64_t n_bytes;
    atomic_bool is_ended;
    pthread_mutex_t lock;
    int64_t failed_file; /* the first one in order; -1 = none */
    struct error error;
};

/* After each block: how far all threads are. One that is not the caller's only hears of the end. */
static err_t tell_hashed(struct hash_job *job, size_t n, struct error *e)
{
    int64_t done = atomic_fetch_add(&job->n_bytes, (int64_t)n) + (int64_t)n;
    err_t rc = ERR_NONE;

    if (pthread_equal(pthread_self(), job->caller))
        rc = data_tell(job->report, job->report_arg, "reading the data", done, job->source->bytes, e);
    else if (atomic_load(&job->is_ended))
        rc = FAIL(e, ERR_INTERRUPTED, "stopped on request while reading the data; nothing was saved");
    if (rc) atomic_store(&job->is_ended, true);
    return rc;
}

static void hash_file(void *arg, int64_t i)
{
    struct hash_job *job = arg;
    const struct source_file *f = &job->source->files[i];
    struct source_stream stream = {0};
    struct error e;
    char *block = mem_alloc(HASH_BLOCK_BYTES);
    uint64_t h = HASH_FNV_START, total = 0;
    size_t n = 0;
    err_t rc =
        block ? source_stream_open(&stream, f->path, false, &e) : FAIL(&e, ERR_MEMORY, "out of memory for %s", f->path);

    do {
        if (!rc) rc = source_stream_read(&stream, block, HASH_BLOCK_BYTES, &n, &e);
        if (!rc) h = add_block(h, block, n);
        total += n;
        if (!rc) rc = tell_hashed(job, n, &e);
    } while (!rc && n == HASH_BLOCK_BYTES);
    source_stream_close(&stream);
    mem_free(block);
    job->hashes[i] = hash_mix(h ^ hash_mix(total * 4 + f->is_jsonl * 2u + f->is_gzip));
    if (!rc) return;
    pthread_mutex_lock(&job->lock);
    if (job->failed_file < 0 || i < job->failed_file) {
        job->failed_file = i;
        job->error = e;
    }
    pthread_mutex_unlock(&job->lock);
}

err_t source_hash(const struct source *s, struct pool *pool, data_report report, void *report_arg, uint64_t *out,
                  struct error *e)
{
    struct hash_job job = {
        .source = s, .failed_file = -1, .report = report, .report_arg = report_arg, .caller = pthread_self()};
    uint64_t h = HASH_FNV_START;

    job.hashes = mem_zalloc((size_t)s->n_files, sizeof *job.hashes);
    if (!job.hashes) return FAIL(e, ERR_MEMORY, "out of memory while hashing %lld files", (long long)s->n_files);
    pthread_mutex_init(&job.lock, NULL);
    pool_run(pool, hash_file, &job, s->n_files);
    pthread_mutex_destroy(&job.lock);
    for (int64_t i = 0; i < s->n_files; i++) h = add_word(h, job.hashes[i]);
    h = hash_fnv(h, s->separator, strlen(s->separator) + 1);
    h = hash_fnv(h, s->text_field, strlen(s->text_field) + 1);
    *out = hash_mix(h);
    mem_free(job.hashes);
    if (job.failed_file < 0) return ERR_NONE;
    return FAIL(e, job.error.code, "%s", job.error.message);
}
