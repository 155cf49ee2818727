/* SPDX-License-Identifier: MIT */
/* See group.h. */
#include "group.h"
#include "runtime.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LEFT = -1, SLEEP_MS = 50, DEFAULT_TIMEOUT_S = 60, PAGE = 4096 };

static size_t round_up(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

bool group_open(struct group *g, const char *name, int rank, int n)
{
    size_t shared = round_up(sizeof *g->shared), boxes = round_up((size_t)(n * n) * sizeof *g->boxes);
    size_t slots = (size_t)n * GROUP_SLOT, box_data = (size_t)(n * n) * GROUP_BOX;
    g->rank = rank;
    g->n = n;
    g->mapped_bytes = shared + boxes + slots + box_data;
    snprintf(g->path, sizeof g->path, "/dev/shm/%s", name);
    int file = open(g->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return false;
    uint8_t *p = MAP_FAILED;
    if (!ftruncate(file, (off_t)g->mapped_bytes)) /* holes: memory is taken for what is used */
        p = mmap(NULL, g->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (p == MAP_FAILED) return false;
    g->shared = (struct group_shared *)p;
    g->boxes = (struct group_box *)(p + shared);
    g->slots = p + shared + boxes;
    g->box_data = g->slots + slots;
    uint32_t others = 0;
    if (!atomic_compare_exchange_strong(&g->shared->n, &others, (uint32_t)n) && others != (uint32_t)n)
        sim_die("ncclCommInitRank: rank %d says that there are %d ranks, another one said %u", rank, n, others);
    if (g->shared->members[rank].process)
        sim_die("ncclCommInitRank: two callers say that they are rank %d of %d", rank, n);
    g->shared->members[rank].process = getpid();
    if (!rank) g->shared->seed = sim_options.seed;
    if (++g->shared->joined == (uint32_t)n) unlink(g->path); /* all have it open */
    group_changed(g);
    return true;
}

void group_close(struct group *g)
{
    if (!g->shared) return;
    if (!group_is_complete(g)) unlink(g->path);
    g->shared->members[g->rank].process = LEFT;
    munmap(g->shared, g->mapped_bytes);
    g->shared = NULL;
}

bool group_is_complete(const struct group *g) { return g->shared->joined >= (uint32_t)g->n; }

uint32_t group_changes(const struct group *g) { return g->shared->changes; }

void group_changed(struct group *g)
{
    g->shared->changes++;
    syscall(SYS_futex, &g->shared->changes, FUTEX_WAKE, GROUP_RANKS * 2, NULL, NULL, 0);
}

void group_sleep(struct group *g, uint32_t since)
{
    struct timespec limit = {.tv_nsec = SLEEP_MS * 1000000L};
    syscall(SYS_futex, &g->shared->changes, FUTEX_WAIT, since, &limit, NULL, 0);
}

static uint64_t timeout_ns(void)
{
    const char *text = getenv("CUDASIM_NCCL_TIMEOUT");
    return (text && *text ? strtoull(text, NULL, 10) : DEFAULT_TIMEOUT_S) * UINT64_C(1000000000);
}

/* A process that ended stays as a zombie for as long as its parent likes. */
static bool is_gone(int process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return true;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    text[n > 0 ? n : 0] = 0;
    const char *state = strrchr(text, ')'); /* after the name, which may hold anything */
    return !state || strchr("ZX", state[2]);
}

void group_look_for_peers(struct group *g)
{
    for (int r = 0; r < g->n; r++) {
        int process = g->shared->members[r].process;
        /* who leaves says so before it ends: looked at again, as it may have come to its end just now */
        if (process > 0 && process != getpid() && is_gone(process) && g->shared->members[r].process != LEFT)
            g->has_lost_peer = true;
    }
    if (g->shared->aborted) g->has_lost_peer = true;
}

static void give_up(const struct group *g)
{
    char text[4096];
    int n = 0;
    for (int r = 0; r < g->n && n < (int)sizeof text - GROUP_TEXT - 64; r++) {
        const struct group_member *m = &g->shared->members[r];
        const char *state = !m->process          ? "has not joined, and is in"
                            : m->process == LEFT ? "has left, after"
                            : m->is_waiting      ? "waits in"
                                                 : "does not wait, after";
        n += snprintf(text + n, sizeof text - (size_t)n, "; rank %d %s %s", r, state,
                      m->doing[0] ? m->doing : "nothing");
    }
    unlink(g->path);
    sim_die("NCCL: rank %d of %d waited too long for its peers%s", g->rank, g->n, text);
}

bool group_wait(struct group *g, bool (*is_so)(const struct group *, const void *), const void *argument)
{
    struct group_member *me = &g->shared->members[g->rank];
    uint64_t start = sim_ns(), looked = start, limit = timeout_ns();
    bool is_counted = false;
    while (!g->is_aborted) {
        uint32_t since = group_changes(g);
        if (is_so(g, argument)) break;
        if (!is_counted) {
            is_counted = true;
            me->is_waiting = true;
            g->shared->waiting++;
            group_changed(g);
            continue;
        }
        if (limit && sim_ns() - start > limit) give_up(g);
        if (sim_ns() - looked > SLEEP_MS * UINT64_C(1000000)) {
            looked = sim_ns();
            group_look_for_peers(g);
        }
        sim_unlock();
        group_sleep(g, since);
        sim_lock();
    }
    if (is_counted) {
        g->shared->waiting--;
        me->is_waiting = false;
    }
    return !g->is_aborted;
}

static bool all_reached(const struct group *g, const void *phase)
{
    for (int r = 0; r < g->n; r++)
        if (g->shared->members[r].phase < *(const uint64_t *)phase) return false;
    return true;
}

bool group_barrier(struct group *g)
{
    uint64_t phase = ++g->shared->members[g->rank].phase;
    group_changed(g);
    return group_wait(g, all_reached, &phase);
}

uint8_t *group_slot(const struct group *g, int rank) { return g->slots + (size_t)rank * GROUP_SLOT; }

struct group_box *group_box(const struct group *g, int from, int to, uint8_t **data)
{
    size_t i = (size_t)(from * g->n + to);
    *data = g->box_data + i * GROUP_BOX;
    return &g->boxes[i];
}
