/* SPDX-License-Identifier: MIT */
/* Memory, streams and events of a GPU: device.h's table over the CUDA runtime. */
#include "cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/attention.h"
#include "cuda/gemm.h"
#include "cuda/nvml.h"

/* ---- failures ---- */
err_t cuda_fail(struct device *d, const char *what, const char *reason, struct error *e)
{
    struct cuda_device *c = cuda_device_of(d);

    if (!c->failed)
        c->failed = FAIL(&c->error, ERR_DEVICE, "%s: %s: %s; this process cannot use the GPU any more",
                         d->properties.name, what, reason);
    if (e) *e = c->error;
    return c->failed;
}

err_t cuda_check(struct device *d, const char *what, cudaError_t code, struct error *e)
{
    char reason[256];

    if (code == cudaSuccess && !cuda_device_of(d)->failed) return ERR_NONE;
    snprintf(reason, sizeof reason, "%s (%s)", cudaGetErrorString(code), cudaGetErrorName(code));
    return cuda_fail(d, what, reason, e);
}

/* For calls that tell nobody: the next one does. */
static void note(struct device *d, const char *what, cudaError_t code)
{
    if (cuda_check(d, what, code, NULL)) return;
}

cudaStream_t kernel_stream(const struct kernel_context *c) { return cuda_stream(c->device, c->stream); }

void kernel_fail(struct kernel_context *c, const char *what, const char *reason)
{
    if (!c->failed) c->failed = cuda_fail(c->device, what, reason, &c->error);
}

void kernel_check(struct kernel_context *c, const char *what, cudaError_t code)
{
    if (code != cudaSuccess && !c->failed) c->failed = cuda_check(c->device, what, code, &c->error);
}

/* ---- memory ---- */
static err_t cuda_segment_alloc(struct device *d, size_t bytes, void **out, struct error *e)
{
    cudaError_t code = cudaMalloc(out, bytes);

    if (code == cudaSuccess) return cuda_check(d, "cudaMalloc", code, e);
    *out = NULL;
    if (code != cudaErrorMemoryAllocation) return cuda_check(d, "cudaMalloc", code, e);
    cudaGetLastError(); /* nothing is broken: the next call must not find it */
    return FAIL(e, ERR_MEMORY, "the GPU has no %zu bytes more", bytes);
}

static void cuda_segment_free(struct device *d, void *p, size_t bytes)
{
    (void)bytes;
    note(d, "cudaFree", cudaFree(p));
}

static err_t cuda_host_alloc(struct device *d, size_t bytes, void **out, struct error *e)
{
    cudaError_t code = cudaHostAlloc(out, bytes, cudaHostAllocDefault);

    if (code == cudaSuccess) return cuda_check(d, "cudaHostAlloc", code, e);
    *out = NULL;
    if (code != cudaErrorMemoryAllocation) return cuda_check(d, "cudaHostAlloc", code, e);
    cudaGetLastError();
    return FAIL(e, ERR_MEMORY, "the host gives no %zu bytes of memory that stays in place for the GPU (ulimit -l)",
                bytes);
}

static void cuda_host_free(struct device *d, void *p) { note(d, "cudaFreeHost", cudaFreeHost(p)); }

static err_t cuda_copy(struct device *d, void *to, const void *from, size_t bytes, struct stream *s, struct error *e)
{
    return cuda_check(d, "cudaMemcpyAsync", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda_stream(d, s)), e);
}

static err_t cuda_copy_2d(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                          size_t bytes, size_t rows, struct stream *s, struct error *e)
{
    if (to_pitch == bytes && from_pitch == bytes) return cuda_copy(d, to, from, bytes * rows, s, e);
    return cuda_check(
        d, "cudaMemcpy2DAsync",
        cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, bytes, rows, cudaMemcpyDefault, cuda_stream(d, s)), e);
}

static err_t cuda_fill_zero(struct device *d, void *p, size_t bytes, struct stream *s, struct error *e)
{
    return cuda_check(d, "cudaMemsetAsync", cudaMemsetAsync(p, 0, bytes, cuda_stream(d, s)), e);
}

/* ---- streams and events ---- */
static err_t cuda_synchronize(struct device *d, struct error *e)
{
    return cuda_check(d, "waiting for the GPU", cudaDeviceSynchronize(), e);
}

static err_t cuda_stream_create(struct device *d, struct stream **out, struct error *e)
{
    struct stream *s = mem_zalloc(1, sizeof *s);
    err_t rc;

    *out = NULL;
    if (!s) return FAIL(e, ERR_MEMORY, "out of memory for a stream");
    rc = cuda_check(d, "cudaStreamCreate", cudaStreamCreateWithFlags(&s->handle, cudaStreamNonBlocking), e);
    if (rc)
        mem_free(s);
    else
        *out = s;
    return rc;
}

static void cuda_stream_destroy(struct device *d, struct stream *s)
{
    note(d, "cudaStreamDestroy", cudaStreamDestroy(s->handle));
    mem_free(s);
}

static err_t cuda_stream_wait(struct device *d, struct stream *s, struct event *event, struct error *e)
{
    return cuda_check(d, "cudaStreamWaitEvent", cudaStreamWaitEvent(cuda_stream(d, s), event->handle, 0), e);
}

static err_t cuda_stream_synchronize(struct device *d, struct stream *s, struct error *e)
{
    return cuda_check(d, "waiting for the GPU", cudaStreamSynchronize(cuda_stream(d, s)), e);
}

static err_t cuda_event_create(struct device *d, struct event **out, struct error *e)
{
    struct event *event = mem_zalloc(1, sizeof *event);
    err_t rc;

    *out = NULL;
    if (!event) return FAIL(e, ERR_MEMORY, "out of memory for an event");
    /* whoever waits for it sleeps: the cores are the loader's and the sinks' */
    rc = cuda_check(d, "cudaEventCreate",
                    cudaEventCreateWithFlags(&event->handle, cudaEventDisableTiming | cudaEventBlockingSync), e);
    if (rc)
        mem_free(event);
    else
        *out = event;
    return rc;
}

static void cuda_event_destroy(struct device *d, struct event *event)
{
    note(d, "cudaEventDestroy", cudaEventDestroy(event->handle));
    mem_free(event);
}

static err_t cuda_event_record(struct device *d, struct event *event, struct stream *s, struct error *e)
{
    return cuda_check(d, "cudaEventRecord", cudaEventRecord(event->handle, cuda_stream(d, s)), e);
}

static err_t cuda_event_synchronize(struct device *d, struct event *event, struct error *e)
{
    return cuda_check(d, "waiting for the GPU", cudaEventSynchronize(event->handle), e);
}

static bool cuda_event_is_done(struct device *d, struct event *event)
{
    cudaError_t code = cudaEventQuery(event->handle);

    if (code == cudaErrorNotReady) {
        cudaGetLastError(); /* it is no failure, but would be the next call's */
        return false;
    }
    note(d, "waiting for the GPU", code);
    return true;
}

/* ---- sensors ---- */
static void cuda_sensors(struct device *d, struct device_sensors *out)
{
    struct cuda_device *c = cuda_device_of(d);

    if (c->nvml) nvml_read(c->nvml, out);
}

/* A GPU works without. */
static void open_sensors(struct cuda_device *c)
{
    char bus_id[32];

    if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, c->index) != cudaSuccess)
        cudaGetLastError(); /* the next call must not find it */
    else if (nvml_open(&c->nvml, bus_id, NULL))
        c->nvml = NULL;
}

/* ---- opening ---- */
static void cuda_close(struct device *d)
{
    struct cuda_device *c = cuda_device_of(d);

    gemm_plans_destroy(c->gemm_plans);
    cuda_attention_destroy(c->attention);
    nvml_close(c->nvml);
    if (c->main) cudaStreamDestroy(c->main);
    mem_free(c);
}

static const struct device_ops device_ops_cuda = {
    .name = "cuda",
    .close = cuda_close,
    .segment_alloc = cuda_segment_alloc,
    .segment_free = cuda_segment_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .copy = cuda_copy,
    .copy_2d = cuda_copy_2d,
    .fill_zero = cuda_fill_zero,
    .synchronize = cuda_synchronize,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_wait = cuda_stream_wait,
    .stream_synchronize = cuda_stream_synchronize,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_synchronize = cuda_event_synchronize,
    .event_is_done = cuda_event_is_done,
    .sensors = cuda_sensors,
};

static err_t count_gpus(int *n, struct error *e)
{
    int driver = 0, runtime = 0;
    cudaError_t code;

    *n = 0;
    code = cudaGetDeviceCount(n);
    if (code == cudaErrorNoDevice || (code == cudaSuccess && *n == 0))
        return FAIL(e, ERR_UNSUPPORTED, "the NVIDIA driver shows no GPU (CUDA_VISIBLE_DEVICES?)");
    if (code == cudaErrorInsufficientDriver) {
        cudaDriverGetVersion(&driver);
        cudaRuntimeGetVersion(&runtime);
        if (driver == 0) return FAIL(e, ERR_UNSUPPORTED, "no NVIDIA driver");
        return FAIL(e, ERR_UNSUPPORTED, "the NVIDIA driver is for CUDA %d.%d, the plugin needs %d.%d", driver / 1000,
                    driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    if (code != cudaSuccess)
        return FAIL(e, ERR_DEVICE, "no GPU: %s (%s)", cudaGetErrorString(code), cudaGetErrorName(code));
    return ERR_NONE;
}

/* A launcher that gives each rank a GPU of its own shows it no other. */
static err_t choose(int n, const struct device_options *options, int *index, struct error *e)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    bool has_own = n == 1 && visible && visible[0] && !strchr(visible, ',');

    *index = has_own ? 0 : options->local_rank;
    if (has_own || (options->local_rank < n && options->local_size <= n)) return ERR_NONE;
    return FAIL(e, ERR_UNSUPPORTED, "no GPU for local rank %d: %d GPU%s, %d ranks on this host", options->local_rank, n,
                n == 1 ? "" : "s", options->local_size);
}

static err_t describe(struct cuda_device *c, struct error *e)
{
    struct device_properties *p = &c->base.properties;
    struct cudaDeviceProp prop;
    int driver = 0, runtime = 0;
    size_t free_bytes = 0, total_bytes = 0;
    err_t rc = cuda_check(&c->base, "cudaGetDeviceProperties", cudaGetDeviceProperties(&prop, c->index), e);

    if (!rc) rc = cuda_check(&c->base, "cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total_bytes), e);
    if (rc) return rc;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    snprintf(p->name, sizeof p->name, "%.*s", (int)sizeof p->name - 1, prop.name);
    snprintf(p->versions, sizeof p->versions, "compute capability %d.%d, driver %d.%d, CUDA %d.%d", prop.major,
             prop.minor, driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    p->memory_bytes = (int64_t)free_bytes; /* what others left */
    p->multiprocessors = prop.multiProcessorCount;
    if (prop.major < 8)
        return FAIL(e, ERR_UNSUPPORTED, "%s has compute capability %d.%d, the kernels need 8.0 or more", p->name,
                    prop.major, prop.minor);
    return ERR_NONE;
}

err_t cuda_device_create(struct device **out, const struct device_options *options, struct error *e)
{
    struct cuda_device *c = mem_zalloc(1, sizeof *c);
    int n;
    err_t rc = c ? count_gpus(&n, e) : FAIL(e, ERR_MEMORY, "out of memory while opening the GPU");

    *out = NULL;
    if (!rc) rc = choose(n, options, &c->index, e);
    if (rc) goto failed;
    c->base.ops = &device_ops_cuda;
    snprintf(c->base.properties.name, sizeof c->base.properties.name, "GPU %d", c->index);
    rc = cuda_check(&c->base, "cudaSetDevice", cudaSetDevice(c->index), e);
    if (!rc) rc = describe(c, e);
    if (!rc)
        rc = cuda_check(&c->base, "cudaStreamCreate", cudaStreamCreateWithFlags(&c->main, cudaStreamNonBlocking), e);
    if (rc) goto failed;
    open_sensors(c);
    *out = &c->base;
    return ERR_NONE;
failed:
    mem_free(c);
    return rc;
}
