/* SPDX-License-Identifier: MIT */
/*
 * libcuda.so.1 for machines without a driver: enough for the real cuDNN to build plans. It compiles kernels for a GPU
 * that is described to it, and gives them to the driver, which takes them and does nothing; all else is refused, and
 * there is no GPU.
 */
#include <cuda.h>

static char taken; /* what handles point to */

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                           unsigned n_jit, CUlibraryOption *options, void **values, unsigned n)
{
    (void)jit_options, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
    if (!code) return CUDA_ERROR_INVALID_VALUE;
    *library = (CUlibrary)&taken;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    if ((void *)library != &taken || !name) return CUDA_ERROR_INVALID_HANDLE;
    *kernel = (CUkernel)&taken;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    if ((void *)kernel != &taken) return CUDA_ERROR_INVALID_HANDLE;
    *function = (CUfunction)&taken;
    return CUDA_SUCCESS;
}

/* A kernel that wants more shared memory than usual asks for it. */
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    (void)attribute, (void)value, (void)device;
    return (void *)kernel == &taken ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    return (void *)library == &taken ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuDeviceGetCount(int *n)
{
    *n = 0;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    *text = error == CUDA_SUCCESS ? "no error" : "there is no driver";
    return CUDA_SUCCESS;
}

/* Looked up, and called only where there is a GPU. */
#define REFUSED(X)                                                                                                     \
    X(cuCtxGetCurrent)                                                                                                 \
    X(cuCtxGetLimit)                                                                                                   \
    X(cuCtxPopCurrent)                                                                                                 \
    X(cuCtxPushCurrent)                                                                                                \
    X(cuDeviceGet)                                                                                                     \
    X(cuKernelGetAttribute)                                                                                            \
    X(cuLaunchCooperativeKernel)                                                                                       \
    X(cuLaunchKernel)                                                                                                  \
    X(cuLaunchKernelEx)                                                                                                \
    X(cuLibraryLoadFromFile)                                                                                           \
    X(cuLinkAddData)                                                                                                   \
    X(cuLinkComplete)                                                                                                  \
    X(cuLinkCreate)                                                                                                    \
    X(cuLinkDestroy)                                                                                                   \
    X(cuOccupancyMaxPotentialClusterSize)                                                                              \
    X(cuStreamGetCtx)

#define X(name)                                                                                                        \
    CUresult refused_##name(void) __asm__(#name);                                                                      \
    CUresult refused_##name(void) { return CUDA_ERROR_STUB_LIBRARY; }
REFUSED(X)
#undef X
