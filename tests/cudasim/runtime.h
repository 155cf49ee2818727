/* SPDX-License-Identifier: MIT */
/* What the functions of the fake libraries share beside the model of the device. */
#ifndef CUDASIM_RUNTIME_H
#define CUDASIM_RUNTIME_H

#include "cudasim.h"
#include "sim.h"

#include <pthread.h>

struct sim_call {
    const char *function;
};
struct sim_call sim_call_begin(const char *function);
void sim_call_end(struct sim_call *call);
/* At the head of each function of the API: starts the simulator, takes the mutex until the function returns. */
#define SIM_CALL struct sim_call sim_call_ __attribute__((cleanup(sim_call_end), unused)) = sim_call_begin(__func__)

extern _Thread_local bool sim_in_host_function; /* a function of cudaLaunchHostFunc */
void sim_lock(void);
void sim_unlock(void);
void sim_wait(pthread_cond_t *condition); /* lets others in meanwhile */

extern struct cudasim_counters sim_counters;
void nccl_leaks(void) __attribute__((weak)); /* where NCCL's header is not installed there is no nccl.c */

/*
 * Errors are cudaError_t. Each call ends by return runtime_done(error): that remembers it for cudaGetLastError. Once an
 * operation failed on the device, it returns the device's error for ever.
 */
int runtime_done(int error);
void runtime_device_failed(int error);
bool runtime_device_has_failed(void);
/* The call waits for the device: counted, and reported where that is forbidden. Some may wait: reported alike. */
void runtime_waits(const char *function);
void runtime_may_wait(const char *function);
int runtime_device(void); /* the thread's current one */
/* The stream behind a handle; the legacy default stream is reported, what is no stream ends the process. */
struct sim_stream;
struct sim_stream *runtime_stream(const char *function, const void *handle);

/* What was issued: it goes into the stream at once, or into the graph that is recorded from the stream. */
struct sim_op;
struct sim_event;
void runtime_push(struct sim_stream *s, struct sim_op *op);
void runtime_record_event(struct sim_event *e, struct sim_stream *s);
void runtime_wait_event(struct sim_stream *s, struct sim_event *e);

#endif
