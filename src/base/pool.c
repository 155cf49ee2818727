/* SPDX-License-Identifier: MIT */
/*
 * Worker threads; see pool.h. Workers spin briefly before they sleep, because kernels follow each other within
 * microseconds.
 *
 * A worker joins a loop before it looks at it. The caller closes the loop when no chunk is left, and waits only for
 * those who joined: a worker that the system has no core for at the moment is not waited for, unless it holds a chunk.
 */
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

enum { SPIN_ROUNDS = 4000, MOST_THREADS = 1 << 14, CLOSED = 1 << 15, LOOP = 1 << 16 };

struct pool {
    int n_threads;
    int n_started;
    pthread_t *threads;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    pool_task task;
    void *arg;
    int64_t n_chunks;
    atomic_long next_chunk;
    _Atomic uint64_t state; /* LOOP * number of the loop, + CLOSED while nobody may join it, + workers that joined */
    atomic_int finished;    /* of those who joined */
    atomic_bool stop;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void take_chunks(struct pool *p)
{
    int64_t chunk;

    while ((chunk = atomic_fetch_add(&p->next_chunk, 1)) < p->n_chunks) p->task(p->arg, chunk);
}

/* Whether a worker whose last loop was number `seen` has anything to do. */
static bool is_called(struct pool *p, uint64_t seen)
{
    uint64_t state = atomic_load(&p->state);

    return (!(state & CLOSED) && state / LOOP != seen) || atomic_load(&p->stop);
}

static bool has_finished(struct pool *p)
{
    uint64_t state = atomic_load(&p->state);

    return state & CLOSED && (int)(state % CLOSED) == atomic_load(&p->finished);
}

static void *worker(void *arg)
{
    struct pool *p = arg;
    uint64_t seen = 0, state;

    for (;;) {
        for (int i = 0; i < SPIN_ROUNDS && !is_called(p, seen); i++) relax();
        pthread_mutex_lock(&p->lock);
        if (!is_called(p, seen))
            pthread_cond_wait(&p->wake, &p->lock); /* once: woken too late, it spins again before it sleeps */
        pthread_mutex_unlock(&p->lock);
        if (atomic_load(&p->stop)) return NULL;
        state = atomic_load(&p->state);
        if (state & CLOSED || state / LOOP == seen || !atomic_compare_exchange_strong(&p->state, &state, state + 1))
            continue;
        seen = state / LOOP;
        take_chunks(p);
        atomic_fetch_add(&p->finished, 1);
        if (has_finished(p)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

err_t pool_create(struct pool **out, int n_threads, struct error *e)
{
    struct pool *p = mem_zalloc(1, sizeof *p);

    *out = NULL;
    if (!p) return FAIL(e, ERR_MEMORY, "out of memory while starting %d threads", n_threads);
    p->n_threads = n_threads < 1 ? 1 : n_threads > MOST_THREADS ? MOST_THREADS : n_threads;
    atomic_store(&p->state, CLOSED);
    p->threads = mem_zalloc((size_t)p->n_threads, sizeof *p->threads);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    while (p->threads && p->n_started < p->n_threads - 1) {
        int status = pthread_create(&p->threads[p->n_started], NULL, worker, p);

        if (status) {
            int n = p->n_started + 1;

            pool_destroy(p);
            return FAIL(e, ERR_MEMORY, "cannot start thread %d of %d: %s", n, n_threads, strerror(status));
        }
        p->n_started++;
    }
    if (!p->threads) {
        pool_destroy(p);
        return FAIL(e, ERR_MEMORY, "out of memory while starting %d threads", n_threads);
    }
    *out = p;
    return ERR_NONE;
}

void pool_destroy(struct pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_started; i++) pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    mem_free(p->threads);
    mem_free(p);
}

int pool_threads(const struct pool *p) { return p ? p->n_threads : 1; }

void pool_run(struct pool *p, pool_task task, void *arg, int64_t n_chunks)
{
    if (!p || p->n_started == 0 || n_chunks <= 1) {
        for (int64_t chunk = 0; chunk < n_chunks; chunk++) task(arg, chunk);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->task = task;
    p->arg = arg;
    p->n_chunks = n_chunks;
    atomic_store(&p->next_chunk, 0);
    atomic_store(&p->finished, 0);
    atomic_store(&p->state, (atomic_load(&p->state) / LOOP + 1) * LOOP);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    take_chunks(p);
    atomic_fetch_or(&p->state, CLOSED);
    for (int i = 0; i < SPIN_ROUNDS && !has_finished(p); i++) relax();
    if (has_finished(p)) return;
    pthread_mutex_lock(&p->lock);
    while (!has_finished(p)) pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
