/* SPDX-License-Identifier: MIT */
/*
 * The environment, the start and the end of the process, failures on demand, counters.
 *
 * The end: with reports the process ends with SIM_EXIT_CODE, whatever it wanted to say. Leaks are a report only where
 * it would have ended with 0: a program that fails need not clean up.
 */
#include "cudasim.h"
#include "host.h"
#include "lt.h"
#include "order.h"
#include "runtime.h"
#include "sim.h"
#include "stream.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct sim_options sim_options;
struct cudasim_counters sim_counters;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction former_handler;
static pid_t pid;

uint64_t sim_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t sim_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void *sim_alloc(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) sim_die("the simulator itself is out of memory");
    return p;
}

void *sim_grow(void *old, size_t bytes)
{
    void *p = realloc(old, bytes);
    if (!p) sim_die("the simulator itself is out of memory");
    return p;
}

void sim_bury(void *dead)
{
    static struct grave {
        void *dead;
        struct grave *next;
    } * graves;
    struct grave *g = sim_alloc(sizeof *g);
    *g = (struct grave){dead, graves};
    graves = g;
}

static bool flag(const char *name, bool otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strcmp(text, "0") != 0 : otherwise;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    const char *units = "KMGT", *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        value <<= 10 * (unit - units + 1);
        end++;
    }
    if (*end) sim_die("%s=%s is not a number (of bytes: K, M, G, T may follow)", name, text);
    return value;
}

/* ---- the end ---- */

static void write_counters(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) sim_die("CUDASIM_STATS: cannot write %s", path);
    const struct cudasim_counters *c = &sim_counters;
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {
#define C(field) {#field, c->field}
        C(calls),
        C(call_ns),
        C(launches),
        C(kernel_threads),
        C(warp_instructions),
        C(gemms),
        C(gemm_flops),
        C(collectives),
        C(collective_bytes),
        C(copies),
        C(copy_bytes),
        C(memsets),
        C(allocations),
        C(allocated_bytes),
        C(allocated_peak_bytes),
        C(host_allocations),
        C(synchronisations),
        C(events_recorded),
        C(events_waited_for),
#undef C
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fprintf(file, "%s\"%s\": %llu", i ? ", " : "{", all[i].name, (unsigned long long)all[i].value);
    fprintf(file, ", \"reports\": %d}\n", sim_reports());
    fclose(file);
}

static void at_end(int status, void *unused)
{
    (void)unused;
    if (getpid() != pid) return; /* a forked child: the device is its parent's */
    const char *leaks = getenv("CUDASIM_LEAKS");
    if (leaks && strcmp(leaks, "always") == 0) status = 0;
    if (!status && flag("CUDASIM_LEAKS", true)) {
        sim_memory_leaks();
        host_leaks();
        stream_leaks();
        lt_leaks();
        if (nccl_leaks) nccl_leaks();
    }
    const char *path = getenv("CUDASIM_STATS");
    if (path && *path) write_counters(path);
    if (sim_reports()) {
        fflush(NULL);
        _exit(SIM_EXIT_CODE);
    }
}

static void on_segv(int signal_number, siginfo_t *info, void *context)
{
    uint64_t address = (uint64_t)(uintptr_t)info->si_addr;
    if (sim_is_device(address))
        sim_die("host code dereferenced the device pointer 0x%llx: %s", (unsigned long long)address,
                sim_where(address).text);
    struct sim_words words;
    if (host_where(address, &words)) sim_die("host code touched 0x%llx: %s", (unsigned long long)address, words.text);
    /* not ours: whoever was there before answers, or the default does when the instruction is run again */
    if (former_handler.sa_flags & SA_SIGINFO)
        former_handler.sa_sigaction(signal_number, info, context);
    else
        sigaction(SIGSEGV, &former_handler, NULL);
}

/* ---- the start ---- */

static void start(void)
{
    pid = getpid();
    sim_options.seed = number("CUDASIM_SEED", 0);
    sim_options.has_data = flag("CUDASIM_DATA", true);
    sim_options.is_traced = flag("CUDASIM_TRACE", false);
    sim_options.memory_bytes = number("CUDASIM_MEMORY", sim_options.has_data ? UINT64_C(8) << 30 : UINT64_C(141) << 30);
    if (sim_options.memory_bytes > SIM_BYTES / 4 * 3)
        sim_die("CUDASIM_MEMORY: at most %llu GiB", (unsigned long long)(SIM_BYTES / 4 * 3 >> 30));
    sim_memory_start();
    order_start();
    struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, &former_handler);
    on_exit(at_end, NULL);
}

void sim_start(void) { pthread_once(&once, start); }

void sim_lock(void) { pthread_mutex_lock(&mutex); }

void sim_unlock(void) { pthread_mutex_unlock(&mutex); }

void sim_wait(pthread_cond_t *condition) { pthread_cond_wait(condition, &mutex); }

static _Thread_local uint64_t call_began_ns, ran_before_ns;

_Thread_local bool sim_in_host_function;

struct sim_call sim_call_begin(const char *function)
{
    if (sim_in_host_function)
        sim_die("%s is called inside a function of cudaLaunchHostFunc: that must not call CUDA", function);
    sim_start();
    sim_lock();
    sim_counters.calls++;
    call_began_ns = sim_ns();
    ran_before_ns = stream_ran_ns();
    return (struct sim_call){.function = function};
}

void sim_call_end(struct sim_call *call)
{
    (void)call;
    uint64_t whole_ns = sim_ns() - call_began_ns, ran_ns = stream_ran_ns() - ran_before_ns;
    sim_counters.call_ns += whole_ns > ran_ns ? whole_ns - ran_ns : 0;
    sim_unlock();
}

/* ---- failures on demand ---- */

bool sim_must_fail(const char *kind)
{
    static struct {
        const char *kind; /* of the list below */
        uint64_t calls;
    } counts[] = {{"malloc", 0}, {"hostalloc", 0}, {"memcpy", 0}, {"memset", 0}, {"launch", 0}, {"kernel", 0},
                  {"event", 0},  {"stream", 0},    {"sync", 0},   {"gemm", 0},   {"nccl", 0}};
    uint64_t call = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!strcmp(counts[i].kind, kind)) call = ++counts[i].calls;
    const char *rest = getenv("CUDASIM_FAIL");
    while (rest && *rest) {
        const char *colon = strchr(rest, ':');
        if (!colon) sim_die("CUDASIM_FAIL=%s: kind:number[+] is wanted, more after commas", rest);
        char *end;
        uint64_t wanted = strtoull(colon + 1, &end, 10);
        bool is_kind = (size_t)(colon - rest) == strlen(kind) && !strncmp(rest, kind, strlen(kind));
        bool and_later = *end == '+';
        if (is_kind && (call == wanted || (and_later && call > wanted))) return true;
        rest = end + and_later;
        if (*rest && *rest++ != ',')
            sim_die("CUDASIM_FAIL=%s: kind:number[+] is wanted, more after commas", getenv("CUDASIM_FAIL"));
    }
    return false;
}

/* ---- what tests ask ---- */

void cudasim_get_counters(struct cudasim_counters *counters)
{
    sim_start();
    sim_lock();
    *counters = sim_counters;
    sim_unlock();
}

int cudasim_reports(void) { return sim_reports(); }
