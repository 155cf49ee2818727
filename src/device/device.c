/* SPDX-License-Identifier: MIT */
/* Opening a device and the thin wrappers that every caller uses; see device.h. */
#include "device/device.h"

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
    allocator_destroy(d->allocator);
    pool_destroy(d->pool);
    d->ops->close(d);
}

err_t device_alloc(struct device *d, size_t bytes, enum memory_kind kind, const char *label, void **out,
                   struct error *e)
{
    bool is_zero;

    return allocator_alloc(d->allocator, bytes, kind, label, out, &is_zero, e);
}

err_t device_alloc_zeros(struct device *d, size_t bytes, enum memory_kind kind, const char *label, void **out,
                         struct error *e)
{
    bool is_zero;
    err_t rc = allocator_alloc(d->allocator, bytes, kind, label, out, &is_zero, e);

    if (!rc && !is_zero) rc = device_zero(d, *out, bytes, NULL, e);
    return rc;
}

void device_free(struct device *d, void *p) { allocator_free(d->allocator, p); }

err_t device_copy(struct device *d, void *to, const void *from, size_t bytes, struct stream *s, struct error *e)
{
    return bytes ? d->ops->copy(d, to, from, bytes, s, e) : ERR_NONE;
}

err_t device_zero(struct device *d, void *p, size_t bytes, struct stream *s, struct error *e)
{
    return bytes ? d->ops->fill_zero(d, p, bytes, s, e) : ERR_NONE;
}

void device_memory_stats(const struct device *d, struct memory_stats *out) { allocator_stats(d->allocator, out); }

void device_reset_peaks(struct device *d) { allocator_reset_peaks(d->allocator); }
