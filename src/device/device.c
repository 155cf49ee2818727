/* SPDX-License-Identifier: MIT */
/* Opening a device and the thin wrappers that every caller uses; see device.h. */
#include "device/device.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "device/allocator.h"
#include "device/cpu.h"

const char *memory_kind_name(enum memory_kind kind)
{
    static const char *const names[] = {
#define X(id, name) [id] = name,
        MEMORY_KINDS(X)
#undef X
    };
    return names[kind];
}

enum { STAGING_BYTES = 16 << 20 };

err_t device_open(struct device **out, const struct device_options *options, struct error *e)
{
    struct device *d = NULL;
    err_t rc;

    *out = NULL;
    if (strcmp(options->kind, "auto") != 0 && strcmp(options->kind, "cpu") != 0)
        return FAIL(e, ERR_UNSUPPORTED,
                    "device.kind=%s: this build has only the CPU device; use device.kind=cpu or auto", options->kind);
    rc = cpu_device_create(&d, options, e);
    if (!rc) rc = allocator_create(&d->allocator, d, options->memory_limit_bytes, e);
    if (rc) {
        device_close(d);
        return rc;
    }
    *out = d;
    return ERR_NONE;
}

void device_close(struct device *d)
{
    if (!d) return;
    d->ops->synchronize(d, NULL); /* what failed by now was told, or concerns nobody any more */
    allocator_destroy(d->allocator);
    if (d->freed) d->ops->event_destroy(d, d->freed);
    if (d->staging) d->ops->host_free(d, d->staging);
    pool_destroy(d->pool);
    d->ops->close(d);
}

err_t device_alloc(struct device *d, size_t bytes, enum memory_kind kind, const char *label, struct stream *s,
                   void **out, struct error *e)
{
    bool is_zero;

    return allocator_alloc(d->allocator, bytes, kind, label, s, out, &is_zero, e);
}

err_t device_alloc_zeros(struct device *d, size_t bytes, enum memory_kind kind, const char *label, struct stream *s,
                         void **out, struct error *e)
{
    bool is_zero;
    err_t rc = allocator_alloc(d->allocator, bytes, kind, label, s, out, &is_zero, e);

    if (!rc && !is_zero) rc = device_zero(d, *out, bytes, s, e);
    return rc;
}

void device_free(struct device *d, void *p) { allocator_free(d->allocator, p); }

void device_free_after(struct device *d, void *p, struct stream *last)
{
    struct stream *owner;
    err_t rc = ERR_NONE;

    if (!p) return;
    owner = allocator_owner(d->allocator, p);
    if (!d->properties.is_immediate && owner != last) {
        if (!d->freed) rc = d->ops->event_create(d, &d->freed, NULL);
        if (!rc) rc = device_order(d, owner, last, d->freed, NULL);
        if (rc) rc = d->ops->synchronize(d, NULL); /* without events; a broken device tells with the next call */
    }
    allocator_free(d->allocator, p);
}

err_t device_copy(struct device *d, void *to, const void *from, size_t bytes, struct stream *s, struct error *e)
{
    return bytes ? d->ops->copy(d, to, from, bytes, s, e) : ERR_NONE;
}

err_t device_copy_2d(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes,
                     size_t rows, struct stream *s, struct error *e)
{
    return bytes && rows ? d->ops->copy_2d(d, to, to_pitch, from, from_pitch, bytes, rows, s, e) : ERR_NONE;
}

err_t device_zero(struct device *d, void *p, size_t bytes, struct stream *s, struct error *e)
{
    return bytes ? d->ops->fill_zero(d, p, bytes, s, e) : ERR_NONE;
}

/* Between device memory and plain memory of the host, through pinned memory. */
static err_t stage(struct device *d, char *on_device, char *on_host, size_t bytes, bool to_device, struct error *e)
{
    err_t rc = d->staging ? ERR_NONE : d->ops->host_alloc(d, STAGING_BYTES, &d->staging, e);

    for (size_t at = 0; at < bytes && !rc; at += STAGING_BYTES) {
        size_t n = bytes - at < STAGING_BYTES ? bytes - at : STAGING_BYTES;

        if (to_device) memcpy(d->staging, on_host + at, n);
        rc = device_copy(d, to_device ? on_device + at : d->staging, to_device ? d->staging : on_device + at, n, NULL,
                         e);
        if (!rc) rc = d->ops->stream_synchronize(d, NULL, e);
        if (!rc && !to_device) memcpy(on_host + at, d->staging, n);
    }
    return rc;
}

err_t device_write(struct device *d, void *to, const void *host, size_t bytes, struct error *e)
{
    if (d->properties.is_immediate || d->ops->is_dry) return device_copy(d, to, host, bytes, NULL, e);
    return stage(d, to, (void *)(uintptr_t)host, bytes, true, e);
}

err_t device_read(struct device *d, void *host, const void *from, size_t bytes, struct error *e)
{
    if (d->properties.is_immediate || d->ops->is_dry) return device_copy(d, host, from, bytes, NULL, e);
    return stage(d, (void *)(uintptr_t)from, host, bytes, false, e);
}

err_t device_order(struct device *d, struct stream *s, struct stream *other, struct event *event, struct error *e)
{
    err_t rc = d->ops->event_record(d, event, other, e);

    return rc ? rc : d->ops->stream_wait(d, s, event, e);
}

void device_memory_stats(const struct device *d, struct memory_stats *out) { allocator_stats(d->allocator, out); }

void device_reset_peaks(struct device *d) { allocator_reset_peaks(d->allocator); }
