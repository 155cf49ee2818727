/* SPDX-License-Identifier: MIT */
/*
 * The simulated GPU: what the fake libraries share. See docs/adr/0017-a-simulator-of-cuda.md.
 *
 *     setup.c      the environment, the start and the end of the process, failures on demand, counters
 *     report.c     reports
 *     memory.c     device addresses, shadow bytes, allocations
 *     host.c       pinned memory
 *     ptx_*.c      modules out of PTX text, and the interpreter of kernels
 *     order.c      who wrote and read which bytes last, and whether anything orders the next one after it
 *     stream.c     streams, events, operations
 *     runtime_*.c  libcudart.so.13: each function with the real header's signature
 *     lt*.c, nccl*.c, nvml.c, driver.c  the other libraries
 *
 * There is one device a process, hence process-wide state, as in the real runtime. One mutex guards it: SIM_CALL at the
 * head of each function of the API takes it, and nothing inside takes it again.
 *
 * Device addresses [SIM_BASE, SIM_BASE + SIM_BYTES) are never readable for the host: a touch is a report. The data live
 * in an alias mapping. Each byte has a shadow byte.
 */
#ifndef CUDASIM_SIM_H
#define CUDASIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_BASE UINT64_C(0x7e9000000000)        /* where the thread sanitizer, too, lets a program map memory */
#define SIM_BYTES (UINT64_C(1) << 38)            /* address space, not memory: pages come when they are used */
#define SIM_SHARED_BASE UINT64_C(0x7c0000000000) /* generic addresses of a block's shared memory */
#define SIM_LOCAL_BASE UINT64_C(0x7b0000000000)  /* and of a thread's local memory */
enum sim_shadow { SIM_UNMAPPED, SIM_UNINITIALISED, SIM_INITIALISED, SIM_FREED };
enum { SIM_EXIT_CODE = 86, SIM_STREAMS = 64 };

/* ---- report.c: a report is one line "cudasim: ..." on stderr; with one the process ends with SIM_EXIT_CODE ---- */
void sim_report(const char *format, ...) __attribute__((format(printf, 1, 2)));        /* goes on */
void sim_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn)); /* nothing sensible can follow */
int sim_reports(void);

/* ---- setup.c ---- */
struct sim_options {
    uint64_t seed;         /* CUDASIM_SEED, 0: only what is asked for runs, in the order asked for */
    uint64_t memory_bytes; /* CUDASIM_MEMORY=64M: of the device */
    bool has_data;         /* CUDASIM_DATA=0: nothing is executed, only checked and counted */
    bool is_traced;        /* CUDASIM_TRACE=1: a line for each operation that runs */
};
extern struct sim_options sim_options;
void sim_start(void);                 /* once a process, by whatever is called first; calling it again does nothing */
uint64_t sim_random(uint64_t *state); /* 64 bits; state: any number */
uint64_t sim_ns(void);                /* of the monotonic clock */
void *sim_alloc(size_t bytes);        /* zeroed, never NULL */
void *sim_grow(void *old, size_t bytes); /* realloc, never NULL */
void sim_bury(void *dead);               /* it stays, so that a use of it later is seen; the leak checker knows */
/* CUDASIM_FAIL=malloc:5,launch:2+ : is this call of that kind the 5th (or: the 2nd or a later one)? Counts the call. */
bool sim_must_fail(const char *kind);

/* ---- memory.c ---- */
extern uint8_t *sim_alias, *sim_shadow; /* byte of device address a: sim_alias[a - SIM_BASE]; without data: NULL */
static inline bool sim_is_device(uint64_t address) { return address - SIM_BASE < SIM_BYTES; }
/* The live allocation that holds the address: its base (0: none) and size. */
uint64_t sim_allocation(uint64_t address, uint64_t *bytes);
/* Where an address is, in words for a report: "4 bytes past the block of 256 bytes at 0x...". */
struct sim_words {
    char text[160];
};
struct sim_words sim_where(uint64_t address);
uint64_t sim_device_allocate(uint64_t bytes); /* address, 256-aligned, filled with 0xff; 0: the device is full */
void sim_device_release(uint64_t address);    /* of a live allocation's base; else sim_die */
uint64_t sim_device_used(void);               /* bytes */
void sim_memory_start(void);
void sim_memory_leaks(void); /* reports what is still allocated, but for what sim_device_keep named */
void sim_device_keep(uint64_t address);

/*
 * What one operation reads and writes. Each access is compared with the last ones to the same bytes (order.c). A zeroed
 * one stands for no operation: its accesses are not compared. order.c alone looks inside.
 */
struct sim_access {
    const char *name;      /* of the operation, for reports */
    const uint64_t *clock; /* what is known to be before it: the position of each stream */
    uint32_t id;
    uint32_t reported_id; /* of the last operation that a report named beside this one */
};
void sim_access_add(struct sim_access *access, uint64_t address, uint64_t bytes, bool is_write);
/* Ends the process unless [pointer, +bytes) lies inside one live allocation. Returns the address. */
uint64_t sim_check(const void *device_pointer, uint64_t bytes, const char *who);
/*
 * For library calls: checks [address, +bytes) as a kernel's access would be checked (inside one live allocation,
 * initialised if read), records it, marks it initialised if written, returns the alias; NULL without data.
 */
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
void ptx_forget(uint64_t address, uint64_t bytes); /* the block of device memory was freed */
/* Runs all blocks. Reports what a checker would; access gets what was read and written. */
void ptx_run(const struct ptx_launch *launch, struct sim_access *access, struct ptx_counters *counters);

#endif
