/* SPDX-License-Identifier: MIT */
/* libcudart: the device and its properties, versions, errors. */
#include "runtime.h"
#include "stream.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 13000, FIRST_BUS = 10, SHARED_OPTIN = 227 << 10 };

static _Thread_local int last_error, current_device;
static int device_error; /* what an operation failed with; for ever */
static bool is_sync_forbidden, is_default_stream_allowed;

/* ---- what all calls share ---- */

int runtime_done(int error)
{
    if (device_error) error = device_error;
    if (error) last_error = error;
    return error;
}

void runtime_device_failed(int error) { device_error = device_error ? device_error : error; }

bool runtime_device_has_failed(void) { return device_error != 0; }

void runtime_waits(const char *function)
{
    sim_counters.synchronisations++;
    if (is_sync_forbidden) sim_report("%s waits for the device where nothing should wait", function);
}

void runtime_may_wait(const char *function)
{
    if (is_sync_forbidden) sim_report("%s may wait for the device, where nothing should wait", function);
}

void cudasim_forbid_sync(bool is_forbidden)
{
    SIM_CALL;
    is_sync_forbidden = is_forbidden;
}

void cudasim_allow_default_stream(bool allowed)
{
    SIM_CALL;
    is_default_stream_allowed = allowed;
}

/* True the first time that a function is named. */
static bool is_news(const char *function)
{
    static const char *named[64];
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (!named[i] || !strcmp(named[i], function)) {
            bool is_new = !named[i];
            named[i] = function;
            return is_new;
        }
    return false;
}

struct sim_stream *runtime_stream(const char *function, const void *handle)
{
    if (handle == cudaStreamPerThread) sim_die("%s: cudaStreamPerThread is not simulated; create a stream", function);
    if (!handle || handle == cudaStreamLegacy) {
        const char *text = getenv("CUDASIM_DEFAULT_STREAM");
        if (!is_default_stream_allowed && (!text || !strcmp(text, "0")) && is_news(function))
            sim_report(
                "%s uses the legacy default stream, which waits for others and makes them wait; give it a stream",
                function);
        return stream_default();
    }
    if (!stream_is(handle)) sim_die("%s: %p is not a stream, or was destroyed", function, handle);
    return (struct sim_stream *)(uintptr_t)handle;
}

/* ---- devices ---- */

/*
 * A process uses one device, but may see more (CUDASIM_DEVICES, 8): its launcher then says which is its own. They have
 * nothing of their own but a number: memory and streams are the process's.
 */
static int devices(void)
{
    const char *text = getenv("CUDASIM_DEVICES");
    return text && *text ? (int)strtol(text, NULL, 10) : 8;
}

static bool is_device(int device) { return device >= 0 && device < devices(); }

int runtime_device(void) { return current_device; }

cudaError_t cudaGetDeviceCount(int *count)
{
    SIM_CALL;
    *count = devices();
    return runtime_done(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    SIM_CALL;
    if (!is_device(device)) return runtime_done(cudaErrorInvalidDevice);
    current_device = device;
    return runtime_done(cudaSuccess);
}

cudaError_t cudaGetDevice(int *device)
{
    SIM_CALL;
    *device = current_device;
    return runtime_done(cudaSuccess);
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    SIM_CALL;
    (void)device_flags, (void)flags;
    return runtime_done(is_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    SIM_CALL;
    (void)flags;
    return runtime_done(cudaSuccess);
}

static int multiprocessors(void)
{
    const char *text = getenv("CUDASIM_MULTIPROCESSORS");
    return text && *text ? (int)strtol(text, NULL, 10) : sim_options.has_data ? 4 : 132;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    SIM_CALL;
    if (!is_device(device)) return runtime_done(cudaErrorInvalidDevice);
    *p = (struct cudaDeviceProp){
        .name = "CUDA simulator",
        .totalGlobalMem = sim_options.memory_bytes,
        .sharedMemPerBlock = 48 << 10,
        .regsPerBlock = 65536,
        .warpSize = 32,
        .memPitch = 0x7fffffff,
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {0x7fffffff, 65535, 65535},
        .totalConstMem = 64 << 10,
        .major = 9,
        .textureAlignment = 512,
        .multiProcessorCount = multiprocessors(),
        .canMapHostMemory = 1,
        .concurrentKernels = 1,
        .ECCEnabled = 1,
        .pciBusID = FIRST_BUS + device,
        .asyncEngineCount = 3,
        .unifiedAddressing = 1,
        .memoryBusWidth = 6144,
        .l2CacheSize = 50 << 20,
        .maxThreadsPerMultiProcessor = 2048,
        .streamPrioritiesSupported = 1,
        .sharedMemPerMultiprocessor = SHARED_OPTIN + 1024,
        .regsPerMultiprocessor = 65536,
        .sharedMemPerBlockOptin = SHARED_OPTIN,
        .maxBlocksPerMultiProcessor = 32,
        .reservedSharedMemPerBlock = 1024,
        .hostRegisterSupported = 1,
    };
    return runtime_done(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    SIM_CALL;
    if (!is_device(device)) return runtime_done(cudaErrorInvalidDevice);
    switch ((int)attribute) {
    case cudaDevAttrMultiProcessorCount: *value = multiprocessors(); break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = SHARED_OPTIN; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = SHARED_OPTIN + 1024; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrL2CacheSize: *value = 50 << 20; break;
    case cudaDevAttrClockRate: *value = 1980000; break;
    case cudaDevAttrMemoryClockRate: *value = 2619000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 6144; break;
    case cudaDevAttrMemoryPoolsSupported: *value = 0; break;
    default: sim_die("cudaDeviceGetAttribute: attribute %d is not simulated", (int)attribute);
    }
    return runtime_done(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    SIM_CALL;
    char id[16];
    int n = snprintf(id, sizeof id, "0000:%02X:00.0", FIRST_BUS + device);
    if (!is_device(device) || length <= n) return runtime_done(cudaErrorInvalidValue);
    memcpy(text, id, (size_t)n + 1);
    return runtime_done(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_CALL;
    *least = 0;
    *greatest = -5;
    return runtime_done(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    SIM_CALL;
    runtime_waits(__func__);
    stream_wait_all();
    if (sim_must_fail("sync")) runtime_device_failed(cudaErrorLaunchFailure);
    return runtime_done(cudaSuccess);
}

cudaError_t cudaDeviceReset(void) { sim_die("cudaDeviceReset is not simulated: free what was allocated instead"); }

cudaError_t cudaDriverGetVersion(int *version)
{
    SIM_CALL;
    *version = VERSION;
    return runtime_done(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    SIM_CALL;
    *version = VERSION;
    return runtime_done(cudaSuccess);
}

/* ---- errors ---- */

cudaError_t cudaGetLastError(void)
{
    SIM_CALL;
    cudaError_t error = device_error ? (cudaError_t)device_error : (cudaError_t)last_error;
    last_error = 0;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    SIM_CALL;
    return device_error ? (cudaError_t)device_error : (cudaError_t)last_error;
}

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
#define E(name, text)                                                                                                  \
    {                                                                                                                  \
        name, #name, text                                                                                              \
    }
    E(cudaSuccess, "no error"),
    E(cudaErrorInvalidValue, "invalid argument"),
    E(cudaErrorMemoryAllocation, "out of memory"),
    E(cudaErrorInitializationError, "initialization error"),
    E(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    E(cudaErrorInvalidSymbol, "invalid device symbol"),
    E(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    E(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    E(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    E(cudaErrorInvalidDeviceFunction, "invalid device function"),
    E(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    E(cudaErrorInvalidDevice, "invalid device ordinal"),
    E(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    E(cudaErrorNotReady, "device not ready"),
    E(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    E(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    E(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    E(cudaErrorLaunchFailure, "unspecified launch failure"),
    E(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    E(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    E(cudaErrorNotSupported, "operation not supported"),
    E(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    E(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    E(cudaErrorUnknown, "unknown error"),
#undef E
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error) return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error) return errors[i].text;
    return "unrecognized error code";
}
