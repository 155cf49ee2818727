/* SPDX-License-Identifier: MIT */
/* libcudart: streams, events, functions of the host in a stream. */
#include "runtime.h"
#include "stream.h"

#include <cuda_runtime_api.h>

/* ---- streams ---- */

static int create_stream(cudaStream_t *stream, unsigned flags)
{
    if (flags & ~(unsigned)cudaStreamNonBlocking) return cudaErrorInvalidValue;
    if (sim_must_fail("stream")) return cudaErrorMemoryAllocation;
    *stream = (cudaStream_t)stream_create(!(flags & cudaStreamNonBlocking), runtime_device());
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    SIM_CALL;
    return runtime_done(create_stream(stream, cudaStreamDefault));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    SIM_CALL;
    return runtime_done(create_stream(stream, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    SIM_CALL;
    (void)priority; /* a number out of range is taken as the nearest */
    return runtime_done(create_stream(stream, flags));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    SIM_CALL;
    if (!stream || stream == cudaStreamLegacy) return runtime_done(cudaErrorInvalidResourceHandle);
    stream_destroy(runtime_stream(__func__, stream));
    return runtime_done(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    SIM_CALL;
    runtime_waits(__func__);
    stream_wait(runtime_stream(__func__, stream));
    if (sim_must_fail("sync")) runtime_device_failed(cudaErrorLaunchFailure);
    return runtime_done(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    SIM_CALL;
    struct sim_stream *s = runtime_stream(__func__, stream);
    if (!stream_step_to(s, stream_end(s))) return runtime_done(cudaErrorNotReady);
    stream_wait(s);
    return runtime_done(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    SIM_CALL;
    struct sim_stream *s = runtime_stream(__func__, stream);
    if (!event_is(event)) sim_die("%s: %p is not an event, or was destroyed", __func__, (void *)event);
    if (flags) return runtime_done(cudaErrorInvalidValue);
    struct sim_event *e = (struct sim_event *)event;
    if (!event_was_recorded(e)) {
        sim_report("%s waits for an event that was never recorded: it orders nothing", __func__);
        return runtime_done(cudaSuccess);
    }
    sim_counters.events_waited_for++;
    runtime_wait_event(s, e);
    return runtime_done(cudaSuccess);
}

/* ---- events ---- */

static struct sim_event *event_of(const char *function, cudaEvent_t event)
{
    if (!event_is(event)) sim_die("%s: %p is not an event, or was destroyed", function, (void *)event);
    return (struct sim_event *)event;
}

static int create_event(cudaEvent_t *event, unsigned flags)
{
    if (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming)) return cudaErrorInvalidValue;
    if (sim_must_fail("event")) return cudaErrorMemoryAllocation;
    *event = (cudaEvent_t)event_create(!(flags & cudaEventDisableTiming));
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    SIM_CALL;
    return runtime_done(create_event(event, cudaEventDefault));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    SIM_CALL;
    return runtime_done(create_event(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    SIM_CALL;
    event_destroy(event_of(__func__, event));
    return runtime_done(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    SIM_CALL;
    struct sim_stream *s = runtime_stream(__func__, stream);
    sim_counters.events_recorded++;
    runtime_record_event(event_of(__func__, event), s);
    return runtime_done(cudaSuccess);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    SIM_CALL;
    struct sim_stream *s = runtime_stream(__func__, stream);
    if (flags) return runtime_done(cudaErrorInvalidValue);
    sim_counters.events_recorded++;
    runtime_record_event(event_of(__func__, event), s);
    return runtime_done(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    SIM_CALL;
    runtime_waits(__func__);
    struct sim_event *e = event_of(__func__, event);
    if (!event_was_recorded(e))
        sim_report("%s waits for an event that was never recorded: it returns at once", __func__);
    event_wait(e);
    if (sim_must_fail("sync")) runtime_device_failed(cudaErrorLaunchFailure);
    return runtime_done(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    SIM_CALL;
    return runtime_done(event_step(event_of(__func__, event)) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    SIM_CALL;
    struct sim_event *first = event_of(__func__, start), *last = event_of(__func__, end);
    uint64_t from, to;
    if (!event_was_recorded(first) || !event_was_recorded(last) || !event_has_time(first) || !event_has_time(last))
        return runtime_done(cudaErrorInvalidResourceHandle);
    if (!event_ns(first, &from) || !event_ns(last, &to)) return runtime_done(cudaErrorNotReady);
    *ms = (float)((double)(int64_t)(to - from) * 1e-6);
    return runtime_done(cudaSuccess);
}

/* ---- functions of the host ---- */

struct host_op {
    struct sim_op op;
    cudaHostFn_t function;
    void *argument;
};

static void run_host(struct sim_op *op, struct sim_access *access)
{
    (void)access;
    struct host_op *o = (struct host_op *)op;
    /* it may not call CUDA, but may take its time or a lock of the program's */
    sim_unlock();
    sim_in_host_function = true;
    o->function(o->argument);
    sim_in_host_function = false;
    sim_lock();
}

void runtime_push(struct sim_stream *s, struct sim_op *op) { stream_push(s, op); }

void runtime_record_event(struct sim_event *e, struct sim_stream *s) { event_record(e, s); }

void runtime_wait_event(struct sim_stream *s, struct sim_event *e) { stream_wait_event(s, e); }

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    SIM_CALL;
    struct sim_stream *s = runtime_stream(__func__, stream);
    struct host_op *o = sim_alloc(sizeof *o);
    *o = (struct host_op){{.name = "cudaLaunchHostFunc", .bytes = sizeof *o, .run = run_host}, function, argument};
    runtime_push(s, &o->op);
    return runtime_done(cudaSuccess);
}
