/* SPDX-License-Identifier: MIT */
/*
 * The prefetch thread and its ring; see loader.h.
 *
 * A batch is in one of three places: free (the thread may fill it), ready (filled, in order), out (handed to the
 * caller). The lock guards only these lists; a batch is filled and used without it.
 */
#include "data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/mem.h"

struct loader {
    struct loader_spec spec;
    struct sampler sampler;
    int64_t n_batches;    /* of a finite pass; -1 = no end */
    int64_t n_handed_out; /* caller's thread only */

    int capacity;
    struct batch *batches; /* [capacity] */
    int32_t *ids;          /* what they point into */
    int32_t *scratch;      /* [seq_len + 1], the thread's */

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t filled, freed;
    struct batch **free_list, **ready; /* [capacity] each: a stack, a ring */
    int n_free, n_ready, first_ready, n_out;
    bool stop;
    struct error error; /* code 0 = none */
};

struct data_cursor data_cursor_advance(struct data_cursor c, int64_t n_samples, int64_t samples_per_epoch)
{
    int64_t sample = c.sample + n_samples;

    return (struct data_cursor){c.epoch + sample / samples_per_epoch, sample % samples_per_epoch};
}

static int64_t global_batch_rows(const struct loader_spec *s) { return (int64_t)s->local_batch * s->dp_size; }

static err_t fill(struct loader *l, int64_t microbatch, struct batch *b, struct error *e)
{
    const struct loader_spec *s = &l->spec;
    int64_t T = s->seq_len, first = (microbatch * s->dp_size + s->dp_rank) * s->local_batch;
    struct data_cursor at = data_cursor_advance(s->start, first, l->sampler.n_samples);

    b->n_valid = b->n_tokens = 0;
    b->epoch = s->repeat ? at.epoch : s->start.epoch;
    b->first_sample = s->repeat ? at.sample : s->start.sample + first;
    for (int row = 0; row < s->local_batch; row++) {
        int32_t *tokens = b->tokens + row * T, *labels = b->labels + row * T, *positions = b->positions + row * T;
        int32_t *document_start = b->document_start ? b->document_start + row * T : NULL;
        int64_t sample;
        err_t rc;

        if (!s->repeat && s->start.sample + first + row >= l->sampler.n_samples) {
            sampler_fill_blank(&l->sampler, tokens, labels, positions, document_start);
            continue;
        }
        sample = sampler_order(&l->sampler, at.epoch, at.sample);
        rc = sampler_fill(&l->sampler, sample, l->scratch, tokens, labels, positions, document_start, &b->n_valid, e);
        if (rc) return rc;
        b->n_tokens += T;
        at = data_cursor_advance(at, 1, l->sampler.n_samples);
    }
    return ERR_NONE;
}

static void *prefetch(void *arg)
{
    struct loader *l = arg;
    struct error e = {0};
    err_t rc = ERR_NONE;

    for (int64_t i = 0; !rc && i != l->n_batches; i++) {
        struct batch *b;

        pthread_mutex_lock(&l->lock);
        while (!l->n_free && !l->stop) pthread_cond_wait(&l->freed, &l->lock);
        b = l->stop ? NULL : l->free_list[--l->n_free];
        pthread_mutex_unlock(&l->lock);
        if (!b) break;
        rc = fill(l, i, b, &e);
        pthread_mutex_lock(&l->lock);
        if (rc)
            l->error = e;
        else
            l->ready[(l->first_ready + l->n_ready++) % l->capacity] = b;
        pthread_cond_signal(&l->filled);
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

static err_t check_spec(const struct loader_spec *s, int64_t n_samples, struct error *e)
{
    if (s->local_batch < 1 || s->n_microbatches < 1 || s->prefetch < 1)
        return FAIL(e, ERR_RANGE,
                    "the loader needs at least one row, microbatch and prefetched batch; it got %d, %d and %d",
                    s->local_batch, s->n_microbatches, s->prefetch);
    if (s->dp_size < 1 || s->dp_rank < 0 || s->dp_rank >= s->dp_size)
        return FAIL(e, ERR_RANGE, "data-parallel rank %d of %d does not exist", s->dp_rank, s->dp_size);
    if (s->start.epoch < 0 || s->start.sample < 0 || s->start.sample >= n_samples)
        return FAIL(e, ERR_CONFIG,
                    "cannot go on at sample %lld of epoch %lld: %s has %lld samples of %d tokens. "
                    "Was the run started with other data or another training.seq_len?",
                    (long long)s->start.sample, (long long)s->start.epoch, token_cache_name(s->cache),
                    (long long)n_samples, s->seq_len);
    return ERR_NONE;
}

static err_t allocate(struct loader *l, struct error *e)
{
    const struct loader_spec *s = &l->spec;
    size_t n_arrays = s->document_mask ? 4 : 3, ids = (size_t)s->local_batch * (size_t)s->seq_len;

    l->capacity = s->n_microbatches + s->prefetch;
    l->batches = mem_zalloc((size_t)l->capacity, sizeof *l->batches);
    l->free_list = mem_zalloc((size_t)l->capacity, sizeof *l->free_list);
    l->ready = mem_zalloc((size_t)l->capacity, sizeof *l->ready);
    l->ids = mem_zalloc((size_t)l->capacity * n_arrays, ids * sizeof *l->ids);
    l->scratch = mem_zalloc((size_t)s->seq_len + 1, sizeof *l->scratch);
    if (!l->batches || !l->free_list || !l->ready || !l->ids || !l->scratch)
        return FAIL(e, ERR_MEMORY, "out of memory for %d batches of %d x %d tokens", l->capacity, s->local_batch,
                    s->seq_len);
    for (int i = 0; i < l->capacity; i++) {
        struct batch *b = &l->batches[i];
        int32_t *base = l->ids + (size_t)i * n_arrays * ids;

        *b = (struct batch){.tokens = base, .labels = base + ids, .positions = base + 2 * ids, .rows = s->local_batch};
        b->seq_len = s->seq_len;
        if (s->document_mask) b->document_start = base + 3 * ids;
        l->free_list[l->n_free++] = b;
    }
    return ERR_NONE;
}

/* The thread takes no signals: those are for the rank's main thread. */
static err_t start_thread(struct loader *l, struct error *e)
{
    sigset_t all, old;
    int status;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    status = pthread_create(&l->thread, NULL, prefetch, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (status) return FAIL(e, ERR_MEMORY, "cannot start the data loader's thread: %s", strerror(status));
    l->has_thread = true;
    return ERR_NONE;
}

err_t loader_open(struct loader **out, const struct loader_spec *spec, struct error *e)
{
    struct loader *l = mem_zalloc(1, sizeof *l);
    int64_t rows;
    err_t rc;

    *out = NULL;
    if (!l) return FAIL(e, ERR_MEMORY, "out of memory while opening the data loader");
    l->spec = *spec;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->filled, NULL);
    pthread_cond_init(&l->freed, NULL);
    rc = sampler_init(&l->sampler, spec->cache, spec->seq_len, spec->document_mask, spec->shuffle, spec->seed,
                      spec->repeat, e);
    if (!rc) rc = check_spec(spec, l->sampler.n_samples, e);
    if (rc) goto out;
    rows = global_batch_rows(spec);
    l->n_batches = spec->repeat ? -1 : (l->sampler.n_samples - spec->start.sample + rows - 1) / rows;
    rc = allocate(l, e);
    if (!rc) rc = start_thread(l, e);
out:
    if (rc)
        loader_close(l);
    else
        *out = l;
    return rc;
}

void loader_close(struct loader *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->freed);
    pthread_mutex_unlock(&l->lock);
    if (l->has_thread) pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->freed);
    pthread_cond_destroy(&l->filled);
    pthread_mutex_destroy(&l->lock);
    mem_free(l->scratch);
    mem_free(l->ids);
    mem_free(l->ready);
    mem_free(l->free_list);
    mem_free(l->batches);
    mem_free(l);
}

err_t loader_next(struct loader *l, struct batch **out, struct error *e)
{
    err_t rc = ERR_NONE;

    *out = NULL;
    if (l->n_handed_out == l->n_batches) return ERR_NONE;
    pthread_mutex_lock(&l->lock);
    /* all batches out: the thread has none to fill, so waiting would never end */
    while (!l->n_ready && !l->error.code && l->n_out < l->capacity) pthread_cond_wait(&l->filled, &l->lock);
    if (l->n_ready) {
        *out = l->ready[l->first_ready];
        l->first_ready = (l->first_ready + 1) % l->capacity;
        l->n_ready--;
        l->n_out++;
        l->n_handed_out++;
    } else if (l->error.code) {
        rc = FAIL(e, l->error.code, "%s", l->error.message);
    } else {
        rc = FAIL(e, ERR_RANGE, "all %d batches of the data loader are in use: release one before taking the next",
                  l->capacity);
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

void loader_release(struct loader *l, struct batch *b)
{
    if (!b) return;
    pthread_mutex_lock(&l->lock);
    l->free_list[l->n_free++] = b;
    l->n_out--;
    pthread_cond_signal(&l->freed);
    pthread_mutex_unlock(&l->lock);
}

struct data_cursor loader_cursor(const struct loader *l)
{
    return data_cursor_advance(l->spec.start, l->n_handed_out * global_batch_rows(&l->spec), l->sampler.n_samples);
}

int64_t loader_samples(const struct loader *l) { return l->sampler.n_samples; }
