/* SPDX-License-Identifier: MIT */
/*
 * A device: memory, streams and events, behind one small table. The CPU is the embedded default; CUDA comes as a plugin
 * that fills the same table.
 *
 * Work on a device is ordered by streams: what is given to one stream is done in that order, and an event makes one
 * stream wait for what another was given. NULL is the main stream, in all calls: set-up, computation and the optimizer
 * run on it. Streams and events exist on the CPU too, where all work is done when a call returns (is_immediate), so
 * that code which overlaps copies, communication and computation is written once.
 *
 * Memory on a device goes through one caching allocator per device (allocator.h), which knows what each block is for;
 * the table only hands out and takes back whole segments. A block belongs to the stream it was allocated for: that
 * stream may use it at once, and when it is freed it goes back to that stream's pool, for the next work given to it.
 *
 * Errors of asynchronous work are sticky: they are kept in the device and returned by the next call that can fail.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"

struct device;
struct stream;
struct event;
struct allocator;
struct device_plugin;

/* What a block of memory is for: the rows of the memory table in plans, out-of-memory reports and snapshots. */
#define MEMORY_KINDS(X)                                                                                                \
    X(MEMORY_PARAMETERS, "parameters")                                                                                 \
    X(MEMORY_GRADIENTS, "gradients")                                                                                   \
    X(MEMORY_OPTIMIZER, "optimizer")                                                                                   \
    X(MEMORY_GATHERED, "gathered")                                                                                     \
    X(MEMORY_STASH, "stash")                                                                                           \
    X(MEMORY_SCRATCH, "scratch")                                                                                       \
    X(MEMORY_BUFFERS, "buffers")

enum memory_kind {
#define X(id, name) id,
    MEMORY_KINDS(X)
#undef X
        MEMORY_KIND_COUNT
};
const char *memory_kind_name(enum memory_kind kind);

struct memory_stats {
    int64_t active_bytes, active_peak_bytes;     /* in blocks handed out */
    int64_t reserved_bytes, reserved_peak_bytes; /* in segments taken from the device */
    int64_t kind_bytes[MEMORY_KIND_COUNT];
    /* the highest values since the device was opened; the peaks above start again with device_reset_peaks */
    int64_t active_highest_bytes, reserved_highest_bytes, kind_highest_bytes[MEMORY_KIND_COUNT];
    int64_t alloc_retries; /* allocations that succeeded only after cached segments were given back */
    int64_t ooms;          /* allocations that failed */
};

struct device_properties {
    char name[128];       /* "AMD EPYC 7713 64-Core Processor", "NVIDIA H200" */
    int64_t memory_bytes; /* what this rank may use: a GPU's memory; on the CPU the cgroup's limit (else MemTotal) /
                             local ranks */
    double peak_flops;    /* dense, of the compute type; 0 = unknown */
    int threads;          /* of the pool: the CPU's kernels, and host work for every device */
    int multiprocessors;  /* of a GPU */
    char versions[64];    /* "compute capability 9.0, driver 13.0, CUDA 13.0"; "" on the CPU */
    bool is_immediate;    /* the CPU: all work is done when a call returns, and there is one pool of memory */
};

/* What slows a device down. */
enum device_slowdown { SLOWED_BY_POWER = 1, SLOWED_BY_HEAT = 2, SLOWED_BY_HARDWARE = 4 };

/* What the sensors of a device say; NAN = unknown. */
struct device_sensors {
    double utilization_percent; /* of the last sampling period, up to a second: time in which something ran */
    double power_w;             /* now */
    double energy_j;            /* used since some time in the past: differences count */
    double temperature_c;
    double clock_mhz, memory_clock_mhz;
    double memory_used_bytes; /* by all processes */
    unsigned slowdown;        /* reasons, 0 = none known */
};

/* One backend. Members without "optional" are always set. */
struct device_ops {
    const char *name; /* "cpu", "cuda" */
    bool gives_zeros; /* new segments hold zeros */
    bool is_dry;      /* memory is only counted: what would be copied into it need not be computed */
    void (*close)(struct device *d);
    err_t (*segment_alloc)(struct device *d, size_t bytes, void **out,
                           struct error *e);                       /* aligned to 64 bytes or better */
    void (*segment_free)(struct device *d, void *p, size_t bytes); /* work that uses it is done: device_synchronize */
    /* Host memory that copies of a stream may use: pinned on a GPU, plain memory on the CPU. */
    err_t (*host_alloc)(struct device *d, size_t bytes, void **out, struct error *e);
    void (*host_free)(struct device *d, void *p);
    /* Any direction; on the host only memory from host_alloc (for other memory: device_read and device_write). */
    err_t (*copy)(struct device *d, void *to, const void *from, size_t bytes, struct stream *s, struct error *e);
    /* `rows` rows of `bytes` bytes each, at addresses that are to_pitch and from_pitch bytes apart. */
    err_t (*copy_2d)(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes,
                     size_t rows, struct stream *s, struct error *e);
    err_t (*fill_zero)(struct device *d, void *p, size_t bytes, struct stream *s, struct error *e);
    err_t (*synchronize)(struct device *d, struct error *e); /* the host waits for the work of all streams */
    err_t (*stream_create)(struct device *d, struct stream **out, struct error *e);
    void (*stream_destroy)(struct device *d, struct stream *s);
    err_t (*stream_wait)(struct device *d, struct stream *s, struct event *event,
                         struct error *e); /* s goes on after what the event was recorded for by now */
    err_t (*stream_synchronize)(struct device *d, struct stream *s, struct error *e); /* the host waits */
    err_t (*event_create)(struct device *d, struct event **out, struct error *e);
    void (*event_destroy)(struct device *d, struct event *event);
    err_t (*event_record)(struct device *d, struct event *event, struct stream *s, struct error *e);
    err_t (*event_synchronize)(struct device *d, struct event *event, struct error *e); /* the host waits */
    bool (*event_is_done)(struct device *d, struct event *event); /* what failed is done too: the next call tells */
    /* optional: fills what it knows; the rest holds NAN before. May take a millisecond, waits for no work. */
    void (*sensors)(struct device *d, struct device_sensors *out);
};

struct device {
    const struct device_ops *ops;
    struct device_properties properties;
    struct allocator *allocator;        /* owned */
    struct pool *pool;                  /* owned; the CPU's threads for kernels and for host work on every device */
    const struct device_plugin *plugin; /* whose device it is (plugin.h); NULL: the CPU */
    char note[256];                     /* why kind "auto" took the CPU; "" = nothing to tell */
    struct event *freed;                /* owned, for device_free_after; NULL before the first */
    void *staging;                      /* owned, for device_read and device_write; NULL before the first */
};

struct device_options {
    const char *kind;           /* "auto", "cpu", "cuda" */
    int local_rank;             /* of this host: which GPU, of those that the process sees */
    int local_size;             /* ranks on this host, which share its memory and cores */
    int threads;                /* 0 = cores of this process's affinity mask / local ranks that share it, at least 1 */
    int64_t memory_limit_bytes; /* 0 = none; the allocator then fails above it (tests of out of memory) */
};

/* "auto" takes a GPU where there is one for this rank, else the CPU, and says in `note` why if there is something to
 * tell: that the plugin was not built is nothing. "cuda" fails for that reason. One thread uses the device: the one
 * that opened it. */
err_t device_open(struct device **out, const struct device_options *options, struct error *e) MUST_CHECK;
/* Waits for all work. Every block must have been freed: else BUG names the first one left. */
void device_close(struct device *d);

/* Blocks. `label` names the owner in reports ("layers.3 stash"); it is borrowed and must outlive the block. s: the
 * stream it belongs to. Contents are undefined. ERR_MEMORY's message is the table of who holds what. bytes = 0 gives
 * NULL. */
err_t device_alloc(struct device *d, size_t bytes, enum memory_kind kind, const char *label, struct stream *s,
                   void **out, struct error *e) MUST_CHECK;
/* The same, full of zeros. Memory that the device has just given, and gives as zeros, is not touched: pages come when
 * they are used. */
err_t device_alloc_zeros(struct device *d, size_t bytes, enum memory_kind kind, const char *label, struct stream *s,
                         void **out, struct error *e) MUST_CHECK;
/* Its own stream was the last to use it, or waits for the one that was. NULL is fine. */
void device_free(struct device *d, void *p);
/* `last` was the last to use it: the stream it belongs to goes on after what `last` was given by now. */
void device_free_after(struct device *d, void *p, struct stream *last);

/* As the table's; nothing happens for no bytes. */
err_t device_copy(struct device *d, void *to, const void *from, size_t bytes, struct stream *s,
                  struct error *e) MUST_CHECK;
err_t device_copy_2d(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes,
                     size_t rows, struct stream *s, struct error *e) MUST_CHECK;
err_t device_zero(struct device *d, void *p, size_t bytes, struct stream *s, struct error *e) MUST_CHECK;

/* Between the device and any memory of the host, on the main stream; done when they return. For set-up and checkpoints:
 * a step neither waits nor copies through here. */
err_t device_write(struct device *d, void *to, const void *host, size_t bytes, struct error *e) MUST_CHECK;
err_t device_read(struct device *d, void *host, const void *from, size_t bytes, struct error *e) MUST_CHECK;

/* Stream `s` goes on after what `other` was given by now; `event` is recorded for it. */
err_t device_order(struct device *d, struct stream *s, struct stream *other, struct event *event,
                   struct error *e) MUST_CHECK;

void device_memory_stats(const struct device *d, struct memory_stats *out);
void device_reset_peaks(struct device *d); /* peaks start again at the present values */

/* false: the device has no sensors (the CPU), and all is unknown. */
bool device_read_sensors(struct device *d, struct device_sensors *out);

/* Process facts from the operating system; the sensors of the CPU. Negative = unknown. */
int64_t sensor_resident_bytes(void);      /* VmRSS of this process */
int64_t sensor_resident_peak_bytes(void); /* VmHWM */
int64_t sensor_memory_limit_bytes(void);  /* the cgroup's limit, else MemTotal */

#endif
