/* SPDX-License-Identifier: MIT */
/*
 * Kernels that nvcc compiled, launched by its own stubs, on the simulator: arguments, shared memory, streams,
 * failures.
 */
#include "cudasim.h"
#include "launch.h"
#include "scenario.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 1000 };

static struct {
    cudaStream_t a, b;
    cudaEvent_t event;
    float *x, *host;
} t;

static void open_all(void)
{
    OK(cudaStreamCreateWithFlags(&t.a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&t.b, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&t.event, cudaEventDisableTiming));
    OK(cudaMalloc((void **)&t.x, N * sizeof(float)));
    OK(cudaHostAlloc((void **)&t.host, N * sizeof(float), 0));
    for (int i = 0; i < N; i++) t.host[i] = (float)i;
    OK(cudaMemcpyAsync(t.x, t.host, N * sizeof(float), cudaMemcpyHostToDevice, t.a));
    OK(cudaStreamSynchronize(t.a));
}

static void fetch(cudaStream_t s)
{
    OK(cudaMemcpyAsync(t.host, t.x, N * sizeof(float), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
}

static void close_all(void)
{
    OK(cudaDeviceSynchronize());
    OK(cudaStreamDestroy(t.a));
    OK(cudaStreamDestroy(t.b));
    OK(cudaEventDestroy(t.event));
    OK(cudaFree(t.x));
    OK(cudaFreeHost(t.host));
}

/* ---- good ---- */

static void kernels_run(void)
{
    open_all();
    launch_scale(t.x, N, 1, t.a);
    OK(cudaGetLastError());
    fetch(t.a);
    for (int i = 0; i < N; i++) CHECK(t.host[i] == 2 * (float)i + 1);
    launch_reverse(t.x, 256, 256 * sizeof(float), t.a);
    fetch(t.a);
    CHECK(t.host[0] == 511 && t.host[255] == 1 && t.host[256] == 513);
    struct cudasim_counters c;
    cudasim_get_counters(&c);
    CHECK(c.launches == 2 && c.kernel_threads == 1024 + 256 && c.warp_instructions > 0);
    close_all();
}

static void an_event_orders_kernels(void)
{
    open_all();
    for (int i = 0; i < 4; i++) {
        launch_scale(t.x, N, 0, i % 2 ? t.b : t.a);
        OK(cudaEventRecord(t.event, i % 2 ? t.b : t.a));
        OK(cudaStreamWaitEvent(i % 2 ? t.a : t.b, t.event, 0));
    }
    fetch(t.a);
    CHECK(t.host[3] == 48);
    close_all();
}

static void launches_by_configuration(void)
{
    open_all();
    int n = N;
    float add = 3;
    void *arguments[] = {&t.x, &n, &add};
    cudaLaunchConfig_t c = {.gridDim = {16, 1, 1}, .blockDim = {64, 1, 1}, .stream = t.a};
    OK(cudaLaunchKernelExC(&c, kernel_scale(), arguments));
    OK(cudaLaunchKernel(kernel_scale(), c.gridDim, c.blockDim, arguments, 0, t.a));
    fetch(t.a);
    CHECK(t.host[10] == 49);
    int *address, *count;
    OK(cudaGetSymbolAddress((void **)&address, variable_launches()));
    OK(cudaHostAlloc((void **)&count, sizeof *count, 0));
    OK(cudaMemcpyAsync(count, address, sizeof *count, cudaMemcpyDeviceToHost, t.a));
    OK(cudaStreamSynchronize(t.a));
    CHECK(*count == 2);
    OK(cudaFreeHost(count));
    close_all();
}

static void large_shared_memory_is_asked_for(void)
{
    open_all();
    struct cudaFuncAttributes attributes;
    int blocks;
    OK(cudaFuncSetAttribute(kernel_reverse(), cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
    OK(cudaFuncGetAttributes(&attributes, kernel_reverse()));
    CHECK(attributes.maxDynamicSharedSizeBytes == 100 << 10);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel_reverse(), 256, 100 << 10));
    CHECK(blocks == 2);
    launch_reverse(t.x, 256, 100 << 10, t.a);
    OK(cudaGetLastError());
    CHECK(cudaFuncSetAttribute(kernel_reverse(), cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10) ==
          cudaErrorInvalidValue);
    close_all();
}

static void a_chosen_launch_fails(void)
{
    open_all();
    launch_scale(t.x, N, 1, t.a);
    OK(cudaGetLastError());
    launch_scale(t.x, N, 1, t.a);
    CHECK(cudaGetLastError() == cudaErrorLaunchOutOfResources);
    fetch(t.a);
    CHECK(t.host[1] == 3);
    close_all();
}

/* The launch is well; what goes wrong later stays for ever. */
static void a_chosen_kernel_fails(void)
{
    open_all();
    launch_scale(t.x, N, 1, t.a);
    launch_scale(t.x, N, 1, t.a);
    OK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(t.a) == cudaErrorIllegalAddress);
    CHECK(cudaStreamSynchronize(t.b) == cudaErrorIllegalAddress);
    CHECK(cudaMemsetAsync(t.x, 0, 4, t.a) == cudaErrorIllegalAddress);
    CHECK(cudaFree(t.x) == cudaErrorIllegalAddress);
    _exit(0);
}

static void without_data_kernels_are_counted(void)
{
    float *x;
    OK(cudaMalloc((void **)&x, (size_t)1 << 33));
    OK(cudaStreamCreateWithFlags(&t.a, cudaStreamNonBlocking));
    for (int i = 0; i < 100; i++) launch_scale(x, 1 << 30, 1, t.a);
    OK(cudaStreamSynchronize(t.a));
    struct cudasim_counters c;
    cudasim_get_counters(&c);
    CHECK(c.launches == 100 && c.kernel_threads == 0);
    OK(cudaFree(x));
    OK(cudaStreamDestroy(t.a));
}

/* ---- planted ---- */

static void kernels_without_an_event(void)
{
    open_all();
    launch_scale(t.x, N, 1, t.a);
    launch_scale(t.x, N, 1, t.b);
    close_all();
}

static void copy_beside_a_kernel(void)
{
    open_all();
    launch_scale(t.x, N, 1, t.a);
    OK(cudaMemcpyAsync(t.host, t.x, 4, cudaMemcpyDeviceToHost, t.b));
    close_all();
}

static void free_before_the_kernel_ran(void)
{
    open_all();
    launch_scale(t.x, N, 1, t.a);
    OK(cudaFree(t.x));
}

static void past_the_end(void)
{
    open_all();
    launch_scale(t.x, N + 1, 1, t.a);
    fetch(t.a);
}

static void too_many_threads(void)
{
    open_all();
    launch_reverse(t.x, 1025, 0, t.a);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
}

static void too_much_shared_memory(void)
{
    open_all();
    launch_reverse(t.x, 256, 64 << 10, t.a);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

static void another_devices_stream(void)
{
    open_all();
    OK(cudaSetDevice(1));
    launch_scale(t.x, N, 1, t.a);
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
}

static void launch_on_the_default_stream(void)
{
    open_all();
    launch_scale(t.x, N, 1, NULL);
}

int main(int argc, char **argv)
{
    static const struct scenario all[] = {
        GOOD(kernels_run),
        GOOD(an_event_orders_kernels),
        {"an_event_orders_kernels_seed_1", an_event_orders_kernels, NULL, "CUDASIM_SEED=1", 0},
        {"an_event_orders_kernels_seed_3", an_event_orders_kernels, NULL, "CUDASIM_SEED=3", 0},
        GOOD(launches_by_configuration),
        GOOD(large_shared_memory_is_asked_for),
        GOOD_IN(a_chosen_launch_fails, "CUDASIM_FAIL=launch:2"),
        GOOD_IN(a_chosen_kernel_fails, "CUDASIM_FAIL=kernel:2"),
        GOOD_IN(without_data_kernels_are_counted, "CUDASIM_DATA=0"),
        BUG(kernels_without_an_event, "stream hazard: "),
        BUG(copy_beside_a_kernel, "stream hazard: "),
        BUG(free_before_the_kernel_ran, "while _Z5scalePfif uses it"),
        BUG(past_the_end, "scale"),
        BUG(too_many_threads, "is not a shape a device can run"),
        BUG(too_much_shared_memory, "asks for 65536 bytes of dynamic shared memory"),
        BUG(another_devices_stream, "its stream belongs to device 0"),
        BUG(launch_on_the_default_stream, "legacy default stream"),
    };
    return scenarios_main(argc, argv, all, sizeof all / sizeof *all);
}
