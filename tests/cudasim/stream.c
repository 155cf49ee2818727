/* SPDX-License-Identifier: MIT */
/* See stream.h. */
#include "stream.h"
#include "runtime.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_stream {
    int number; /* index of its position in clocks */
    int device;
    bool is_blocking, is_busy;
    struct sim_op *first, *last;
    uint64_t pushed, done;
    struct order_clock clock;
    struct sim_stream *next;
};

struct sim_mark {
    int references;
    struct sim_stream *stream;
    uint64_t position, ns;
    bool is_done;
    struct order_clock clock;
};

struct sim_event {
    bool has_time;
    struct sim_mark *mark; /* of the last record; NULL: never recorded */
    struct sim_event *next;
};

/* Programs nap between queries; each then finds that the device went on meanwhile. */
enum { OPERATIONS_A_QUERY = 64 };

static struct sim_stream *streams, *default_stream;
static struct sim_event *events;
static struct order_clock host; /* what the host knows to be done */
static uint64_t numbers_taken, last_positions[SIM_STREAMS];
static uint64_t random_state;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Thread_local uint64_t ran_ns;
static _Thread_local int depth;

uint64_t stream_ran_ns(void) { return ran_ns; }

/* ---- streams ---- */

struct sim_stream *stream_create(bool is_blocking, int device)
{
    if (!default_stream) default_stream = streams = sim_alloc(sizeof *streams);
    int number = 1;
    while (number < SIM_STREAMS && numbers_taken >> number & 1) number++;
    if (number == SIM_STREAMS)
        sim_die("more than %d streams at a time: the simulator's clocks have no place for them", SIM_STREAMS - 1);
    numbers_taken |= UINT64_C(1) << number;
    struct sim_stream *s = sim_alloc(sizeof *s);
    *s = (struct sim_stream){.number = number, .is_blocking = is_blocking, .device = device, .next = streams};
    /* a number that was used before: positions go on, or what ran then would count as this stream's future */
    s->pushed = s->done = s->clock.at[number] = last_positions[number];
    return streams = s;
}

struct sim_stream *stream_default(void)
{
    if (!default_stream) {
        default_stream = sim_alloc(sizeof *default_stream);
        streams = default_stream;
    }
    return default_stream;
}

bool stream_is(const void *p)
{
    for (const struct sim_stream *s = streams; s; s = s->next)
        if (s == p) return true;
    return false;
}

int stream_number(const struct sim_stream *s) { return s->number; }

int stream_device(const struct sim_stream *s) { return s->device; }

uint64_t stream_end(const struct sim_stream *s) { return s->pushed; }

void stream_destroy(struct sim_stream *s)
{
    stream_run_to(s, s->pushed);
    last_positions[s->number] = s->pushed;
    numbers_taken &= ~(UINT64_C(1) << s->number);
    struct sim_stream **at = &streams;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    sim_bury(s); /* another thread may have waited for it */
}

/* ---- running ---- */

static void mark_release(struct sim_mark *mark)
{
    if (mark && !--mark->references) free(mark);
}

static struct sim_mark *mark_hold(struct sim_mark *mark)
{
    mark->references++;
    return mark;
}

static void execute(struct sim_stream *s, struct sim_op *op)
{
    struct sim_access access = order_begin(op->name, s->number, &s->clock);
    if (sim_options.is_traced) fprintf(stderr, "cudasim-trace: stream %d runs %s\n", s->number, op->name);
    uint64_t start = sim_ns();
    depth++;
    op->run(op, &access);
    if (!--depth) ran_ns += sim_ns() - start;
}

/* Runs the first operation of a stream that is not busy. */
static void run_first(struct sim_stream *s)
{
    struct sim_op *op = s->first;
    s->is_busy = true;
    if (op->waits_for) {
        if (!op->waits_for->is_done) stream_run_to(op->waits_for->stream, op->waits_for->position);
        order_join(&s->clock, &op->waits_for->clock);
    }
    order_join(&s->clock, &op->seen);
    s->clock.at[s->number] = op->position;
    if (op->run && !runtime_device_has_failed()) execute(s, op);
    if (op->records) {
        op->records->clock = s->clock;
        op->records->ns = sim_ns();
        op->records->is_done = true;
    }
    s->first = op->next;
    s->last = s->first ? s->last : NULL;
    s->done = op->position;
    s->is_busy = false;
    mark_release(op->records);
    mark_release(op->waits_for);
    free(op);
    pthread_cond_broadcast(&changed);
}

/* Can its first operation run now without waiting for anything? */
static bool is_ready(const struct sim_stream *s)
{
    return s->first && !s->is_busy && !s->first->blocks && (!s->first->waits_for || s->first->waits_for->is_done);
}

/* With a seed: sometimes some operations that nobody asked for, as a device that is quick would; some seeds often. */
static void run_ahead(const struct sim_stream *except)
{
    if (!sim_options.seed || depth) return;
    random_state = random_state ? random_state : sim_options.seed;
    while (sim_random(&random_state) % 8 < 1 + sim_options.seed % 4 * 2) {
        struct sim_stream *chosen = NULL;
        unsigned n = 0;
        for (struct sim_stream *s = streams; s; s = s->next)
            if (s != except && is_ready(s) && sim_random(&random_state) % ++n == 0) chosen = s;
        if (!chosen) return;
        run_first(chosen);
    }
}

static void wait_for_others(void)
{
    uint64_t start = sim_ns();
    sim_wait(&changed);
    ran_ns += depth ? 0 : sim_ns() - start;
}

void stream_run_to(struct sim_stream *s, uint64_t position)
{
    while (s->done < position)
        if (s->is_busy)
            wait_for_others();
        else {
            run_ahead(s);
            if (s->done < position && !s->is_busy) run_first(s);
        }
}

/* Runs one operation that brings s on, and does not wait. False: all that can be done is to ask for it. */
static bool step(struct sim_stream *s)
{
    struct sim_stream *at = s;
    /* down to what can run */
    while (at->first && at->first->waits_for && !at->first->waits_for->is_done && !at->is_busy)
        at = at->first->waits_for->stream;
    if (!at->first || at->is_busy) return false;
    if (!at->first->blocks) {
        run_first(at);
        return true;
    }
    at->first->demand(at->first);
    sim_unlock();
    sched_yield();
    sim_lock();
    return false;
}

bool stream_step_to(struct sim_stream *s, uint64_t position)
{
    if (s->done >= position) return true;
    run_ahead(NULL);
    for (int n = 0; n < OPERATIONS_A_QUERY && s->done < position && step(s); n++)
        ;
    return false; /* the next query may say so: none is true at once where it need not be */
}

void stream_wait(struct sim_stream *s)
{
    stream_run_to(s, s->pushed);
    order_join(&host, &s->clock);
}

void stream_wait_all(void)
{
    /* others may come or go while one is waited for */
    for (bool is_all = false; !is_all;) {
        is_all = true;
        for (struct sim_stream *s = streams; s; s = s->next)
            if (s->done < s->pushed) {
                is_all = false;
                stream_run_to(s, s->pushed);
                break;
            }
    }
    for (struct sim_stream *s = streams; s; s = s->next) order_join(&host, &s->clock);
}

/* ---- issuing ---- */

static void append(struct sim_stream *s, struct sim_op *op)
{
    op->seen = host;
    op->position = ++s->pushed;
    op->stream = s;
    op->next = NULL;
    if (s->last)
        s->last->next = op;
    else
        s->first = op;
    s->last = op;
}

static struct sim_mark *record(struct sim_stream *s)
{
    struct sim_mark *mark = sim_alloc(sizeof *mark);
    struct sim_op *op = sim_alloc(sizeof *op);
    op->name = "cudaEventRecord";
    op->records = mark_hold(mark);
    append(s, op);
    mark->stream = s;
    mark->position = op->position;
    return mark;
}

static void wait_for(struct sim_stream *s, struct sim_mark *mark)
{
    if (mark->is_done && mark->stream == s) return;
    struct sim_op *op = sim_alloc(sizeof *op);
    op->name = "cudaStreamWaitEvent";
    op->waits_for = mark_hold(mark);
    append(s, op);
}

static void follow(struct sim_stream *s, struct sim_stream *other)
{
    struct sim_mark *mark = mark_hold(record(other));
    wait_for(s, mark);
    mark_release(mark);
}

void stream_push(struct sim_stream *s, struct sim_op *op)
{
    /* the legacy default stream comes after all work in blocking streams, and they come after it */
    if (s == stream_default()) {
        for (struct sim_stream *other = streams; other; other = other->next)
            if (other->is_blocking && other->pushed) follow(s, other);
    } else if (s->is_blocking && default_stream->pushed)
        follow(s, default_stream);
    append(s, op);
    if (op->issued) op->issued(op);
    run_ahead(NULL);
}

/* ---- who uses memory ---- */

static const struct sim_op *pending_user(uint64_t address, uint64_t bytes)
{
    for (const struct sim_stream *s = streams; s; s = s->next)
        for (const struct sim_op *op = s->first; op; op = op->next)
            for (int i = 0; i < op->n_uses; i++)
                if ((uint64_t)(uintptr_t)op->uses[i] - address < bytes) return op;
    return NULL;
}

const char *stream_user(uint64_t address, uint64_t bytes)
{
    const struct sim_op *op = pending_user(address, bytes);
    if (op) return op->name;
    return sim_is_device(address) ? order_user(address, bytes, &host) : NULL;
}

bool stream_is_pending(uint64_t address, uint64_t bytes) { return pending_user(address, bytes) != NULL; }

/* ---- events ---- */

struct sim_event *event_create(bool has_time)
{
    struct sim_event *e = sim_alloc(sizeof *e);
    *e = (struct sim_event){.has_time = has_time, .next = events};
    return events = e;
}

bool event_is(const void *p)
{
    for (const struct sim_event *e = events; e; e = e->next)
        if (e == p) return true;
    return false;
}

void event_destroy(struct sim_event *e)
{
    struct sim_event **at = &events;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    mark_release(e->mark);
    free(e);
}

void event_record(struct sim_event *e, struct sim_stream *s)
{
    mark_release(e->mark);
    if (s == stream_default())
        for (struct sim_stream *other = streams; other; other = other->next)
            if (other->is_blocking && other->pushed) follow(s, other);
    e->mark = mark_hold(record(s));
    run_ahead(NULL);
}

bool event_was_recorded(const struct sim_event *e) { return e->mark != NULL; }

bool event_has_time(const struct sim_event *e) { return e->has_time; }

void stream_wait_event(struct sim_stream *s, struct sim_event *e)
{
    wait_for(s, e->mark);
    run_ahead(NULL);
}

bool event_step(struct sim_event *e)
{
    if (!e->mark) return true;
    struct sim_mark *mark = mark_hold(e->mark);
    bool is_done = mark->is_done || stream_step_to(mark->stream, mark->position);
    if (is_done) order_join(&host, &mark->clock);
    mark_release(mark);
    return is_done;
}

void event_wait(struct sim_event *e)
{
    if (!e->mark) return;
    struct sim_mark *mark = mark_hold(e->mark);
    if (!mark->is_done) stream_run_to(mark->stream, mark->position);
    order_join(&host, &mark->clock);
    mark_release(mark);
}

bool event_ns(const struct sim_event *e, uint64_t *ns)
{
    if (!e->mark || !e->mark->is_done) return false;
    *ns = e->mark->ns;
    return true;
}

void stream_leaks(void)
{
    int n_streams = 0, n_events = 0, n_pending = 0;
    for (const struct sim_stream *s = streams; s; s = s->next) {
        n_streams += s != default_stream;
        n_pending += s->done < s->pushed;
    }
    for (const struct sim_event *e = events; e; e = e->next) n_events++;
    if (n_streams) sim_report("leak: %d streams are not destroyed at the end", n_streams);
    if (n_events) sim_report("leak: %d events are not destroyed at the end", n_events);
    if (n_pending) sim_report("leak: %d streams hold work at the end that nothing waited for", n_pending);
}
