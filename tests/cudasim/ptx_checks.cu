/* SPDX-License-Identifier: MIT */
/*
 * Kernels with a planted bug each, which is there where `bad` is set; without it they are right. The line that is to
 * be named has a number of its own by #line.
 */
#include "ptx_checks.h"

#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <cassert>
#include <cstring>

#define ALL 0xffffffffu

/* ---- bounds, initialisation ---- */
__global__ void out_of_bounds(float *p, float *, int bad)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 63 + bad)
#line 10010
        p[i] = 1;
}
__global__ void null_pointer(float *p, float *, int bad)
{
    p = (float *)((size_t)p * (1 - bad));
#line 10020
    p[threadIdx.x + 2] = 1;
}
__global__ void misaligned(float *p, float *q, int bad)
{
#line 10030
    float4 v = *(float4 *)(q + 4 * threadIdx.x % 32 + bad);
    p[threadIdx.x % 63] = 0;
    if (v.x + v.y + v.z + v.w == 77) p[0] = v.w;
}
__global__ void uninitialised(float *p, float *q, int bad)
{
    if (!bad && threadIdx.x < 32) q[threadIdx.x + 32] = 1;
    __syncthreads();
#line 10040
    if (threadIdx.x < 32) p[threadIdx.x] = q[threadIdx.x + 32];
}
__global__ void shared_uninitialised(float *p, float *, int bad)
{
    __shared__ float s[64];
    s[threadIdx.x] = 1;
    if (bad) __syncthreads();
    __shared__ float t[64];
    if (!bad || threadIdx.x != 40) t[threadIdx.x] = 2;
    __syncthreads();
#line 10050
    if (threadIdx.x < 63) p[threadIdx.x] = t[63 - threadIdx.x] + s[threadIdx.x];
}
__global__ void shared_bounds(float *p, float *, int bad)
{
    __shared__ float s[64], t[64];
    t[threadIdx.x] = 0;
#line 10060
    s[threadIdx.x + bad] = 1;
    __syncthreads();
    if (threadIdx.x < 63) p[threadIdx.x] = s[threadIdx.x] + t[threadIdx.x];
}
__global__ void local_bounds(float *p, float *, int bad)
{
    float local[8];
    for (int k = 0; k < 8; k++) local[(k + threadIdx.x) % 8] = k;
#line 10070
    p[threadIdx.x % 32] = local[threadIdx.x % 8 + bad];
}
__global__ void local_uninitialised(float *p, float *, int bad)
{
    float local[8];
    for (int k = bad; k < 8; k++) local[(k + blockIdx.x) % 8] = k;
#line 10080
    p[threadIdx.x % 32] = local[threadIdx.x % 8];
}

/* ---- races in a block ---- */
__global__ void race_of_warps(float *p, float *, int bad)
{
    __shared__ float s[64];
    s[threadIdx.x] = threadIdx.x;
    if (!bad) __syncthreads();
    if (bad) __syncwarp();
#line 10090
    if (threadIdx.x < 63) p[threadIdx.x] = s[(threadIdx.x + 1) % 64];
}
__global__ void race_in_a_warp(float *p, float *, int bad)
{
    __shared__ float s[64];
    s[threadIdx.x] = threadIdx.x;
    if (!bad) __syncwarp();
#line 10100
    if (threadIdx.x < 63) p[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void race_by_reuse(float *p, float *, int bad)
{
    __shared__ float s[64];
    float sum = 0;
    for (int k = 0; k < 3; k++) {
#line 10110
        s[threadIdx.x] = threadIdx.x + k;
        __syncthreads();
        sum += s[(threadIdx.x + 32) % 64];
        if (!bad) __syncthreads();
    }
    if (threadIdx.x < 63) p[threadIdx.x] = sum;
}
__global__ void race_in_one_store(float *p, float *, int bad)
{
    __shared__ float s[64];
#line 10120
    s[threadIdx.x / 2] = bad ? threadIdx.x : threadIdx.x / 2;
    __syncthreads();
    if (threadIdx.x < 32) p[threadIdx.x] = s[threadIdx.x];
}
__global__ void race_of_half_warps(float *p, float *, int bad)
{
    __shared__ float s[64];
    unsigned half = threadIdx.x % 32 < 16 ? 0xffffu : 0xffff0000u;
    s[threadIdx.x] = threadIdx.x;
    __syncwarp(half);
#line 10130
    if (threadIdx.x < 63) p[threadIdx.x] = s[threadIdx.x ^ (bad ? 16 : 8)];
}
__global__ void race_with_atomics(unsigned *p, float *, int bad)
{
    __shared__ unsigned s;
    if (!threadIdx.x) s = 0;
    __syncthreads();
    atomicAdd(&s, 1u);
    if (!bad) __syncthreads();
#line 10140
    if (threadIdx.x == 3) p[0] = s;
}
__global__ void race_of_named_barriers(float *p, float *, int bad)
{
    __shared__ float s[96];
    unsigned warp = threadIdx.x / 32;
    if (warp < 2) s[threadIdx.x] = threadIdx.x;
    if (warp == 0) asm volatile("bar.sync 1, 64;" ::: "memory");
    if (warp == 1 && bad) asm volatile("bar.sync 2, 64;" ::: "memory");
    if (warp == 1 && !bad) asm volatile("bar.sync 1, 64;" ::: "memory");
    if (warp == 2 && bad) asm volatile("bar.sync 1, 64;" ::: "memory");
    if (warp == 3 && bad) asm volatile("bar.sync 2, 64;" ::: "memory");
    if (warp == 0)
#line 10150
        p[threadIdx.x] = s[threadIdx.x + 32];
}

/* ---- blocks ---- */
__global__ void blocks_write_one_place(float *p, float *, int bad)
{
#line 10160
    if (threadIdx.x == 0) p[bad ? 5 : blockIdx.x] = blockIdx.x;
}
__global__ void blocks_read_what_others_write(float *p, float *q, int bad)
{
    if (threadIdx.x < 16) q[blockIdx.x * 16 + threadIdx.x] = 2;
    __syncthreads();
#line 10170
    if (threadIdx.x < 16) p[blockIdx.x * 16 + threadIdx.x] = q[(blockIdx.x ^ bad) * 16 + threadIdx.x];
}
__global__ void atomics_mixed(float *p, float *, int bad)
{
    if (bad && blockIdx.x == 1)
#line 10180
        p[0] = 1;
    else
#line 10180
        atomicAdd(p, 1.0f);
}
__global__ void last_block(float *p, unsigned *count, int bad)
{
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        p[blockIdx.x] = blockIdx.x;
        if (!bad) __threadfence();
        is_last = atomicAdd(count, 1) == gridDim.x - 1;
    }
    __syncthreads();
    float sum = 0;
    if (is_last && threadIdx.x == 0) {
        for (int k = 0; k < gridDim.x; k++)
#line 10190
            sum += p[k];
        p[32] = sum;
    }
}
__global__ void read_only_path(float *p, float *q, int bad)
{
    q[threadIdx.x] = 3;
    __syncthreads();
#line 10200
    if (threadIdx.x < 63) p[threadIdx.x] = bad ? __ldg(q + threadIdx.x) : q[threadIdx.x];
}
__global__ void neighbours_in_a_word(unsigned short *p, unsigned char *q, int bad)
{
    /* three halves a block, and bytes in shared memory: nothing here is anybody else's */
    __shared__ unsigned char s[64];
    s[threadIdx.x] = threadIdx.x;
    if (threadIdx.x < 3) {
        unsigned i = blockIdx.x * 3 + threadIdx.x;
        p[i] = i;
        p[i] += s[threadIdx.x];
    }
    __syncwarp();
    if (threadIdx.x < 5)
#line 10210
        q[blockIdx.x * (5 - bad) + threadIdx.x] = s[threadIdx.x];
}

/* ---- barriers and masks ---- */
__global__ void divergent_barrier(float *p, float *, int bad)
{
    if (bad && threadIdx.x % 32 < 16)
#line 10220
        __syncthreads();
    else
#line 10230
        __syncthreads();
    p[threadIdx.x % 32] = 0;
}
__global__ void barriers_of_warps_differ(float *p, float *, int bad)
{
    if (bad && threadIdx.x < 32)
#line 10240
        asm volatile("bar.sync 0;");
    else
#line 10250
        asm volatile("bar.sync 0;");
    p[threadIdx.x % 32] = 0;
}
__global__ void barrier_without_all(float *p, float *, int bad)
{
    if (threadIdx.x < 32)
#line 10260
        asm volatile("bar.sync 3, 64;");
    if (threadIdx.x >= 32 && !bad) asm volatile("bar.sync 3, 64;");
    p[threadIdx.x % 32] = 0;
}
__global__ void exited_threads(float *p, float *, int bad)
{
    __shared__ float s[64];
    s[threadIdx.x] = 1;
    if (threadIdx.x % 32 == 7 || (threadIdx.x >= 32 && !bad)) return;
    __syncthreads();
#line 10270
    float v = __shfl_xor_sync(bad ? ALL : ALL & ~(1u << 7), s[threadIdx.x % 32], threadIdx.x % 32 == 6 ? 0 : 0);
    p[threadIdx.x % 32] = v;
}
__global__ void mask_without_itself(float *p, float *, int bad)
{
    float v = threadIdx.x;
    if (threadIdx.x % 32 < 16)
#line 10280
        v = __shfl_xor_sync(bad ? 0x7fff : 0xffff, v, 1);
    p[threadIdx.x % 32] = v;
}
__global__ void lanes_that_are_not_there(float *p, float *, int bad)
{
    float v = threadIdx.x;
    if (threadIdx.x % 32 < 16)
#line 10290
        v = __shfl_xor_sync(0xffff, v, bad ? 16 : 8);
    p[threadIdx.x % 32] = v;
}
__global__ void lanes_that_never_come(float *p, float *, int bad)
{
    float v = threadIdx.x;
    if (threadIdx.x % 32 < 16)
#line 10300
        v = __shfl_xor_sync(bad ? ALL : 0xffff, v, 1);
    else if (bad)
        __syncthreads();
    p[threadIdx.x % 32] = v;
}
__global__ void syncwarp_in_branches(float *p, float *, int bad)
{
    __shared__ float s[64];
    s[threadIdx.x] = threadIdx.x;
    if (threadIdx.x % 2) {
        __syncwarp();
        p[threadIdx.x] = s[threadIdx.x - 1];
    } else {
        if (!bad) __syncwarp();
#line 10310
        p[threadIdx.x] = s[threadIdx.x + 1];
        if (bad) __syncwarp();
    }
}

/* ---- asynchronous copies ---- */
__global__ void copy_not_waited_for(float *p, float *q, int bad)
{
    __shared__ __align__(16) float s[128];
    __pipeline_memcpy_async(s + 2 * threadIdx.x, q, 8);
    __pipeline_commit();
    if (!bad) __pipeline_wait_prior(0);
#line 10320
    p[threadIdx.x % 32] = s[2 * threadIdx.x];
}
__global__ void copy_without_barrier(float *p, float *q, int bad)
{
    __shared__ __align__(16) float s[256];
    __pipeline_memcpy_async(s + 4 * threadIdx.x, q, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    if (!bad) __syncthreads();
#line 10330
    p[threadIdx.x % 32] = s[(4 * threadIdx.x + 32) % 256];
}
__global__ void wait_for_too_few(float *p, float *q, int bad)
{
    __shared__ __align__(16) float s[2][256];
    for (int stage = 0; stage < 2; stage++) {
        __pipeline_memcpy_async(s[stage] + 4 * threadIdx.x, q, 16);
        __pipeline_commit();
    }
    __pipeline_wait_prior(1);
    float first = s[0][4 * threadIdx.x];
    if (!bad) __pipeline_wait_prior(0);
#line 10340
    p[threadIdx.x % 32] = s[1][4 * threadIdx.x] + first;
    __pipeline_wait_prior(0);
}

/* ---- ends ---- */
__global__ void endless(float *p, float *, int bad)
{
    volatile __shared__ int flag;
    if (threadIdx.x == 0) flag = bad;
    __syncthreads();
#line 10350
    while (flag) p[threadIdx.x % 32] = flag;
}
__global__ void assertion(float *p, float *, int bad)
{
    p[threadIdx.x % 32] = 0;
#line 10360
    assert(!(bad && threadIdx.x == 33));
}
__global__ void lock_in_a_warp(unsigned *p, float *, int bad)
{
    bool is_done = bad;
    while (!is_done)
        if (atomicCAS(p, 0u, 1u) == 0) {
            atomicAdd(p + 1, 1u);
            __threadfence();
            atomicExch(p, 0u);
            is_done = true;
        }
}
__global__ void __launch_bounds__(32) bounded(float *p, float *, int) { p[threadIdx.x % 32] = 0; }

extern "C" void ptx_launch_check(const char *name, int bad, void *p, void *q, cudaStream_t stream)
{
    struct {
        const char *name;
        void (*kernel)(float *, float *, int);
        int blocks, threads;
    } all[] = {
#define K(name, blocks, threads) {#name, (void (*)(float *, float *, int))name, blocks, threads},
        K(out_of_bounds, 2, 32) K(null_pointer, 1, 32) K(misaligned, 1, 32) K(uninitialised, 1, 64)
            K(shared_uninitialised, 1, 64) K(shared_bounds, 1, 64) K(local_bounds, 1, 32) K(local_uninitialised, 1, 32)
                K(race_of_warps, 1, 64) K(race_in_a_warp, 1, 64) K(race_by_reuse, 1, 64) K(race_in_one_store, 1, 64)
                    K(race_of_half_warps, 1, 64) K(race_with_atomics, 1, 64) K(race_of_named_barriers, 1, 128)
                        K(blocks_write_one_place, 8, 32) K(blocks_read_what_others_write, 2, 32) K(atomics_mixed, 3, 1)
                            K(last_block, 8, 32) K(read_only_path, 1, 64) K(neighbours_in_a_word, 3, 32)
                                K(divergent_barrier, 1, 32) K(barriers_of_warps_differ, 1, 64)
                                    K(barrier_without_all, 1, 64) K(exited_threads, 1, 64) K(mask_without_itself, 1, 32)
                                        K(lanes_that_are_not_there, 1, 32) K(lanes_that_never_come, 1, 32)
                                            K(syncwarp_in_branches, 1, 32) K(copy_not_waited_for, 1, 64)
                                                K(copy_without_barrier, 1, 64) K(wait_for_too_few, 1, 64)
                                                    K(endless, 1, 64) K(assertion, 1, 64) K(lock_in_a_warp, 1, 64)
                                                        K(bounded, 1, 32)};
    for (auto &k : all)
        if (!strcmp(k.name, name)) {
            int threads = bad && !strcmp(name, "bounded") ? 64 : k.threads;
            k.kernel<<<k.blocks, threads, 0, stream>>>((float *)p, (float *)q, bad);
        }
}
