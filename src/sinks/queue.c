/* SPDX-License-Identifier: MIT */
/*
 * One ring and one writer thread per sink; see sink.h.
 *
 * The ring has one producer (the training thread, moves `head`) and one consumer (the writer, moves `tail`
 * once the items are delivered); head and tail only grow. Waking a thread would cost the producer more than
 * all the rest, so it does that only when the ring has become half full: the writer looks by itself every
 * POLL_NS.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sinks/sink.h"

enum { DEFAULT_ROWS = 4096, BATCH = 256 };
static const int64_t FIRST_RETRY_NS = 1000000000, LAST_RETRY_NS = 30000000000, HURRIED_RETRY_NS = 50000000;
static const int64_t WARNING_NS = 60000000000, POLL_NS = 50000000;

struct item {
    struct metric_row row;
    struct sink_text text; /* text.tag NULL: a row; else tag and text are one block owned by the item */
};

struct queue {
    const struct sink_ops *ops;
    const void *options;
    struct log *log;
    struct item *items;
    uint64_t capacity;
    _Atomic uint64_t head, tail, n_lost, n_failures;
    _Atomic bool is_hurried;     /* a flush or close waits: retry soon */
    _Atomic int64_t close_at_ns; /* 0: not closing; else give up then */
    _Atomic bool is_abandoned;   /* sinks_close did not wait: nothing is delivered or told any more */
    _Atomic bool is_left;        /* one of the two threads has finished with the queue: the other frees it */
    sem_t wake, ended;
    pthread_t thread;
    /* writer only */
    void *sink;                            /* NULL: not open */
    int64_t retry_at_ns, retry_ns;         /* 0: all is well */
    int64_t failure_told_ns, lost_told_ns; /* when these warnings were last given; 0: never */
    uint64_t n_lost_told;
    struct sinks *owner;
    struct queue *next;
};

struct sinks {
    struct log *log;
    uint64_t capacity;
    atomic_int n_holders; /* the queues, and the caller until sinks_close */
    void (*ended)(void *arg);
    void *ended_arg;
    struct queue *first, *last;
};

/* ---- the writer ---- */

static bool may_warn(struct queue *q, int64_t *last_ns)
{
    int64_t now = clock_ns();

    if (atomic_load(&q->is_abandoned) || (*last_ns && now - *last_ns < WARNING_NS)) return false;
    *last_ns = now;
    return true;
}

static void failed(struct queue *q, const struct error *e, uint64_t n_waiting)
{
    atomic_fetch_add(&q->n_failures, 1);
    q->retry_ns = q->retry_ns ? q->retry_ns * 2 : FIRST_RETRY_NS;
    if (q->retry_ns > LAST_RETRY_NS) q->retry_ns = LAST_RETRY_NS;
    q->retry_at_ns = clock_ns() + q->retry_ns;
    if (may_warn(q, &q->failure_told_ns))
        log_warning(q->log, "metrics sink %s: %s; training goes on, %llu rows wait and are tried again", q->ops->name,
                    e->message, (unsigned long long)n_waiting);
}

static void recovered(struct queue *q, uint64_t n)
{
    q->retry_ns = q->retry_at_ns = 0;
    if (atomic_load(&q->is_abandoned)) return;
    log_info(q->log, "metrics sink %s works again, %llu rows delivered", q->ops->name, (unsigned long long)n);
}

static err_t encode(struct queue *q, struct item *item, struct error *e)
{
    if (!item->text.tag) return q->ops->write(q->sink, &item->row, e);
    return q->ops->text ? q->ops->text(q->sink, &item->text, e) : ERR_NONE;
}

static err_t deliver_batch(struct queue *q, uint64_t tail, uint64_t n, struct error *e)
{
    err_t rc = ERR_NONE;

    if (!q->sink) {
        rc = q->ops->open(&q->sink, q->options, e);
        if (rc) q->sink = NULL;
    }
    for (uint64_t i = 0; !rc && i < n; i++) rc = encode(q, &q->items[(tail + i) % q->capacity], e);
    return rc ? rc : q->ops->flush(q->sink, e);
}

/* Delivers what is there; false when the sink failed. */
static bool deliver(struct queue *q)
{
    struct error error = {0};
    uint64_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
    uint64_t n = atomic_load_explicit(&q->head, memory_order_acquire) - tail;

    if (n > BATCH) n = BATCH;
    if (deliver_batch(q, tail, n, &error)) {
        failed(q, &error, n);
        return false;
    }
    for (uint64_t i = 0; i < n; i++) {
        struct item *item = &q->items[(tail + i) % q->capacity];

        mem_free((char *)item->text.tag);
        item->text.tag = NULL;
    }
    atomic_store_explicit(&q->tail, tail + n, memory_order_release);
    if (q->retry_ns) recovered(q, n);
    return true;
}

static bool is_empty(struct queue *q) { return atomic_load(&q->head) == atomic_load(&q->tail); }

static void tell_lost(struct queue *q)
{
    uint64_t n_lost = atomic_load(&q->n_lost);

    if (n_lost == q->n_lost_told || !may_warn(q, &q->lost_told_ns)) return;
    log_warning(q->log, "metrics sink %s: %llu rows lost: its queue of %llu is full; a larger metrics.queue_rows helps",
                q->ops->name, (unsigned long long)(n_lost - q->n_lost_told), (unsigned long long)q->capacity);
    q->n_lost_told = n_lost;
}

/* Sleeps until it is time to look again: for rows, or for the retry of a failed sink, which only a flush or a
 * close brings forward. */
static void rest(struct queue *q)
{
    struct timespec until;
    bool is_failed = q->retry_at_ns != 0;
    int64_t now = clock_ns(), at = is_failed ? q->retry_at_ns : now + POLL_NS;
    int64_t close_at = atomic_load(&q->close_at_ns);

    if (atomic_load(&q->is_hurried) && at > now + HURRIED_RETRY_NS) at = now + HURRIED_RETRY_NS;
    if (close_at && at > close_at) at = close_at;
    until = (struct timespec){at / 1000000000, at % 1000000000};
    while (!sem_clockwait(&q->wake, CLOCK_MONOTONIC, &until))
        if (!is_failed || atomic_load(&q->is_hurried)) break;
    if (is_failed && atomic_load(&q->is_hurried)) q->retry_at_ns = clock_ns();
}

static void drop(struct sinks *s)
{
    if (atomic_fetch_sub(&s->n_holders, 1) != 1) return;
    if (s->ended) s->ended(s->ended_arg);
    mem_free(s);
}

static void queue_destroy(struct queue *q)
{
    struct sinks *owner;

    if (!q) return;
    owner = q->owner;
    for (uint64_t i = 0; q->items && i < q->capacity; i++) mem_free((char *)q->items[i].text.tag);
    mem_free(q->items);
    sem_destroy(&q->wake);
    sem_destroy(&q->ended);
    mem_free(q);
    drop(owner);
}

static void *writer(void *arg)
{
    struct queue *q = arg;
    char name[16];

    snprintf(name, sizeof name, "sink %s", q->ops->name);
    pthread_setname_np(pthread_self(), name);
    deliver(q); /* opens the sink, so that its file exists from the start */
    while (!atomic_load(&q->is_abandoned)) {
        int64_t close_at = atomic_load(&q->close_at_ns);

        if (close_at && (is_empty(q) || clock_ns() >= close_at)) break;
        tell_lost(q);
        if (q->retry_at_ns > clock_ns() || is_empty(q)) rest(q);
        if (q->retry_at_ns <= clock_ns() && (q->retry_at_ns || !is_empty(q))) deliver(q);
    }
    if (q->sink) q->ops->close(q->sink);
    if (atomic_exchange(&q->is_left, true))
        queue_destroy(q);
    else
        sem_post(&q->ended);
    return NULL;
}

/* ---- the training thread ---- */

err_t sinks_create(struct sinks **out, struct log *log, int queue_rows, struct error *e)
{
    struct sinks *s = *out = mem_zalloc(1, sizeof *s);

    if (!s) return FAIL(e, ERR_MEMORY, "out of memory for the metrics sinks");
    atomic_store(&s->n_holders, 1);
    s->log = log;
    s->capacity = queue_rows > 0 ? (uint64_t)queue_rows : DEFAULT_ROWS;
    return ERR_NONE;
}

void sinks_when_ended(struct sinks *s, void (*ended)(void *arg), void *arg)
{
    s->ended = ended;
    s->ended_arg = arg;
}

err_t sinks_add(struct sinks *s, const struct sink_ops *ops, const void *options, struct error *e)
{
    struct queue *q = mem_zalloc(1, sizeof *q);
    sigset_t all, before;
    int number;

    if (!q) goto memory;
    q->owner = s;
    atomic_fetch_add(&s->n_holders, 1);
    sem_init(&q->wake, 0, 0);
    sem_init(&q->ended, 0, 0);
    q->ops = ops;
    q->options = options;
    q->log = s->log;
    q->capacity = s->capacity;
    q->items = mem_zalloc(q->capacity, sizeof *q->items);
    if (!q->items) goto memory;
    sigfillset(&all); /* signals are the training thread's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    number = pthread_create(&q->thread, NULL, writer, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (number) {
        queue_destroy(q);
        return FAIL(e, ERR_MEMORY, "cannot start the thread of the metrics sink %s: %s", ops->name, strerror(number));
    }
    if (s->last)
        s->last->next = q;
    else
        s->first = q;
    s->last = q;
    return ERR_NONE;
memory:
    queue_destroy(q);
    return FAIL(e, ERR_MEMORY, "out of memory for the queue of the metrics sink %s", ops->name);
}

/* The free item behind the newest, or NULL when the ring is full. */
static struct item *next_item(struct queue *q)
{
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);

    if (head - atomic_load_explicit(&q->tail, memory_order_acquire) < q->capacity) return &q->items[head % q->capacity];
    atomic_fetch_add_explicit(&q->n_lost, 1, memory_order_relaxed);
    return NULL;
}

static void publish(struct queue *q)
{
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed) + 1;

    atomic_store_explicit(&q->head, head, memory_order_release);
    if (head - atomic_load_explicit(&q->tail, memory_order_relaxed) == q->capacity / 2) sem_post(&q->wake);
}

void sinks_write(struct sinks *s, const struct metric_row *row)
{
    for (struct queue *q = s ? s->first : NULL; q; q = q->next) {
        struct item *item = next_item(q);

        if (!item) continue;
        item->row = *row;
        publish(q);
    }
}

void sinks_text(struct sinks *s, const struct sink_text *text)
{
    size_t tag_bytes = strlen(text->tag) + 1, text_bytes = strlen(text->text) + 1;

    for (struct queue *q = s ? s->first : NULL; q; q = q->next) {
        struct item *item = next_item(q);
        char *copy = item ? mem_alloc(tag_bytes + text_bytes) : NULL;

        if (item && !copy) atomic_fetch_add(&q->n_lost, 1);
        if (!copy) continue;
        memcpy(copy, text->tag, tag_bytes);
        memcpy(copy + tag_bytes, text->text, text_bytes);
        item->text = *text;
        item->text.tag = copy;
        item->text.text = copy + tag_bytes;
        publish(q);
    }
}

bool sinks_flush(struct sinks *s, int64_t timeout_ns)
{
    int64_t deadline = clock_ns() + timeout_ns;
    bool is_done = true;

    for (struct queue *q = s ? s->first : NULL; q; q = q->next) {
        uint64_t target = atomic_load(&q->head), n_failures = atomic_load(&q->n_failures);

        if (atomic_load(&q->tail) >= target) continue;
        atomic_store(&q->is_hurried, true);
        sem_post(&q->wake);
        while (atomic_load(&q->tail) < target && atomic_load(&q->n_failures) == n_failures && clock_ns() < deadline)
            clock_sleep_ns(200000);
        if (atomic_load(&q->tail) < target) is_done = false;
        atomic_store(&q->is_hurried, false);
    }
    return is_done;
}

int sinks_count(const struct sinks *s)
{
    int n = 0;

    for (const struct queue *q = s ? s->first : NULL; q; q = q->next) n++;
    return n;
}

void sinks_stats(const struct sinks *s, int index, struct sink_stats *out)
{
    struct queue *q = s->first;

    while (index-- > 0) q = q->next;
    *out = (struct sink_stats){.name = q->ops->name,
                               .n_written = (int64_t)atomic_load(&q->head),
                               .n_delivered = (int64_t)atomic_load(&q->tail),
                               .n_lost = (int64_t)atomic_load(&q->n_lost),
                               .n_failures = (int64_t)atomic_load(&q->n_failures)};
}

void sinks_measure(const struct sinks *s, struct metric_row *row)
{
    uint64_t n_queued = 0, n_lost = 0;

    for (struct queue *q = s ? s->first : NULL; q; q = q->next) {
        uint64_t n = atomic_load(&q->head) - atomic_load(&q->tail);

        if (n > n_queued) n_queued = n;
        n_lost += atomic_load(&q->n_lost);
    }
    metric_row_set(row, METRIC_SINK_QUEUED, (double)n_queued);
    if (n_lost) metric_row_set(row, METRIC_SINK_LOST, (double)n_lost);
}

/* Waits for the writer's end a little past the deadline, so that it can give up by itself. */
static bool writer_ended(struct queue *q, int64_t deadline_ns)
{
    struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};

    while (sem_clockwait(&q->ended, CLOCK_MONOTONIC, &until))
        if (errno != EINTR) return false;
    return true;
}

int64_t sinks_close(struct sinks *s, int64_t timeout_ns)
{
    int64_t deadline = clock_ns() + timeout_ns, n_missing = 0;

    if (!s) return 0;
    for (struct queue *q = s->first; q; q = q->next) {
        atomic_store(&q->close_at_ns, deadline);
        atomic_store(&q->is_hurried, true);
        sem_post(&q->wake);
    }
    for (struct queue *q = s->first, *next; q; q = next) {
        bool has_ended = writer_ended(q, deadline + HURRIED_RETRY_NS);
        int64_t n_left = (int64_t)(atomic_load(&q->head) - atomic_load(&q->tail)),
                n_lost = (int64_t)atomic_load(&q->n_lost);
        pthread_t thread;

        next = q->next;
        n_missing += n_left + n_lost;
        if (n_left + n_lost)
            log_warning(q->log, "metrics sink %s: %lld rows not delivered (%lld at its end, %lld lost to a full queue)",
                        q->ops->name, (long long)(n_left + n_lost), (long long)n_left, (long long)n_lost);
        if (!has_ended) atomic_store(&q->is_abandoned, true);
        thread = q->thread;
        if (has_ended || atomic_exchange(&q->is_left, true)) {
            pthread_join(thread, NULL);
            queue_destroy(q);
        } else { /* it hangs in a system call: should it come back, it cleans up itself */
            pthread_detach(thread);
        }
    }
    drop(s);
    return n_missing;
}
