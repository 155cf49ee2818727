/* SPDX-License-Identifier: MIT */
/*
 * The simulator's device memory, pinned memory, copies, errors on demand: each bug is reported, its good twin is
 * silent.
 */
#include "cudasim.h"
#include "scenario.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1024 };

static float *device_floats(void)
{
    void *p;
    OK(cudaMalloc(&p, N * sizeof(float)));
    return p;
}

static float *pinned_floats(void)
{
    void *p;
    OK(cudaHostAlloc(&p, N * sizeof(float), cudaHostAllocDefault));
    return p;
}

static cudaStream_t stream(void)
{
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

static void fill(float *p, float first)
{
    for (int i = 0; i < N; i++) p[i] = first + (float)i;
}

/* ---- good ---- */

static void round_trip(void)
{
    float *host = pinned_floats(), *back = pinned_floats(), *a = device_floats(), *b = device_floats();
    cudaStream_t s = stream();
    fill(host, 1);
    CHECK(isnan(back[5]));
    OK(cudaMemcpyAsync(a, host, N * sizeof(float), cudaMemcpyHostToDevice, s));
    OK(cudaMemcpyAsync(b, a, N * sizeof(float), cudaMemcpyDeviceToDevice, s));
    OK(cudaMemcpyAsync(back, b, N * sizeof(float), cudaMemcpyDefault, s));
    CHECK(isnan(back[5])); /* nothing waited yet */
    OK(cudaStreamSynchronize(s));
    CHECK(!memcmp(back, host, N * sizeof(float)));
    OK(cudaMemsetAsync(a, 0, N * sizeof(float), s));
    /* four rows of 16 bytes out of rows of 64 into rows of 32 */
    OK(cudaMemcpy2DAsync(a, 32, b, 64, 16, 4, cudaMemcpyDeviceToDevice, s));
    OK(cudaMemcpyAsync(back, a, N * sizeof(float), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    CHECK(back[8] == 17 && back[11] == 20 && back[12] == 0 && back[16] == 33);
    OK(cudaMemset2DAsync(a, 32, 0xff, 4, 2, s));
    OK(cudaMemcpyAsync(back, a, 64, cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    CHECK(isnan(back[0]) && back[1] == 2 && isnan(back[8]) && back[9] == 18);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFreeHost(host));
    OK(cudaFreeHost(back));
}

static void device_is_described(void)
{
    int n = 0, device = 7;
    OK(cudaGetDeviceCount(&n));
    CHECK(n == 2);
    OK(cudaSetDevice(0));
    OK(cudaGetDevice(&device));
    CHECK(device == 0);
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
    CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaSuccess);
    struct cudaDeviceProp p;
    OK(cudaGetDeviceProperties(&p, 0));
    CHECK(p.major == 9 && p.totalGlobalMem == 64 << 20);
    char bus[32];
    OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    CHECK(strlen(bus) == 12);
    size_t available, total;
    OK(cudaMemGetInfo(&available, &total));
    CHECK(available == total && total == 64 << 20);
    void *p1, *p2;
    OK(cudaMalloc(&p1, 40 << 20));
    CHECK(cudaMalloc(&p2, 40 << 20) == cudaErrorMemoryAllocation && !p2);
    OK(cudaMemGetInfo(&available, &total));
    CHECK(available == 24 << 20);
    OK(cudaFree(p1));
    OK(cudaMalloc(&p2, 40 << 20));
    OK(cudaFree(p2));
    CHECK(!strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation"));
}

static void registered_memory_is_pinned(void)
{
    static float host[N];
    float *a = device_floats();
    cudaStream_t s = stream();
    OK(cudaHostRegister(host, sizeof host, cudaHostRegisterDefault));
    CHECK(cudaHostRegister(host, 8, cudaHostRegisterDefault) == cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaMemcpyAsync(a, host, sizeof host, cudaMemcpyHostToDevice, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaHostUnregister(host));
    CHECK(cudaHostUnregister(host) == cudaErrorHostMemoryNotRegistered);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(a));
}

/* A staging buffer that is filled, sent and filled from the device again, all in the order of one stream. */
static void staging_is_used_again(void)
{
    float *host = pinned_floats(), *a = device_floats(), *b = device_floats();
    cudaStream_t s = stream();
    fill(host, 3);
    OK(cudaMemsetAsync(b, 0, N * sizeof(float), s));
    OK(cudaMemcpyAsync(a, host, N * sizeof(float), cudaMemcpyHostToDevice, s));
    OK(cudaMemcpyAsync(host, b, N * sizeof(float), cudaMemcpyDeviceToHost, s));
    OK(cudaMemcpyAsync(host, a, N * sizeof(float), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    CHECK(host[7] == 10);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFreeHost(host));
}

static void many_blocks_come_and_go(void)
{
    void *p[64] = {0};
    for (int i = 0; i < 3000; i++) {
        OK(cudaFree(p[i % 64]));
        OK(cudaMalloc(&p[i % 64], (size_t)(1 + i % 7) * 30000));
    }
    for (int i = 0; i < 64; i++) OK(cudaFree(p[i]));
}

static void nothing_is_executed_without_data(void)
{
    void *p;
    OK(cudaMalloc(&p, (size_t)100 << 30));
    cudaStream_t s = stream();
    OK(cudaMemsetAsync(p, 0, (size_t)100 << 30, s));
    OK(cudaStreamSynchronize(s));
    struct cudasim_counters c;
    cudasim_get_counters(&c);
    CHECK(c.memsets == 1 && c.allocated_peak_bytes == (uint64_t)100 << 30 && c.synchronisations == 1);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(p));
}

static void counters_are_written(void)
{
    void *p;
    OK(cudaMalloc(&p, 512));
    OK(cudaFree(p));
}

static void chosen_calls_fail(void)
{
    void *p[3], *host;
    cudaStream_t s = stream();
    cudaEvent_t e;
    OK(cudaMalloc(&p[0], 16));
    CHECK(cudaMalloc(&p[1], 16) == cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p[2], 16));
    OK(cudaHostAlloc(&host, 16, 0));
    memset(host, 0, 16);
    CHECK(cudaMemcpyAsync(p[0], host, 16, cudaMemcpyHostToDevice, s) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(p[0], host, 16, cudaMemcpyHostToDevice, s) == cudaErrorInvalidValue);
    CHECK(cudaEventCreate(&e) == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    OK(cudaPeekAtLastError());
    OK(cudaStreamDestroy(s));
    OK(cudaFreeHost(host));
    OK(cudaFree(p[0]));
    OK(cudaFree(p[2]));
}

static void a_failed_device_stays_failed(void)
{
    void *p;
    OK(cudaMalloc(&p, 16));
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaFree(p) == cudaErrorLaunchFailure);
}

/* ---- planted ---- */

static void use_after_free(void)
{
    float *a = device_floats();
    cudaStream_t s = stream();
    OK(cudaFree(a));
    cudaMemsetAsync(a, 0, 4, s);
}

static void double_free(void)
{
    float *a = device_floats();
    OK(cudaFree(a));
    cudaFree(a);
}

static void foreign_free(void)
{
    float *a = device_floats();
    cudaFree(a + 1);
}

static void leak(void) { device_floats(); }

static void host_leak(void) { pinned_floats(); }

static void stream_leak(void) { stream(); }

static void event_leak(void)
{
    cudaEvent_t e;
    OK(cudaEventCreate(&e));
}

static void host_dereference(void)
{
    volatile float *a = device_floats();
    a[3] = 1;
}

static void freed_pinned(void)
{
    volatile float *a = pinned_floats();
    a[3] = 1;
    OK(cudaFreeHost((void *)(uintptr_t)a));
    a[3] = 1;
}

static void past_pinned(void)
{
    volatile float *a = pinned_floats();
    a[N] = 1;
}

static void uninitialised_copy(void)
{
    float *a = device_floats(), *back = pinned_floats();
    cudaStream_t s = stream();
    OK(cudaMemsetAsync(a, 0, N * sizeof(float) - 4, s));
    OK(cudaMemcpyAsync(back, a, N * sizeof(float), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
}

static void copy_past_the_end(void)
{
    float *a = device_floats();
    cudaMemsetAsync(a + 1, 0, N * sizeof(float), stream());
}

static void wrong_kind(void)
{
    float *a = device_floats(), *host = pinned_floats();
    CHECK(cudaMemcpyAsync(a, host, 4, cudaMemcpyDeviceToHost, stream()) == cudaErrorInvalidMemcpyDirection);
}

static void pageable_copy(void)
{
    static float host[N];
    OK(cudaMemcpyAsync(device_floats(), host, sizeof host, cudaMemcpyHostToDevice, stream()));
}

static void default_stream(void) { OK(cudaMemsetAsync(device_floats(), 0, 4, NULL)); }

static void allowed_default_stream(void)
{
    static float host[N], back[N];
    float *a = device_floats();
    cudasim_allow_default_stream(true);
    fill(host, 2);
    OK(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(back, a, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(back[9] == 11);
    OK(cudaFree(a));
}

static void source_changed(void)
{
    float *a = device_floats(), *host = pinned_floats();
    cudaStream_t s = stream();
    fill(host, 1);
    OK(cudaMemcpyAsync(a, host, N * sizeof(float), cudaMemcpyHostToDevice, s));
    host[77] = 5;
    OK(cudaStreamSynchronize(s));
}

static void destination_changed(void)
{
    float *a = device_floats(), *host = pinned_floats();
    cudaStream_t s = stream();
    OK(cudaMemsetAsync(a, 0, N * sizeof(float), s));
    OK(cudaMemcpyAsync(host, a, N * sizeof(float), cudaMemcpyDeviceToHost, s));
    host[77] = 5;
    OK(cudaStreamSynchronize(s));
}

static void free_while_pending(void)
{
    float *a = device_floats();
    OK(cudaMemsetAsync(a, 0, 4, stream()));
    OK(cudaFree(a));
}

static void free_pinned_while_pending(void)
{
    float *a = device_floats(), *host = pinned_floats();
    OK(cudaMemcpyAsync(a, host, 4, cudaMemcpyHostToDevice, stream()));
    OK(cudaFreeHost(host));
}

static void sync_where_forbidden(void)
{
    cudasim_forbid_sync(true);
    OK(cudaStreamSynchronize(stream()));
}

static void sync_where_allowed(void)
{
    cudaStream_t s = stream();
    cudasim_forbid_sync(true);
    cudaEvent_t e;
    OK(cudaEventCreate(&e));
    OK(cudaEventRecord(e, s));
    while (cudaEventQuery(e) == cudaErrorNotReady)
        ;
    cudasim_forbid_sync(false);
    OK(cudaStreamSynchronize(s));
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
}

static void malloc_where_forbidden(void)
{
    cudasim_forbid_sync(true);
    device_floats();
}

int main(int argc, char **argv)
{
    static const struct scenario all[] = {
        GOOD(round_trip),
        GOOD_IN(device_is_described, "CUDASIM_MEMORY=64M CUDASIM_DEVICES=2"),
        GOOD(registered_memory_is_pinned),
        GOOD(staging_is_used_again),
        GOOD(many_blocks_come_and_go),
        GOOD_IN(nothing_is_executed_without_data, "CUDASIM_DATA=0"),
        GOOD_IN(counters_are_written, "CUDASIM_STATS=/dev/null"),
        GOOD_IN(chosen_calls_fail, "CUDASIM_FAIL=malloc:2,memcpy:1+,event:1"),
        GOOD_IN(a_failed_device_stays_failed, "CUDASIM_FAIL=sync:1"),
        BUG(use_after_free, "0 bytes into the freed block of 4096 bytes"),
        BUG(double_free, "cudaFree of 0x7e"),
        BUG(foreign_free, "which is not the start of a live allocation: it is 4 bytes into the block"),
        BUG(leak, "leak: 1 device allocations, 4096 bytes"),
        BUG(host_leak, "leak: 1 blocks of pinned host memory"),
        BUG(stream_leak, "leak: 1 streams"),
        BUG(event_leak, "leak: 1 events"),
        BUG(host_dereference, "host code dereferenced the device pointer"),
        BUG(freed_pinned, "12 bytes into the freed pinned block"),
        BUG(past_pinned, "0 bytes past the pinned block"),
        BUG(uninitialised_copy, "reads uninitialised device memory: byte 4092 of 4096"),
        BUG(copy_past_the_end, "run 4 bytes past the block of 4096 bytes"),
        BUG(wrong_kind, "does not fit the kind"),
        BUG(pageable_copy, "pageable host memory"),
        BUG(default_stream, "legacy default stream"),
        GOOD(allowed_default_stream),
        BUG(source_changed, "changed the pinned source"),
        BUG(destination_changed, "changed the pinned destination"),
        BUG(free_while_pending, "while cudaMemsetAsync uses it"),
        BUG(free_pinned_while_pending, "while cudaMemcpyAsync uses it"),
        BUG(sync_where_forbidden, "cudaStreamSynchronize waits for the device where nothing should wait"),
        GOOD(sync_where_allowed),
        BUG(malloc_where_forbidden, "cudaMalloc may wait"),
    };
    return scenarios_main(argc, argv, all, sizeof all / sizeof *all);
}
