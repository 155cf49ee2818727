/* SPDX-License-Identifier: MIT */
/* The device that only counts; see dry.h. Addresses are handed out from a counter and never used. */
#include "device/dry.h"

#include <string.h>

#include "base/mem.h"
#include "device/allocator.h"
#include "device/immediate.h"

/* above what any system gives to a process */
static const uintptr_t first_address = (uintptr_t)1 << 62, end_address = (uintptr_t)1 << 63;

struct dry_device {
    struct device device; /* first */
    uintptr_t next;
};

static void dry_close(struct device *d) { mem_free(d); }

static err_t dry_segment_alloc(struct device *d, size_t bytes, void **out, struct error *e)
{
    struct dry_device *dry = (struct dry_device *)d;

    *out = NULL;
    if (bytes > end_address - dry->next)
        return FAIL(e, ERR_MEMORY, "%zu bytes are more than there are addresses", bytes);
    *out = (void *)dry->next;
    dry->next += bytes;
    return ERR_NONE;
}

static void dry_segment_free(struct device *d, void *p, size_t bytes) { (void)d, (void)p, (void)bytes; }

static err_t dry_copy(struct device *d, void *to, const void *from, size_t bytes, struct stream *s, struct error *e)
{
    (void)d, (void)from, (void)s, (void)e;
    if ((uintptr_t)to < first_address) memset(to, 0, bytes);
    return ERR_NONE;
}

static err_t dry_copy_2d(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes,
                         size_t rows, struct stream *s, struct error *e)
{
    (void)d, (void)to, (void)to_pitch, (void)from, (void)from_pitch, (void)bytes, (void)rows, (void)s, (void)e;
    return ERR_NONE;
}

static err_t dry_fill_zero(struct device *d, void *p, size_t bytes, struct stream *s, struct error *e)
{
    (void)d, (void)p, (void)bytes, (void)s, (void)e;
    return ERR_NONE;
}

static const struct device_ops device_ops_dry = {
    .name = "dry",
    .is_dry = true,
    .close = dry_close,
    .segment_alloc = dry_segment_alloc,
    .segment_free = dry_segment_free,
    .host_alloc = immediate_host_alloc,
    .host_free = immediate_host_free,
    .copy = dry_copy,
    .copy_2d = dry_copy_2d,
    .fill_zero = dry_fill_zero,
    .synchronize = immediate_synchronize,
    .stream_create = immediate_stream_create,
    .stream_destroy = immediate_stream_destroy,
    .stream_wait = immediate_stream_wait,
    .stream_synchronize = immediate_stream_synchronize,
    .event_create = immediate_event_create,
    .event_destroy = immediate_event_destroy,
    .event_record = immediate_event_record,
    .event_synchronize = immediate_event_synchronize,
    .event_is_done = immediate_event_is_done,
};

err_t device_dry_open(struct device **out, const struct device_properties *like, int64_t limit_bytes, struct error *e)
{
    struct dry_device *dry = mem_zalloc(1, sizeof *dry);
    err_t rc;

    *out = NULL;
    if (!dry) return FAIL(e, ERR_MEMORY, "out of memory while planning");
    dry->device = (struct device){.ops = &device_ops_dry, .properties = *like};
    dry->next = first_address;
    rc = allocator_create(&dry->device.allocator, &dry->device, limit_bytes, e);
    if (rc) {
        mem_free(dry);
        return rc;
    }
    *out = &dry->device;
    return ERR_NONE;
}
