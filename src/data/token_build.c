/* SPDX-License-Identifier: MIT */
/*
 * Tokenising a source; see token_build.h.
 *
 * One thread reads and cuts (far faster than tokenising), all threads turn spans of records into tokens, and the spans
 * are written in order, so the file is the same for any number of threads.
 */
#include "data/token_build.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

enum { SPANS_PER_THREAD = 4, BATCH_BYTES_PER_THREAD = 2 << 20 };

/* The records [first, last) of a batch and what became of them. */
struct span {
    int64_t first, last;
    struct token_list tokens;
    int64_t *lengths; /* [n_used] tokens of each document used */
    int64_t n_used, capacity;
    int64_t skipped[SOURCE_SKIP_COUNT], text_bytes;
    struct str text;
    struct error error;
};

struct build {
    const struct source *source;
    const struct tokenizer *tokenizer;
    struct source_batch batch;
    struct span *spans; /* [n_spans] */
    int n_spans;
    struct tokenizer_scratch **scratch; /* [n_scratch] one for each thread; taken and given back under the lock */
    int n_scratch, n_idle;
    pthread_mutex_t lock;
};

static err_t add_length(struct span *s, int64_t length, struct error *e)
{
    if (s->n_used == s->capacity) {
        int64_t capacity = s->capacity ? 2 * s->capacity : 256;
        int64_t *grown = mem_resize(s->lengths, (size_t)capacity, sizeof *grown);

        if (!grown) return FAIL(e, ERR_MEMORY, "out of memory while tokenising");
        s->lengths = grown;
        s->capacity = capacity;
    }
    s->lengths[s->n_used++] = length;
    return ERR_NONE;
}

static err_t encode_record(struct build *b, struct span *s, struct tokenizer_scratch *scratch, int64_t i,
                           struct error *e)
{
    int32_t bos = tokenizer_bos(b->tokenizer), eos = tokenizer_eos(b->tokenizer);
    size_t n_bytes, before = s->tokens.count;
    enum source_skip reason;
    const char *text;
    err_t rc = source_text(b->source, &b->batch, i, &s->text, &text, &n_bytes, &reason, e);

    if (rc) return rc;
    if (reason != SOURCE_USED) {
        s->skipped[reason]++;
        return ERR_NONE;
    }
    if (bos >= 0) rc = token_list_add(&s->tokens, &bos, 1, e);
    if (!rc) rc = tokenizer_encode(b->tokenizer, scratch, text, n_bytes, false, &s->tokens, e);
    if (!rc && eos >= 0) rc = token_list_add(&s->tokens, &eos, 1, e);
    if (rc) {
        const struct source_record *record = &b->batch.records[i];

        return error_prefix(e, rc, "%s, line %lld", b->source->files[record->file].path, (long long)record->line);
    }
    s->text_bytes += (int64_t)n_bytes;
    return add_length(s, (int64_t)(s->tokens.count - before), e);
}

static void encode_span(void *arg, int64_t chunk)
{
    struct build *b = arg;
    struct span *s = &b->spans[chunk];
    struct tokenizer_scratch *scratch;
    err_t rc = ERR_NONE;

    pthread_mutex_lock(&b->lock);
    scratch = b->scratch[--b->n_idle]; /* as many as threads: never empty */
    pthread_mutex_unlock(&b->lock);
    s->tokens.count = 0;
    s->n_used = 0;
    for (int64_t i = s->first; !rc && i < s->last; i++) rc = encode_record(b, s, scratch, i, &s->error);
    pthread_mutex_lock(&b->lock);
    b->scratch[b->n_idle++] = scratch;
    pthread_mutex_unlock(&b->lock);
}

/* Spans of about equally many bytes. */
static void divide(struct build *b)
{
    int64_t total = (int64_t)b->batch.bytes.length, record = 0;

    for (int i = 0; i < b->n_spans; i++) {
        struct span *s = &b->spans[i];
        size_t until = (size_t)(total / b->n_spans * (i + 1));

        s->first = record;
        while (record < b->batch.n_records && (i == b->n_spans - 1 || b->batch.records[record].offset < until))
            record++;
        s->last = record;
    }
}

static err_t init(struct build *b, const struct source *s, const struct tokenizer *t, int n_threads, struct error *e)
{
    err_t rc = ERR_NONE;

    *b = (struct build){.source = s, .tokenizer = t, .n_spans = SPANS_PER_THREAD * n_threads};
    pthread_mutex_init(&b->lock, NULL);
    b->spans = mem_zalloc((size_t)b->n_spans, sizeof *b->spans);
    b->scratch = mem_zalloc((size_t)n_threads, sizeof *b->scratch);
    if (!b->spans || !b->scratch) return FAIL(e, ERR_MEMORY, "out of memory while tokenising");
    while (!rc && b->n_scratch < n_threads) {
        rc = tokenizer_scratch_create(&b->scratch[b->n_scratch], t, e);
        if (!rc) b->n_scratch++;
    }
    b->n_idle = b->n_scratch;
    return rc;
}

static void release(struct build *b)
{
    for (int i = 0; b->spans && i < b->n_spans; i++) {
        token_list_release(&b->spans[i].tokens);
        mem_free(b->spans[i].lengths);
        str_release(&b->spans[i].text);
    }
    for (int i = 0; i < b->n_scratch; i++) tokenizer_scratch_destroy(b->scratch[i]);
    mem_free(b->spans);
    mem_free(b->scratch);
    source_batch_release(&b->batch);
    pthread_mutex_destroy(&b->lock);
}

static err_t write_spans(const struct build *b, struct token_cache_writer *w, struct error *e)
{
    err_t rc = ERR_NONE;

    for (int i = 0; !rc && i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];

        if (s->error.code) return FAIL(e, s->error.code, "%s", s->error.message);
        rc = token_cache_writer_add(w, s->tokens.ids, s->lengths, s->n_used, e);
    }
    return rc;
}

/* Why there is nothing to train on, by reason. */
static err_t no_text(const struct source *s, const int64_t skipped[SOURCE_SKIP_COUNT], struct error *e)
{
    struct str reasons = {0};
    err_t rc;

    for (int k = 0; k < SOURCE_SKIP_COUNT; k++)
        if (skipped[k])
            str_addf(&reasons, "%s %lld %s", reasons.length ? "," : ":", (long long)skipped[k], source_skip_text(k));
    rc = FAIL(e, ERR_CONFIG, "no document of the data (%lld files, the first one %s) holds text%s",
              (long long)s->n_files, s->files[0].path, str_text(&reasons));
    str_release(&reasons);
    return rc;
}

static err_t count(const struct build *b, struct token_cache_header *h, struct error *e)
{
    _Static_assert(SOURCE_SKIP_COUNT <= sizeof h->skipped / sizeof *h->skipped, "the header holds every reason");
    h->n_files = b->source->n_files;
    h->n_text_bytes = 0;
    memset(h->skipped, 0, sizeof h->skipped);
    for (int i = 0; i < b->n_spans; i++) {
        h->n_text_bytes += b->spans[i].text_bytes;
        for (int k = 0; k < SOURCE_SKIP_COUNT; k++) h->skipped[k] += b->spans[i].skipped[k];
    }
    /* a document that is used has at least one byte */
    return h->n_text_bytes ? ERR_NONE : no_text(b->source, h->skipped, e);
}

err_t token_build(const char *path, const struct source *s, const struct tokenizer *t, struct pool *pool,
                  data_report report, void *report_arg, struct token_cache_header *h, struct error *e)
{
    int n_threads = pool_threads(pool);
    struct token_cache_writer *w = NULL;
    struct source_reader *reader = NULL;
    struct build b;
    err_t rc = init(&b, s, t, n_threads, e);

    if (!rc) rc = source_reader_open(&reader, s, e);
    if (!rc) rc = token_cache_writer_open(&w, path, tokenizer_vocab_size(t), e);
    while (!rc) {
        rc = source_read(reader, (size_t)n_threads * BATCH_BYTES_PER_THREAD, &b.batch, e);
        if (rc || b.batch.n_records == 0) break;
        divide(&b);
        pool_run(pool, encode_span, &b, b.n_spans);
        rc = write_spans(&b, w, e);
        if (!rc) rc = data_tell(report, report_arg, "tokenizing", source_read_bytes(reader), s->bytes, e);
    }
    if (!rc) rc = count(&b, h, e);
    h->tokenizer_hash = tokenizer_hash(t);
    if (!rc) rc = token_cache_writer_finish(w, h, e);
    token_cache_writer_close(w);
    source_reader_close(reader);
    release(&b);
    return rc;
}

/* ---- learning a tokenizer ---- */
struct texts {
    struct arena arena;
    struct tokenizer_document *documents;
    size_t n, capacity;
    int64_t bytes, n_seen, skipped[SOURCE_SKIP_COUNT];
};

static err_t keep_text(struct texts *x, const char *text, size_t n, struct error *e)
{
    char *copy;

    if (x->n == x->capacity) {
        size_t capacity = x->capacity ? 2 * x->capacity : 1024;
        struct tokenizer_document *grown = mem_resize(x->documents, capacity, sizeof *grown);

        if (!grown) return FAIL(e, ERR_MEMORY, "out of memory while reading text for the tokenizer");
        x->documents = grown;
        x->capacity = capacity;
    }
    if ((int64_t)n > TOKENIZER_AUTO_MAX_BYTES - x->bytes) n = (size_t)(TOKENIZER_AUTO_MAX_BYTES - x->bytes);
    copy = arena_alloc(&x->arena, n);
    if (!copy) return FAIL(e, ERR_MEMORY, "out of memory while reading text for the tokenizer");
    memcpy(copy, text, n);
    x->documents[x->n++] = (struct tokenizer_document){copy, n};
    x->bytes += (int64_t)n;
    return ERR_NONE;
}

static err_t keep_batch(struct texts *x, const struct source *s, const struct source_batch *batch, struct str *scratch,
                        struct error *e)
{
    int64_t every = 1 + s->bytes / TOKENIZER_AUTO_MAX_BYTES;
    err_t rc = ERR_NONE;

    for (int64_t i = 0; !rc && i < batch->n_records && x->bytes < TOKENIZER_AUTO_MAX_BYTES; i++) {
        enum source_skip reason;
        const char *text;
        size_t n;

        if (x->n_seen++ % every) continue;
        rc = source_text(s, batch, i, scratch, &text, &n, &reason, e);
        if (rc) break;
        if (reason == SOURCE_USED)
            rc = keep_text(x, text, n, e);
        else
            x->skipped[reason]++;
    }
    return rc;
}

err_t token_build_tokenizer(struct tokenizer **out, const struct source *s, const struct tokenizer_spec *spec,
                            data_report report, void *report_arg, struct error *e)
{
    struct source_reader *reader = NULL;
    struct source_batch batch = {0};
    struct texts x = {0};
    struct tokenizer_spec learnt = *spec;
    struct str scratch = {0};
    err_t rc = source_reader_open(&reader, s, e);

    *out = NULL;
    x.arena.block_bytes = 1 << 20;
    while (!rc && x.bytes < TOKENIZER_AUTO_MAX_BYTES) {
        rc = source_read(reader, BATCH_BYTES_PER_THREAD, &batch, e);
        if (rc || batch.n_records == 0) break;
        rc = keep_batch(&x, s, &batch, &scratch, e);
        if (!rc)
            rc =
                data_tell(report, report_arg, "reading text for the tokenizer", source_read_bytes(reader), s->bytes, e);
    }
    if (!rc && !x.bytes) rc = no_text(s, x.skipped, e);
    learnt.report = report;
    learnt.report_arg = report_arg;
    if (!rc) rc = tokenizer_train(out, &learnt, x.documents, x.n, e);
    str_release(&scratch);
    source_batch_release(&batch);
    source_reader_close(reader);
    mem_free(x.documents);
    arena_release(&x.arena);
    return rc;
}
