/* SPDX-License-Identifier: MIT */
/* The simulator's streams and events: what runs when, what orders what, and what is reported where nothing does. */
#include "cudasim.h"
#include "scenario.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

enum { BYTES = 4096 };

static struct {
    cudaStream_t a, b;
    cudaEvent_t event;
    char *x, *y;
    unsigned char *host;
} t;

static void open_all(void)
{
    OK(cudaStreamCreateWithFlags(&t.a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithPriority(&t.b, cudaStreamNonBlocking, -1));
    OK(cudaEventCreateWithFlags(&t.event, cudaEventDisableTiming));
    OK(cudaMalloc((void **)&t.x, BYTES));
    OK(cudaMalloc((void **)&t.y, BYTES));
    OK(cudaHostAlloc((void **)&t.host, BYTES, 0));
}

static void close_all(void)
{
    OK(cudaDeviceSynchronize());
    OK(cudaStreamDestroy(t.a));
    OK(cudaStreamDestroy(t.b));
    OK(cudaEventDestroy(t.event));
    OK(cudaFree(t.x));
    OK(cudaFree(t.y));
    OK(cudaFreeHost(t.host));
}

static void set(char *p, int value, cudaStream_t s) { OK(cudaMemsetAsync(p, value, BYTES, s)); }

static void fetch(const char *p, cudaStream_t s) { OK(cudaMemcpyAsync(t.host, p, BYTES, cudaMemcpyDeviceToHost, s)); }

/* ---- good ---- */

static void an_event_orders_two_streams(void)
{
    open_all();
    set(t.x, 3, t.a);
    OK(cudaEventRecord(t.event, t.a));
    OK(cudaStreamWaitEvent(t.b, t.event, 0));
    fetch(t.x, t.b);
    OK(cudaStreamSynchronize(t.b));
    CHECK(t.host[BYTES - 1] == 3);
    /* and back: the next write waits for the read */
    OK(cudaEventRecord(t.event, t.b));
    OK(cudaStreamWaitEvent(t.a, t.event, 0));
    set(t.x, 4, t.a);
    close_all();
}

static void the_host_orders_two_streams(void)
{
    open_all();
    set(t.x, 3, t.a);
    OK(cudaStreamSynchronize(t.a));
    fetch(t.x, t.b);
    OK(cudaStreamSynchronize(t.b));
    CHECK(t.host[0] == 3);
    set(t.x, 4, t.a);
    OK(cudaEventRecord(t.event, t.a));
    while (cudaEventQuery(t.event) == cudaErrorNotReady)
        ;
    fetch(t.x, t.b);
    close_all();
}

/* A wait is for the record that was the last one when it was issued, whatever is recorded later. */
static void an_event_is_recorded_again(void)
{
    open_all();
    set(t.x, 1, t.a);
    OK(cudaEventRecord(t.event, t.a));
    OK(cudaStreamWaitEvent(t.b, t.event, 0));
    set(t.y, 2, t.a);
    OK(cudaEventRecord(t.event, t.a));
    fetch(t.x, t.b);
    OK(cudaStreamSynchronize(t.b));
    CHECK(t.host[0] == 1);
    OK(cudaEventSynchronize(t.event));
    fetch(t.y, t.b);
    OK(cudaStreamSynchronize(t.b));
    CHECK(t.host[0] == 2);
    close_all();
}

static void parts_of_a_block_are_apart(void)
{
    open_all();
    OK(cudaMemsetAsync(t.x, 1, 100, t.a));
    OK(cudaMemsetAsync(t.x + 100, 2, 100, t.b));
    close_all();
}

static void only_what_is_needed_runs(void)
{
    open_all();
    set(t.x, 1, t.a);
    set(t.y, 2, t.b);
    t.host[0] = 9;
    fetch(t.x, t.a);
    CHECK(cudaStreamQuery(t.b) == cudaErrorNotReady || cudaStreamQuery(t.b) == cudaSuccess);
    OK(cudaStreamSynchronize(t.b));
    CHECK(t.host[0] == 0xff); /* the stream a did not run */
    OK(cudaStreamSynchronize(t.a));
    CHECK(t.host[0] == 1);
    close_all();
}

static void blocking_streams_follow_the_default_one(void)
{
    cudaStream_t s;
    open_all();
    cudasim_allow_default_stream(true);
    OK(cudaStreamCreate(&s));
    set(t.x, 1, s);
    OK(cudaMemsetAsync(t.x, 2, 8, NULL));
    fetch(t.x, s);
    OK(cudaStreamSynchronize(s));
    CHECK(t.host[0] == 2 && t.host[8] == 1);
    OK(cudaStreamDestroy(s));
    close_all();
}

static void time_passes(void)
{
    cudaEvent_t from, to;
    float ms = -1;
    open_all();
    OK(cudaEventCreate(&from));
    OK(cudaEventCreate(&to));
    OK(cudaEventRecord(from, t.a));
    set(t.x, 1, t.a);
    OK(cudaEventRecord(to, t.a));
    OK(cudaEventSynchronize(to));
    OK(cudaEventElapsedTime(&ms, from, to));
    CHECK(ms >= 0);
    CHECK(cudaEventElapsedTime(&ms, from, t.event) == cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(from));
    OK(cudaEventDestroy(to));
    close_all();
}

static void count(void *argument) { ++*(int *)argument; }

static void functions_of_the_host_run_in_order(void)
{
    int n = 0;
    open_all();
    OK(cudaLaunchHostFunc(t.a, count, &n));
    OK(cudaEventRecord(t.event, t.a));
    OK(cudaStreamWaitEvent(t.b, t.event, 0));
    CHECK(n == 0);
    OK(cudaStreamSynchronize(t.b));
    CHECK(n == 1);
    close_all();
}

static void streams_come_and_go(void)
{
    open_all();
    for (int i = 0; i < 500; i++) {
        cudaStream_t s;
        OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        set(t.x, i, s);
        OK(cudaStreamSynchronize(s));
        OK(cudaStreamDestroy(s));
        set(t.x, i, t.a);
        OK(cudaStreamSynchronize(t.a));
    }
    close_all();
}

/* ---- planted ---- */

static void read_without_event(void)
{
    open_all();
    set(t.x, 3, t.a);
    OK(cudaStreamSynchronize(t.a));
    set(t.x, 4, t.a);
    fetch(t.x, t.b);
    close_all();
}

static void write_without_event(void)
{
    open_all();
    set(t.x, 3, t.a);
    set(t.x, 4, t.b);
    close_all();
}

/* The reader is waited for, but the writer does not know. */
static void write_after_read_without_event(void)
{
    open_all();
    set(t.x, 3, t.a);
    OK(cudaEventRecord(t.event, t.a));
    OK(cudaStreamWaitEvent(t.b, t.event, 0));
    fetch(t.x, t.b);
    set(t.x, 4, t.a);
    close_all();
}

static void event_never_recorded(void)
{
    open_all();
    OK(cudaStreamWaitEvent(t.b, t.event, 0));
    close_all();
}

static void event_synchronised_but_never_recorded(void)
{
    open_all();
    OK(cudaEventSynchronize(t.event));
    close_all();
}

/* Recorded before the work that it should cover. */
static void event_recorded_too_early(void)
{
    open_all();
    OK(cudaEventRecord(t.event, t.a));
    set(t.x, 3, t.a);
    OK(cudaStreamWaitEvent(t.b, t.event, 0));
    set(t.x, 4, t.b);
    close_all();
}

static void blocking_copy_beside_a_stream(void)
{
    static char back[BYTES];
    open_all();
    cudasim_allow_default_stream(true);
    set(t.x, 3, t.a);
    OK(cudaStreamSynchronize(t.a));
    set(t.x, 4, t.a);
    OK(cudaMemcpy(back, t.x, BYTES, cudaMemcpyDeviceToHost));
    close_all();
}

static void destroyed_stream(void)
{
    open_all();
    OK(cudaStreamDestroy(t.a));
    cudaMemsetAsync(t.x, 0, 4, t.a);
}

static void work_left_at_the_end(void)
{
    open_all();
    set(t.x, 1, t.a);
    exit(0);
}

static void host_function_calls_cuda(void *argument)
{
    (void)argument;
    cudaStreamQuery(t.a);
}

static void cuda_in_a_host_function(void)
{
    open_all();
    OK(cudaLaunchHostFunc(t.a, host_function_calls_cuda, NULL));
    close_all();
}

int main(int argc, char **argv)
{
#define GOOD_SEEDS(name)                                                                                               \
    {#name, name, NULL, NULL, 0}, {#name "_seed_1", name, NULL, "CUDASIM_SEED=1", 0},                                  \
        {#name "_seed_2", name, NULL, "CUDASIM_SEED=2", 0},                                                            \
    {                                                                                                                  \
#name "_seed_3", name, NULL, "CUDASIM_SEED=3", 0                                                               \
    }
#define BUG_SEEDS(name, report)                                                                                        \
    {#name, name, report, NULL, 0}, {#name "_seed_1", name, report, "CUDASIM_SEED=1", 0},                              \
    {                                                                                                                  \
#name "_seed_2", name, report, "CUDASIM_SEED=2", 0                                                             \
    }
    static const struct scenario all[] = {
        GOOD_SEEDS(an_event_orders_two_streams),
        GOOD_SEEDS(the_host_orders_two_streams),
        GOOD_SEEDS(an_event_is_recorded_again),
        GOOD_SEEDS(parts_of_a_block_are_apart),
        {"only_what_is_needed_runs", only_what_is_needed_runs, NULL, NULL, 0},
        GOOD_SEEDS(blocking_streams_follow_the_default_one),
        GOOD_SEEDS(time_passes),
        {"functions_of_the_host_run_in_order", functions_of_the_host_run_in_order, NULL, NULL, 0},
        GOOD_SEEDS(streams_come_and_go),
        BUG_SEEDS(read_without_event, "stream hazard: "),
        BUG_SEEDS(write_without_event, "stream hazard: cudaMemsetAsync on stream"),
        BUG_SEEDS(write_after_read_without_event, "stream hazard"),
        BUG_SEEDS(event_never_recorded, "never recorded"),
        BUG_SEEDS(event_synchronised_but_never_recorded, "never recorded"),
        BUG_SEEDS(event_recorded_too_early, "stream hazard"),
        BUG_SEEDS(blocking_copy_beside_a_stream, "stream hazard: "),
        BUG_SEEDS(destroyed_stream, "is not a stream, or was destroyed"),
        {"work_left_at_the_end", work_left_at_the_end, "streams hold work at the end", NULL, 0},
        BUG_SEEDS(cuda_in_a_host_function, "inside a function of cudaLaunchHostFunc"),
    };
    return scenarios_main(argc, argv, all, sizeof all / sizeof *all);
}
