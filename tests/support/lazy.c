/* SPDX-License-Identifier: MIT */
/* Streams that put everything off; see lazy.h. A stream is a list of operations, an event a place in one. */
#include "tests/support/lazy.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "device/allocator.h"
#include "device/cpu.h"

enum { MOST_STREAMS = 8 };

struct lazy;

struct operation {
    struct operation *next;
    void (*run)(struct lazy *l, void *arguments); /* NULL: waits until `other` has done `position` operations */
    struct stream *other;
    uint64_t position;
    max_align_t arguments[]; /* a copy */
};

struct stream {
    struct operation *first, *last;
    uint64_t n_given, n_done;
};

struct event {
    struct stream *stream; /* NULL: not recorded yet */
    uint64_t position;
};

struct lazy {
    struct device device; /* first */
    struct device *cpu;   /* whose memory it is */
    struct stream main, *streams[MOST_STREAMS];
    int n_streams;
    enum lazy_order order;
    struct rng_key key;
    uint64_t n_drawn;
    err_t failed; /* of a collective */
    struct error error;
    const struct kernels *real;
    struct kernels kernels;
};

static struct lazy *lazy_of(struct device *d) { return (struct lazy *)d; }

static struct stream *stream_of(struct lazy *l, struct stream *s) { return s ? s : &l->main; }

/* ---- giving ---- */
static void give(struct lazy *l, struct stream *s, struct operation o, const void *arguments, size_t bytes)
{
    struct operation *kept = mem_alloc(sizeof *kept + bytes);

    s = stream_of(l, s);
    BUG_ON(!kept);
    *kept = o;
    kept->next = NULL;
    if (bytes) memcpy(kept->arguments, arguments, bytes);
    if (s->first)
        s->last->next = kept;
    else
        s->first = kept;
    s->last = kept;
    s->n_given++;
}

static void defer(struct lazy *l, struct stream *s, void (*run)(struct lazy *l, void *arguments), const void *arguments,
                  size_t bytes)
{
    give(l, s, (struct operation){.run = run}, arguments, bytes);
}

/* ---- doing ---- */
static bool can_go_on(const struct stream *s)
{
    return s->first && (s->first->run || s->first->other->n_done >= s->first->position);
}

static void do_first(struct lazy *l, struct stream *s)
{
    struct operation *o = s->first;

    s->first = o->next;
    if (o->run) o->run(l, o->arguments);
    s->n_done++;
    mem_free(o);
}

/* Something of the streams that can go on, but of `not`: of any, or the first one's. false: none can. */
static bool do_something(struct lazy *l, const struct stream * not )
{
    int start = l->order == LAZY_RANDOM ? (int)rng_below(l->key, l->n_drawn++, (uint64_t)l->n_streams) : 0;

    for (int i = 0; i < l->n_streams; i++) {
        struct stream *s = l->streams[(start + i) % l->n_streams];

        if (s == not || !can_go_on(s)) continue;
        do_first(l, s);
        return true;
    }
    return false;
}

static void do_until(struct lazy *l, struct stream *s, uint64_t position)
{
    while (s->n_done < position) {
        if (l->order == LAZY_RANDOM) {
            if (!do_something(l, NULL)) BUG("streams wait for each other");
            continue;
        }
        while (l->order == LAZY_OTHERS_FIRST && do_something(l, s)) {
        }
        if (s->n_done >= position) break;
        if (!s->first->run) do_until(l, s->first->other, s->first->position);
        do_first(l, s);
    }
}

static err_t wait_for(struct lazy *l, struct stream *s, uint64_t position, struct error *e)
{
    do_until(l, s, position);
    if (l->failed && e) *e = l->error;
    return l->failed;
}

/* ---- the table ---- */
struct copy {
    void *to;
    const void *from;
    size_t to_pitch, from_pitch, bytes, rows;
};

static void run_copy(struct lazy *l, void *arguments)
{
    const struct copy *c = arguments;

    (void)l;
    for (size_t i = 0; i < c->rows; i++) {
        char *to = (char *)c->to + i * c->to_pitch;

        if (c->from)
            memcpy(to, (const char *)c->from + i * c->from_pitch, c->bytes);
        else
            memset(to, 0, c->bytes);
    }
}

static err_t lazy_copy_2d(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                          size_t bytes, size_t rows, struct stream *s, struct error *e)
{
    struct copy c = {to, from, to_pitch, from_pitch, bytes, rows};

    (void)e;
    defer(lazy_of(d), s, run_copy, &c, sizeof c);
    return ERR_NONE;
}

static err_t lazy_copy(struct device *d, void *to, const void *from, size_t bytes, struct stream *s, struct error *e)
{
    return lazy_copy_2d(d, to, 0, from, 0, bytes, 1, s, e);
}

static err_t lazy_fill_zero(struct device *d, void *p, size_t bytes, struct stream *s, struct error *e)
{
    return lazy_copy_2d(d, p, 0, NULL, 0, bytes, 1, s, e);
}

/* Bytes of 0xff: NaNs of every type. */
static err_t lazy_segment_alloc(struct device *d, size_t bytes, void **out, struct error *e)
{
    err_t rc = lazy_of(d)->cpu->ops->segment_alloc(lazy_of(d)->cpu, bytes, out, e);

    if (!rc) memset(*out, 0xff, bytes);
    return rc;
}

static void lazy_segment_free(struct device *d, void *p, size_t bytes)
{
    lazy_of(d)->cpu->ops->segment_free(lazy_of(d)->cpu, p, bytes);
}

static err_t lazy_host_alloc(struct device *d, size_t bytes, void **out, struct error *e)
{
    err_t rc = lazy_of(d)->cpu->ops->host_alloc(lazy_of(d)->cpu, bytes, out, e);

    if (!rc) memset(*out, 0xff, bytes);
    return rc;
}

static void lazy_host_free(struct device *d, void *p) { lazy_of(d)->cpu->ops->host_free(lazy_of(d)->cpu, p); }

static err_t lazy_synchronize(struct device *d, struct error *e)
{
    struct lazy *l = lazy_of(d);
    err_t rc = ERR_NONE;

    for (int i = 0; i < l->n_streams && !rc; i++) rc = wait_for(l, l->streams[i], l->streams[i]->n_given, e);
    return rc;
}

static err_t lazy_stream_create(struct device *d, struct stream **out, struct error *e)
{
    struct lazy *l = lazy_of(d);

    *out = mem_zalloc(1, sizeof **out);
    if (!*out) return FAIL(e, ERR_MEMORY, "out of memory for a stream");
    BUG_ON(l->n_streams == MOST_STREAMS);
    l->streams[l->n_streams++] = *out;
    return ERR_NONE;
}

static void lazy_stream_destroy(struct device *d, struct stream *s)
{
    struct lazy *l = lazy_of(d);
    int i = 0;

    do_until(l, s, s->n_given);
    while (l->streams[i] != s) i++;
    l->streams[i] = l->streams[--l->n_streams];
    mem_free(s);
}

static err_t lazy_stream_wait(struct device *d, struct stream *s, struct event *event, struct error *e)
{
    (void)e;
    if (event->stream)
        give(lazy_of(d), s, (struct operation){.other = event->stream, .position = event->position}, NULL, 0);
    return ERR_NONE;
}

static err_t lazy_stream_synchronize(struct device *d, struct stream *s, struct error *e)
{
    s = stream_of(lazy_of(d), s);
    return wait_for(lazy_of(d), s, s->n_given, e);
}

static err_t lazy_event_create(struct device *d, struct event **out, struct error *e)
{
    (void)d;
    *out = mem_zalloc(1, sizeof **out);
    return *out ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory for an event");
}

static void lazy_event_destroy(struct device *d, struct event *event)
{
    (void)d;
    mem_free(event);
}

static err_t lazy_event_record(struct device *d, struct event *event, struct stream *s, struct error *e)
{
    (void)e;
    s = stream_of(lazy_of(d), s);
    *event = (struct event){.stream = s, .position = s->n_given};
    return ERR_NONE;
}

static err_t lazy_event_synchronize(struct device *d, struct event *event, struct error *e)
{
    return event->stream ? wait_for(lazy_of(d), event->stream, event->position, e) : ERR_NONE;
}

static bool lazy_event_is_done(struct device *d, struct event *event)
{
    (void)d;
    return !event->stream || event->stream->n_done >= event->position;
}

static void lazy_close(struct device *d)
{
    device_close(lazy_of(d)->cpu);
    mem_free(d);
}

static const struct device_ops device_ops_lazy = {
    .name = "cpu", /* whose kernels it takes */
    .close = lazy_close,
    .segment_alloc = lazy_segment_alloc,
    .segment_free = lazy_segment_free,
    .host_alloc = lazy_host_alloc,
    .host_free = lazy_host_free,
    .copy = lazy_copy,
    .copy_2d = lazy_copy_2d,
    .fill_zero = lazy_fill_zero,
    .synchronize = lazy_synchronize,
    .stream_create = lazy_stream_create,
    .stream_destroy = lazy_stream_destroy,
    .stream_wait = lazy_stream_wait,
    .stream_synchronize = lazy_stream_synchronize,
    .event_create = lazy_event_create,
    .event_destroy = lazy_event_destroy,
    .event_record = lazy_event_record,
    .event_synchronize = lazy_event_synchronize,
    .event_is_done = lazy_event_is_done,
};

err_t lazy_device_open(struct device **out, enum lazy_order order, uint64_t seed, struct error *e)
{
    struct device_options options = {.kind = "cpu", .local_size = 1, .threads = 1};
    struct lazy *l = mem_zalloc(1, sizeof *l);
    err_t rc = l ? device_open(&l->cpu, &options, e) : FAIL(e, ERR_MEMORY, "out of memory");

    *out = NULL;
    if (rc) goto failed;
    l->device.ops = &device_ops_lazy;
    l->device.properties = l->cpu->properties;
    l->device.properties.is_immediate = false;
    l->order = order;
    l->key = rng_key_of(seed, "lazy");
    l->streams[l->n_streams++] = &l->main;
    rc = pool_create(&l->device.pool, 1, e);
    if (!rc) rc = allocator_create(&l->device.allocator, &l->device, 0, e);
    if (rc) goto failed;
    *out = &l->device;
    return ERR_NONE;
failed:
    if (l) device_close(l->cpu);
    mem_free(l);
    return rc;
}

/* ---- kernels ---- */
struct kernel_call {
    struct kernel_context *context;
    lazy_kernel run;
    max_align_t arguments[];
};

static void run_kernel(struct lazy *l, void *arguments)
{
    struct kernel_call *call = arguments;

    call->run(call->context, l->real, call->arguments);
}

void lazy_defer_kernel(struct kernel_context *c, lazy_kernel run, const void *arguments, size_t bytes)
{
    struct kernel_call *call = mem_zalloc(1, sizeof *call + bytes);

    BUG_ON(!call);
    call->context = c;
    call->run = run;
    memcpy(call->arguments, arguments, bytes);
    defer(lazy_of(c->device), c->stream, run_kernel, call, sizeof *call + bytes);
    mem_free(call);
}

const struct kernels *lazy_kernels(struct device *lazy, const struct kernels *real)
{
    struct lazy *l = lazy_of(lazy);

    l->real = real;
    l->kernels = lazy_kernel_table;
    l->kernels.device = real->device;
    l->kernels.level = real->level;
    l->kernels.type = real->type;
    l->kernels.workspace_bytes = kernels_workspace_bytes(real, 1);
    return &l->kernels;
}

/* ---- collectives ---- */
struct lazy_comm {
    struct comm base; /* first */
    struct comm *inner;
    struct device *device;
};

struct collective {
    struct comm *inner;
    const char *name;
    const void *send;
    void *recv;
    size_t count;
    enum dtype type;
    enum comm_operator op;
    int root;
};

static void keep(struct lazy *l, err_t rc, const struct error *e)
{
    if (!rc || l->failed) return;
    l->failed = rc;
    l->error = *e;
}

static err_t defer_collective(struct comm *c, struct stream *s, void (*run)(struct lazy *l, void *arguments),
                              struct collective call)
{
    struct lazy_comm *lc = (struct lazy_comm *)c;

    call.inner = lc->inner;
    defer(lazy_of(lc->device), s, run, &call, sizeof call);
    return ERR_NONE;
}

#define COLLECTIVE(kind, parameters, call_members, inner_call)                                                         \
    static void run_##kind(struct lazy *l, void *arguments)                                                            \
    {                                                                                                                  \
        const struct collective *x = arguments;                                                                        \
        struct error e = {0};                                                                                          \
                                                                                                                       \
        keep(l, inner_call, &e);                                                                                       \
    }                                                                                                                  \
    static err_t lazy_##kind parameters                                                                                \
    {                                                                                                                  \
        (void)e;                                                                                                       \
        return defer_collective(c, s, run_##kind, (struct collective)call_members);                                    \
    }
#define LIST(...)                                                                                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
COLLECTIVE(all_gather,
           (struct comm * c, const char *name, const void *send, void *recv, size_t count, enum dtype type,
            struct stream *s, struct error *e),
           LIST(.name = name, .send = send, .recv = recv, .count = count, .type = type),
           comm_all_gather(x->inner, x->name, x->send, x->recv, x->count, x->type, NULL, &e))
COLLECTIVE(reduce_scatter,
           (struct comm * c, const char *name, const void *send, void *recv, size_t count, enum dtype type,
            enum comm_operator op, struct stream *s, struct error *e),
           LIST(.name = name, .send = send, .recv = recv, .count = count, .type = type, .op = op),
           comm_reduce_scatter(x->inner, x->name, x->send, x->recv, x->count, x->type, x->op, NULL, &e))
COLLECTIVE(all_reduce,
           (struct comm * c, const char *name, void *data, size_t count, enum dtype type, enum comm_operator op,
            struct stream *s, struct error *e),
           LIST(.name = name, .recv = data, .count = count, .type = type, .op = op),
           comm_all_reduce(x->inner, x->name, x->recv, x->count, x->type, x->op, NULL, &e))
COLLECTIVE(broadcast,
           (struct comm * c, const char *name, void *data, size_t bytes, int root, struct stream *s, struct error *e),
           LIST(.name = name, .recv = data, .count = bytes, .root = root),
           comm_broadcast(x->inner, x->name, x->recv, x->count, x->root, NULL, &e))

static void lazy_destroy(struct comm *c) { mem_free(c); }

static err_t lazy_barrier(struct comm *c, const char *name, struct error *e)
{
    return comm_barrier(((struct lazy_comm *)c)->inner, name, e);
}

static void lazy_abort(struct comm *c, const char *reason) { comm_abort(((struct lazy_comm *)c)->inner, reason); }

static const struct comm_ops comm_ops_lazy = {.name = "lazy",
                                              .destroy = lazy_destroy,
                                              .barrier = lazy_barrier,
                                              .all_gather = lazy_all_gather,
                                              .reduce_scatter = lazy_reduce_scatter,
                                              .all_reduce = lazy_all_reduce,
                                              .broadcast = lazy_broadcast,
                                              .abort = lazy_abort};

err_t lazy_comm_create(struct comm **out, struct device *lazy, struct comm *inner, struct error *e)
{
    struct lazy_comm *c = mem_zalloc(1, sizeof *c);

    *out = NULL;
    if (!c) return FAIL(e, ERR_MEMORY, "out of memory for a communicator");
    c->base = *inner;
    c->base.ops = &comm_ops_lazy;
    c->inner = inner;
    c->device = lazy;
    *out = &c->base;
    return ERR_NONE;
}
