/* SPDX-License-Identifier: MIT */
/*
 * Streams, events and the operations in them. An operation runs when something waits for it, and only what it needs
 * runs before it: whoever forgot an event meets memory that was not written yet. With a seed other streams'
 * operations run in between, sooner than asked, in an order that the seed chooses: whatever a device may do, some
 * seed does.
 *
 * All functions want the mutex held. stream_run_to may let it go while an operation waits for another process
 * (blocks = true): its stream is busy then, and whoever needs that stream waits.
 */
#ifndef CUDASIM_STREAM_H
#define CUDASIM_STREAM_H

#include "order.h"

enum { SIM_USES = 24 };
struct sim_stream;
struct sim_event;
struct sim_mark; /* a place in a stream: one cudaEventRecord */

/* The first member of what an operation knows. It owns nothing beside itself: a graph copies its bytes. */
struct sim_op {
    const char *name;                                          /* lives as long as the program */
    size_t bytes;                                              /* of the whole */
    void (*run)(struct sim_op *op, struct sim_access *access); /* NULL: nothing to do */
    void (*issued)(struct sim_op *op);                         /* it is in its stream now; NULL: nothing to do */
    void (*demand)(struct sim_op *op); /* blocks: something wants it to run; it arranges for that without waiting */
    bool blocks;
    const void *uses[SIM_USES]; /* addresses it will touch, device or pinned, as far as they are known */
    int n_uses;
    /* set by stream_push */
    struct sim_op *next;
    struct sim_stream *stream;
    struct sim_mark *records, *waits_for;
    struct order_clock seen;
    uint64_t position;
};

struct sim_stream *stream_create(bool is_blocking, int device); /* blocking: ordered with the legacy default stream */
struct sim_stream *stream_default(void);
bool stream_is(const void *p); /* a live stream */
int stream_number(const struct sim_stream *s);
int stream_device(const struct sim_stream *s); /* that was current when it was created */
void stream_destroy(struct sim_stream *s);
/* Takes op (from sim_alloc). */
void stream_push(struct sim_stream *s, struct sim_op *op);
uint64_t stream_end(const struct sim_stream *s);              /* position of the last operation */
void stream_run_to(struct sim_stream *s, uint64_t position);  /* the host knows nothing of it */
bool stream_step_to(struct sim_stream *s, uint64_t position); /* some operations, never waits; true: was there */
void stream_wait(struct sim_stream *s);                       /* runs all, and the host knows */
void stream_wait_all(void);
/* A pending operation, or one that ran without the host knowing, that uses one of the bytes: its name, else NULL. */
const char *stream_user(uint64_t address, uint64_t bytes);
/* Does an operation that is still to run use one of the bytes? */
bool stream_is_pending(uint64_t address, uint64_t bytes);
uint64_t stream_ran_ns(void); /* time in operations, by this thread */
void stream_leaks(void);

struct sim_event *event_create(bool has_time);
bool event_is(const void *p);
void event_destroy(struct sim_event *e);
void event_record(struct sim_event *e, struct sim_stream *s);
bool event_was_recorded(const struct sim_event *e);
bool event_has_time(const struct sim_event *e);
void stream_wait_event(struct sim_stream *s, struct sim_event *e);
bool event_step(struct sim_event *e); /* true: done, and the host knows */
void event_wait(struct sim_event *e);
bool event_ns(const struct sim_event *e, uint64_t *ns); /* when it was reached; false: was not */

#endif
