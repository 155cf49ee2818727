/* SPDX-License-Identifier: MIT */
/* libcudart: memory of the device, pinned memory of the host, copies and fills. */
#include "host.h"
#include "runtime.h"
#include "stream.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

static uint64_t address_of(const void *p) { return (uint64_t)(uintptr_t)p; }

static bool on_device(const void *p) { return sim_is_device(address_of(p)); }

/* ---- allocations ---- */

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    SIM_CALL;
    *p = NULL;
    runtime_may_wait(__func__);
    sim_counters.allocations++;
    uint64_t address = sim_must_fail("malloc") ? 0 : bytes ? sim_device_allocate(bytes) : 0;
    if (!address && bytes) return runtime_done(cudaErrorMemoryAllocation);
    *p = (void *)(uintptr_t)address;
    sim_counters.allocated_bytes = sim_device_used();
    if (sim_counters.allocated_bytes > sim_counters.allocated_peak_bytes)
        sim_counters.allocated_peak_bytes = sim_counters.allocated_bytes;
    return runtime_done(cudaSuccess);
}

cudaError_t cudaFree(void *p)
{
    SIM_CALL;
    if (!p) return runtime_done(cudaSuccess);
    runtime_waits(__func__);
    uint64_t bytes = 0, base = sim_allocation(address_of(p), &bytes);
    const char *user = base == address_of(p) && !runtime_device_has_failed() ? stream_user(base, bytes) : NULL;
    if (user) {
        sim_report("cudaFree of %p (%s) while %s uses it and the host has not waited for that", p, sim_where(base).text,
                   user);
        stream_wait_all();
    }
    sim_device_release(address_of(p));
    sim_counters.allocated_bytes = sim_device_used();
    return runtime_done(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    SIM_CALL;
    *total = sim_options.memory_bytes;
    *available = *total - sim_device_used();
    return runtime_done(cudaSuccess);
}

static int allocate_host(const char *function, void **p, size_t bytes)
{
    runtime_may_wait(function);
    sim_counters.host_allocations++;
    *p = NULL;
    if (sim_must_fail("hostalloc") || (bytes && !(*p = host_allocate(bytes)))) return cudaErrorMemoryAllocation;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    SIM_CALL;
    return runtime_done(allocate_host(__func__, p, bytes));
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    SIM_CALL;
    unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    return runtime_done(flags & ~known ? (int)cudaErrorInvalidValue : allocate_host(__func__, p, bytes));
}

/* The device would wait here by itself; no program should lean on that. */
static void release_check(const char *function, void *p)
{
    const char *user = runtime_device_has_failed() ? NULL : stream_user(address_of(p), host_bytes(p));
    if (user) {
        sim_report("%s of %p while %s uses it and has not run", function, p, user);
        stream_wait_all();
    }
}

cudaError_t cudaFreeHost(void *p)
{
    SIM_CALL;
    if (!p) return runtime_done(cudaSuccess);
    runtime_waits(__func__);
    release_check(__func__, p);
    struct sim_words words;
    if (!host_release(p))
        sim_die("cudaFreeHost of %p, which is not the start of live pinned memory%s%s", p,
                host_where(address_of(p), &words) ? ": it is " : "",
                host_where(address_of(p), &words) ? words.text : "");
    return runtime_done(cudaSuccess);
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    SIM_CALL;
    (void)flags;
    if (!p || !bytes) return runtime_done(cudaErrorInvalidValue);
    if (sim_must_fail("hostalloc")) return runtime_done(cudaErrorMemoryAllocation);
    return runtime_done(host_register(p, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void *p)
{
    SIM_CALL;
    runtime_waits(__func__);
    release_check(__func__, p);
    return runtime_done(host_unregister(p) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p)
{
    SIM_CALL;
    memset(attributes, 0, sizeof *attributes);
    attributes->device = -2;
    if (sim_allocation(address_of(p), NULL)) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->device = 0;
        attributes->devicePointer = (void *)(uintptr_t)p;
    } else if (host_is_pinned(p, 1)) {
        attributes->type = cudaMemoryTypeHost;
        attributes->device = 0;
        attributes->hostPointer = attributes->devicePointer = (void *)(uintptr_t)p;
    } else
        attributes->type = cudaMemoryTypeUnregistered;
    return runtime_done(cudaSuccess);
}

/* ---- copies ---- */

/* Rows of width bytes each, pitch bytes apart; the host side is looked at when the copy is issued and when it runs. */
struct copy {
    struct sim_op op;
    uint8_t *to;
    const uint8_t *from;
    uint64_t to_pitch, from_pitch, width, rows;
    bool is_watched;              /* the pinned side must not change meanwhile, */
    uint64_t hash, device_writes; /* unless the device itself wrote there */
};

static const uint8_t *host_side(const struct copy *c)
{
    return !on_device(c->from) ? c->from : !on_device(c->to) ? c->to : NULL;
}

static uint64_t host_pitch(const struct copy *c) { return on_device(c->from) ? c->to_pitch : c->from_pitch; }

static uint64_t host_side_hash(const struct copy *c)
{
    uint64_t hash = 0;
    for (uint64_t row = 0; row < c->rows; row++) hash = host_hash(hash, host_side(c) + row * host_pitch(c), c->width);
    return hash;
}

/* The bytes from the first of the first row to the last of the last. */
static uint64_t extent(uint64_t pitch, uint64_t width, uint64_t rows) { return (rows - 1) * pitch + width; }

static void watch_host(struct copy *c)
{
    const uint8_t *p = host_side(c);
    uint64_t bytes = p ? extent(host_pitch(c), c->width, c->rows) : 0;
    if (!p || !sim_options.has_data || !host_is_pinned(p, bytes)) return;
    bool is_target = on_device(c->from);
    /* work that comes first in its stream may still need or write what is there */
    if (is_target && stream_is_pending(address_of(p), bytes)) return;
    for (uint64_t row = 0; is_target && row < c->rows; row++) memset(c->to + row * c->to_pitch, 0xff, c->width);
    c->is_watched = true;
    c->device_writes = host_device_writes(p);
    c->hash = host_side_hash(c);
}

static void run_copy(struct sim_op *op, struct sim_access *access)
{
    struct copy *c = (struct copy *)op;
    const uint8_t *p = host_side(c);
    if (c->is_watched && host_device_writes(p) == c->device_writes && host_side_hash(c) != c->hash)
        sim_report("%s: the host changed the pinned %s at %p between the call and the copy", op->name,
                   p == c->from ? "source" : "destination", (const void *)p);
    if (p == c->to) host_device_wrote(p);
    uint64_t rows = c->rows, width = c->width;
    if (c->from_pitch == width && c->to_pitch == width) {
        width *= rows;
        rows = 1;
    }
    for (uint64_t row = 0; row < rows; row++) {
        const uint8_t *from = c->from + row * c->from_pitch;
        uint8_t *to = c->to + row * c->to_pitch;
        from = on_device(from) ? sim_touch(access, from, width, true, false, op->name) : from;
        to = on_device(to) ? sim_touch(access, to, width, false, true, op->name) : to;
        if (sim_options.has_data) memmove(to, from, width);
    }
}

static bool fits_kind(const void *to, const void *from, enum cudaMemcpyKind kind)
{
    switch (kind) {
    case cudaMemcpyHostToDevice: return on_device(to) && !on_device(from);
    case cudaMemcpyDeviceToHost: return !on_device(to) && on_device(from);
    case cudaMemcpyDeviceToDevice: return on_device(to) && on_device(from);
    case cudaMemcpyHostToHost: return !on_device(to) && !on_device(from);
    case cudaMemcpyDefault: return true;
    }
    return false;
}

/* The device sides are checked now: an address that is wrong is best named where the call stands. */
static void check_sides(const char *function, const struct copy *c)
{
    for (int side = 0; side < 2; side++) {
        const uint8_t *p = side ? c->from : c->to;
        uint64_t bytes = extent(side ? c->from_pitch : c->to_pitch, c->width, c->rows);
        if (!on_device(p)) continue;
        char who[64];
        snprintf(who, sizeof who, "%s: the %s", function, side ? "source" : "destination");
        sim_check(p, bytes, who);
    }
}

/* shape: to, from, pitches, width and rows */
static int copy(const char *function, struct copy shape, enum cudaMemcpyKind kind, cudaStream_t stream, bool waits)
{
    if (waits) runtime_waits(function);
    struct sim_stream *s = runtime_stream(function, stream);
    if (sim_must_fail("memcpy")) return cudaErrorInvalidValue;
    if (!fits_kind(shape.to, shape.from, kind)) {
        sim_report("%s: %p to %p does not fit the kind %d", function, (const void *)shape.from, (void *)shape.to, kind);
        return cudaErrorInvalidMemcpyDirection;
    }
    if (shape.to_pitch < shape.width || shape.from_pitch < shape.width) return cudaErrorInvalidValue;
    if (!shape.width || !shape.rows) return cudaSuccess;
    check_sides(function, &shape);
    const uint8_t *p = host_side(&shape);
    if (!waits && p && !host_is_pinned(p, extent(host_pitch(&shape), shape.width, shape.rows)))
        sim_report("%s with pageable host memory at %p: the host would wait for it; allocate it by cudaHostAlloc",
                   function, (const void *)p);
    sim_counters.copies++;
    sim_counters.copy_bytes += shape.width * shape.rows;
    struct copy *c = sim_alloc(sizeof *c);
    *c = shape;
    c->op = (struct sim_op){
        .name = function,
        .bytes = sizeof *c,
        .run = run_copy,
        .uses = {c->to, c->to + extent(c->to_pitch, c->width, c->rows) - 1, c->from,
                 c->from + extent(c->from_pitch, c->width, c->rows) - 1},
        .n_uses = 4,
    };
    if (!waits) watch_host(c);
    runtime_push(s, &c->op);
    if (waits) stream_wait(s);
    return cudaSuccess;
}

static struct copy line(void *to, const void *from, size_t bytes)
{
    return (struct copy){.to = to, .from = from, .to_pitch = bytes, .from_pitch = bytes, .width = bytes, .rows = 1};
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    SIM_CALL;
    return runtime_done(copy(__func__, line(to, from, bytes), kind, NULL, true));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    SIM_CALL;
    return runtime_done(copy(__func__, line(to, from, bytes), kind, stream, false));
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                         enum cudaMemcpyKind kind)
{
    SIM_CALL;
    struct copy shape = {
        .to = to, .from = from, .to_pitch = to_pitch, .from_pitch = from_pitch, .width = width, .rows = rows};
    return runtime_done(copy(__func__, shape, kind, NULL, true));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    SIM_CALL;
    struct copy shape = {
        .to = to, .from = from, .to_pitch = to_pitch, .from_pitch = from_pitch, .width = width, .rows = rows};
    return runtime_done(copy(__func__, shape, kind, stream, false));
}

/* ---- fills ---- */

struct fill {
    struct sim_op op;
    uint8_t *to;
    uint64_t pitch, width, rows;
    int value;
};

static void run_fill(struct sim_op *op, struct sim_access *access)
{
    struct fill *f = (struct fill *)op;
    for (uint64_t row = 0; row < f->rows; row++) {
        void *to = sim_touch(access, f->to + row * f->pitch, f->width, false, true, op->name);
        if (sim_options.has_data) memset(to, f->value, f->width);
    }
}

static int fill(const char *function, struct fill shape, cudaStream_t stream)
{
    struct sim_stream *s = runtime_stream(function, stream);
    if (sim_must_fail("memset") || shape.pitch < shape.width) return cudaErrorInvalidValue;
    if (!shape.width || !shape.rows) return cudaSuccess;
    check_sides(function,
                &(struct copy){.to = shape.to, .to_pitch = shape.pitch, .width = shape.width, .rows = shape.rows});
    if (!on_device(shape.to)) sim_die("%s of %p, which is not a device address", function, (void *)shape.to);
    sim_counters.memsets++;
    struct fill *f = sim_alloc(sizeof *f);
    *f = shape;
    f->op = (struct sim_op){.name = function,
                            .bytes = sizeof *f,
                            .run = run_fill,
                            .uses = {f->to, f->to + extent(f->pitch, f->width, f->rows) - 1},
                            .n_uses = 2};
    runtime_push(s, &f->op);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    SIM_CALL;
    struct fill shape = {.to = to, .pitch = bytes, .width = bytes, .rows = 1, .value = value};
    return runtime_done(fill(__func__, shape, NULL));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    SIM_CALL;
    struct fill shape = {.to = to, .pitch = bytes, .width = bytes, .rows = 1, .value = value};
    return runtime_done(fill(__func__, shape, stream));
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t rows, cudaStream_t stream)
{
    SIM_CALL;
    struct fill shape = {.to = to, .pitch = pitch, .width = width, .rows = rows, .value = value};
    return runtime_done(fill(__func__, shape, stream));
}
