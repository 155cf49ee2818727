/* SPDX-License-Identifier: MIT */
/* Each planted bug of a kernel (ptx_checks.cu) is reported, with thread and line; its good twin is silent. */
#include "ptx_checks.h"
#include "scenario.h"

#include <string.h>

static void run(const char *name, int bad)
{
    cudaStream_t stream;
    float *p, *q;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc((void **)&p, 63 * sizeof *p));
    OK(cudaMalloc((void **)&q, 64 * sizeof *q));
    OK(cudaMemsetAsync(p, 0, 63 * sizeof *p, stream));
    OK(cudaMemsetAsync(q, 0, 32 * sizeof *q, stream));
    if (!strcmp(name, "misaligned")) OK(cudaMemsetAsync(q, 0, 64 * sizeof *q, stream));
    ptx_launch_check(name, bad, p, q, stream);
    OK(cudaGetLastError());
    OK(cudaStreamSynchronize(stream));
    OK(cudaFree(p));
    OK(cudaFree(q));
    OK(cudaStreamDestroy(stream));
}

static void use_after_free(void)
{
    cudaStream_t stream;
    float *p;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc((void **)&p, 63 * sizeof *p));
    OK(cudaFree(p));
    ptx_launch_check("read_only_path", 0, p, p, stream);
    OK(cudaStreamSynchronize(stream));
}

static void host_pointer(void)
{
    static float host[64];
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ptx_launch_check("read_only_path", 0, host, host, stream);
    OK(cudaStreamSynchronize(stream));
}

#define ALL(X)                                                                                                         \
    X(out_of_bounds, "kernel out_of_bounds, block (1,0,0), thread (31,0,0), ptx_checks.cu:10010: write of 4 bytes")    \
    X(null_pointer, "thread (0,0,0), ptx_checks.cu:10020: write of 4 bytes through a null pointer (0x8)")              \
    X(misaligned, "kernel misaligned, block (0,0,0), thread (0,0,0), ptx_checks.cu:10030: misaligned: 16 bytes")       \
    X(uninitialised, "ptx_checks.cu:10040: read of uninitialised device memory")                                       \
    X(shared_uninitialised, "thread (23,0,0), ptx_checks.cu:10050: read of uninitialised shared memory at offset")     \
    X(shared_bounds, "thread (63,0,0), ptx_checks.cu:10060: write of 4 bytes outside of shared memory: behind")        \
    X(local_bounds, "thread (7,0,0), ptx_checks.cu:10070: read of 4 bytes outside of the thread's local memory")       \
    X(local_uninitialised, "thread (0,0,0), ptx_checks.cu:10080: read of uninitialised local memory")                  \
    X(race_of_warps, "race: a ")                                                                                       \
    X(race_in_a_warp, "ptx_checks.cu:10100: race: a read of shared memory at offset")                                  \
    X(race_by_reuse, "ptx_checks.cu:10110: race: a write of shared memory at offset")                                  \
    X(race_in_one_store, "ptx_checks.cu:10120: race: thread ")                                                         \
    X(race_of_half_warps, "ptx_checks.cu:10130: race: a read of shared memory at offset")                              \
    X(race_with_atomics, "thread (3,0,0), ptx_checks.cu:10140: race: a read of shared memory")                         \
    X(race_of_named_barriers, "ptx_checks.cu:10150: race: a read of shared memory at offset")                          \
    X(blocks_write_one_place, "ptx_checks.cu:10160: conflict between blocks: a write of 0x")                           \
    X(blocks_read_what_others_write, "conflict between blocks: a ")                                                    \
    X(atomics_mixed, "ptx_checks.cu:10180: conflict between blocks: ")                                                 \
    X(last_block, "ptx_checks.cu:10190: conflict between blocks: a read of 0x")                                        \
    X(read_only_path, "ptx_checks.cu:10200: a read by the read-only path")                                             \
    X(neighbours_in_a_word, "ptx_checks.cu:10210: conflict between blocks: a write of 0x")                             \
    X(divergent_barrier, "divergent barrier: lanes 0x")                                                                \
    X(barriers_of_warps_differ, "divergent barrier: other warps of the block wait at ptx_checks.cu:102")               \
    X(barrier_without_all, "ptx_checks.cu:10260: deadlock: the warp waits at barrier 3")                               \
    X(exited_threads, "ptx_checks.cu:10270: the mask 0xffffffff names lanes that have exited: 0x00000080")             \
    X(mask_without_itself, "thread (15,0,0), ptx_checks.cu:10280: the mask 0x00007fff does not name the thread")       \
    X(lanes_that_are_not_there, "ptx_checks.cu:10290: shfl reads lane 16, which is not among the lanes here")          \
    X(lanes_that_never_come,                                                                                           \
      "ptx_checks.cu:10300: deadlock in a warp: lanes 0x0000ffff wait here for lanes 0xffff0000")                      \
    X(syncwarp_in_branches, "ptx_checks.cu:10310: race: a read of shared memory at offset")                            \
    X(copy_not_waited_for, "ptx_checks.cu:10320: a read of shared memory at offset")                                   \
    X(copy_without_barrier, "ptx_checks.cu:10330: race: a read of shared memory at offset")                            \
    X(wait_for_too_few, "ptx_checks.cu:10340: a read of shared memory at offset")                                      \
    X(endless, "endless loop?")                                                                                        \
    X(assertion, "thread (33,0,0), ptx_checks.cu:10360: the assertion '!(bad && threadIdx.x == 33)' does")             \
    X(bounded, "a block of 64 threads, where __launch_bounds__ allows 32")

#define FUNCTIONS(name, report)                                                                                        \
    static void name##_bad(void) { run(#name, 1); }                                                                    \
    static void name##_good(void) { run(#name, 0); }
ALL(FUNCTIONS)
static void lock_in_a_warp(void) { run("lock_in_a_warp", 0); }

int main(int argc, char **argv)
{
#define BUDGET "CUDASIM_BUDGET=300000"
#define SCENARIOS(name, report)                                                                                        \
    {#name, name##_bad, report, BUDGET, 0}, {#name "_seed_1", name##_bad, report, BUDGET " CUDASIM_SEED=1", 0},        \
        {#name "_good", name##_good, NULL, BUDGET, 0},                                                                 \
        {#name "_good_seed_2", name##_good, NULL, BUDGET " CUDASIM_SEED=2", 0},
    static const struct scenario all[] = {
        ALL(SCENARIOS){"lock_in_a_warp", lock_in_a_warp, NULL, BUDGET, 0},
        {"use_after_free", use_after_free, "ptx_checks.cu", NULL, 0},
        {"use_after_free_is_named", use_after_free, "after it was freed", NULL, 0},
        {"host_pointer", host_pointer, "which is not device memory (a pointer of the host?)", NULL, 0},
    };
    return scenarios_main(argc, argv, all, sizeof all / sizeof *all);
}
