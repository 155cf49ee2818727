/* SPDX-License-Identifier: MIT */
/* Streams and events where all work is done when a call returns; see immediate.h. They are objects, so that one never
 * destroyed is found. */
#include "device/immediate.h"

#include "base/mem.h"

struct stream {
    int unused;
};
struct event {
    int unused;
};

err_t immediate_stream_create(struct device *d, struct stream **out, struct error *e)
{
    (void)d;
    *out = mem_zalloc(1, sizeof **out);
    return *out ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory for a stream");
}

void immediate_stream_destroy(struct device *d, struct stream *s)
{
    (void)d;
    mem_free(s);
}

err_t immediate_stream_wait(struct device *d, struct stream *s, struct event *event, struct error *e)
{
    (void)d, (void)s, (void)event, (void)e; /* what the event stands for is done already */
    return ERR_NONE;
}

err_t immediate_stream_synchronize(struct device *d, struct stream *s, struct error *e)
{
    (void)d, (void)s, (void)e;
    return ERR_NONE;
}

err_t immediate_event_create(struct device *d, struct event **out, struct error *e)
{
    (void)d;
    *out = mem_zalloc(1, sizeof **out);
    return *out ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory for an event");
}

void immediate_event_destroy(struct device *d, struct event *event)
{
    (void)d;
    mem_free(event);
}

err_t immediate_event_record(struct device *d, struct event *event, struct stream *s, struct error *e)
{
    (void)d, (void)event, (void)s, (void)e;
    return ERR_NONE;
}

err_t immediate_event_synchronize(struct device *d, struct event *event, struct error *e)
{
    (void)d, (void)event, (void)e;
    return ERR_NONE;
}

bool immediate_event_is_done(struct device *d, struct event *event)
{
    (void)d, (void)event;
    return true;
}

err_t immediate_synchronize(struct device *d, struct error *e)
{
    (void)d, (void)e;
    return ERR_NONE;
}

err_t immediate_host_alloc(struct device *d, size_t bytes, void **out, struct error *e)
{
    (void)d;
    *out = mem_aligned(64, (bytes + 63) & ~(size_t)63);
    return *out ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory for %zu bytes beside the device", bytes);
}

void immediate_host_free(struct device *d, void *p)
{
    (void)d;
    mem_free(p);
}
