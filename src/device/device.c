/* SPDX-License-Identifier: MIT */
/* Opening a device and the thin wrappers that every caller uses; see device.h. */
#include "device/device.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/affinity.h"
#include "device/allocator.h"
#include "device/cpu.h"
#include "device/plugin.h"

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

/* A device of the plugin's. ERR_MISSING: there is no plugin. */
static err_t open_cuda(struct device **out, const struct device_options *options, struct error *e)
{
    const struct device_plugin *plugin;
    err_t rc = device_plugin_load(&plugin, DEVICE_CUDA_PLUGIN_FILE, e);

    if (!rc) rc = plugin->open(out, options, e);
    if (!rc) (*out)->plugin = plugin;
    return rc;
}

static err_t open_kind(struct device **out, const struct device_options *options, struct error *e)
{
    struct error reason = {0};
    err_t rc;

    if (strcmp(options->kind, "cpu") == 0) return cpu_device_create(out, options, e);
    if (strcmp(options->kind, "cuda") != 0 && strcmp(options->kind, "auto") != 0)
        return FAIL(e, ERR_UNSUPPORTED, "device.kind=%s: there is no such device; use auto, cpu or cuda",
                    options->kind);
    rc = open_cuda(out, options, &reason);
    if (!rc) return rc;
    if (strcmp(options->kind, "cuda") == 0)
        return FAIL(e, rc == ERR_MISSING ? ERR_UNSUPPORTED : rc,
                    "device.kind=cuda: %s%s; use device.kind=cpu, or auto to take the CPU where there is no GPU",
                    reason.message, rc == ERR_MISSING ? " (make builds it where it finds CUDA)" : "");
    rc = cpu_device_create(out, options, e);
    if (!rc && reason.code != ERR_MISSING) snprintf((*out)->note, sizeof(*out)->note, "%.255s", reason.message);
    return rc;
}

err_t device_open(struct device **out, const struct device_options *options, struct error *e)
{
    struct device *d = NULL;
    int threads = options->threads, local_size = options->local_size > 0 ? options->local_size : 1;
    err_t rc = open_kind(&d, options, e);

    *out = NULL;
    if (rc) return rc;
    if (threads <= 0) threads = affinity_own_cores() / local_size;
    rc = pool_create(&d->pool, threads, e);
    if (!rc) d->properties.threads = pool_threads(d->pool);
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

bool device_read_sensors(struct device *d, struct device_sensors *out)
{
    *out = (struct device_sensors){NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0};
    if (!d->ops->sensors) return false;
    d->ops->sensors(d, out);
    return true;
}
