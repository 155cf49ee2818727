/* SPDX-License-Identifier: MIT */
/*
 * What a test may ask of the simulator beside CUDA's own functions. A test that also runs on a real device finds them
 * by dlsym(RTLD_DEFAULT, "cudasim_...") and does without where there are none.
 *
 * Environment: CUDASIM_SEED, CUDASIM_MEMORY=64M (of the device), CUDASIM_FAIL=malloc:5,launch:2+ (that call fails;
 * with + the later ones too; kinds: malloc hostalloc memcpy memset launch kernel event stream sync gemm nccl),
 * CUDASIM_DATA=0 (nothing is executed, all is checked and counted), CUDASIM_STATS=file (counters as JSON at the end),
 * CUDASIM_TRACE=1 (a line for each operation that runs), CUDASIM_LEAKS=0 or always (a
 * process that fails is not asked else), CUDASIM_DEFAULT_STREAM=1 (allowed),
 * CUDASIM_NCCL_TIMEOUT=seconds, CUDASIM_DEVICES=8 (how many a process sees), CUDASIM_MULTIPROCESSORS=4.
 */
#ifndef CUDASIM_CUDASIM_H
#define CUDASIM_CUDASIM_H

#include <stdbool.h>
#include <stdint.h>

struct cudasim_counters {
    uint64_t calls, call_ns; /* of the API, without the time in which operations ran */
    uint64_t launches, kernel_threads, warp_instructions;
    uint64_t gemms, gemm_flops;
    uint64_t collectives, collective_bytes; /* what this rank sends */
    uint64_t copies, copy_bytes, memsets;
    uint64_t allocations, allocated_bytes, allocated_peak_bytes, host_allocations;
    uint64_t synchronisations, events_recorded, events_waited_for;
};

void cudasim_get_counters(struct cudasim_counters *counters);
int cudasim_reports(void);                       /* so far */
void cudasim_forbid_sync(bool is_forbidden);     /* until the next call: what waits for the device is reported */
void cudasim_allow_default_stream(bool allowed); /* else its use is reported */

#endif
