/* SPDX-License-Identifier: MIT */
/*
 * The simulated GPU: what the fake libraries share. See docs/adr/0017-a-simulator-of-cuda.md.
 *
 *     memory.c     device addresses, shadow bytes, allocations, pinned memory
 *     report.c     reports and the end of the process
 *     ptx_*.c      modules out of PTX text, and the interpreter of kernels
 *     stream.c     streams, events, operations, who must come after whom
 *     runtime_*.c  libcudart.so.13: each function with the real header's signature
 *     lt.c, nccl.c, nvml.c, driver.c  the other libraries
 *
 * There is one device a process, hence process-wide state, as in the real runtime; one mutex (sim_lock) guards it.
 *
 * Device addresses [SIM_BASE, SIM_BASE + SIM_BYTES) are never readable for the host: a touch is a report. The data live
 * in an alias mapping. Each byte has a shadow byte.
 */
#ifndef CUDASIM_SIM_H
#define CUDASIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_BASE UINT64_C(0x7d0000000000)
#define SIM_BYTES (UINT64_C(1) << 34)            /* address space, not memory: pages come when they are used */
#define SIM_SHARED_BASE UINT64_C(0x7c0000000000) /* generic addresses of a block's shared memory */
#define SIM_LOCAL_BASE UINT64_C(0x7b0000000000)  /* and of a thread's local memory */
enum sim_shadow { SIM_UNMAPPED, SIM_UNINITIALISED, SIM_INITIALISED, SIM_FREED };
enum { SIM_EXIT_CODE = 86 };

/* ---- report.c: a report is one line "cudasim: ..." on stderr; with one the process ends with SIM_EXIT_CODE ---- */
void sim_report(const char *format, ...) __attribute__((format(printf, 1, 2)));        /* goes on */
void sim_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn)); /* nothing sensible can follow */
int sim_reports(void);

/* ---- memory.c ---- */
extern uint8_t *sim_alias, *sim_shadow; /* byte of device address a: sim_alias[a - SIM_BASE] */
static inline bool sim_is_device(uint64_t address) { return address - SIM_BASE < SIM_BYTES; }
/* The live allocation that holds the address: its base (0: none) and size. */
uint64_t sim_allocation(uint64_t address, uint64_t *bytes);

/* What one operation read and wrote: ranges per allocation, for the order of streams. Grows; sim_access_release. */
struct sim_range {
    uint64_t base, read_from, read_to, write_from, write_to; /* base: of the allocation; empty where from >= to */
};
struct sim_access {
    struct sim_range *ranges;
    int n, capacity;
};
void sim_access_add(struct sim_access *access, uint64_t address, uint64_t bytes, bool is_write);
void sim_access_release(struct sim_access *access);
/* For library calls: checks [address, +bytes) as a kernel's access would be checked, records it, returns the alias. */
void *sim_touch(struct sim_access *access, const void *device_pointer, uint64_t bytes, bool reads, bool writes,
                const char *who);

/* ---- ptx_*.c ---- */
struct ptx_module;
struct ptx_function;
struct sim_dim {
    unsigned x, y, z;
};
struct ptx_module *ptx_module_parse(const char *text,
                                    size_t bytes); /* NULL never: what is unknown is named by sim_die */
struct ptx_function *ptx_module_function(struct ptx_module *m, const char *name);
/* Device variables (__device__, __constant__): the runtime allocates them. */
int ptx_module_variables(const struct ptx_module *m);
const char *ptx_module_variable(struct ptx_module *m, int i, uint64_t *bytes, uint64_t *align, const void **initial);
void ptx_module_place(struct ptx_module *m, int i, uint64_t address);
void ptx_module_free(struct ptx_module *m);

int ptx_function_parameters(const struct ptx_function *f);
void ptx_function_parameter(const struct ptx_function *f, int i, size_t *offset, size_t *bytes);
size_t ptx_function_static_shared(const struct ptx_function *f);

struct ptx_counters {
    uint64_t threads, warp_instructions, global_bytes_read, global_bytes_written;
};
struct ptx_launch {
    struct ptx_function *function;
    struct sim_dim grid, block;
    size_t dynamic_shared;
    const void *parameters; /* packed as ptx_function_parameter says */
    uint64_t seed;          /* order of blocks and warps */
};
/* Runs all blocks. Reports what a checker would; access gets what was read and written. */
void ptx_run(const struct ptx_launch *launch, struct sim_access *access, struct ptx_counters *counters);

#endif
