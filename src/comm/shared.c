/* SPDX-License-Identifier: MIT */
/*
 * Waiting among ranks that share memory: the failure word, phases, time-outs and the comparison of calls; see
 * shared.h.
 *
 * A rank sleeps on one other rank's phase counter at a time, in naps: whatever no wake-up announces (a
 * failure elsewhere, a dead rank, the time-out) is looked for after each nap.
 */
#include "comm/shared.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/clock.h"

enum { NAP_NS = 50 * 1000 * 1000, SPIN_ROUNDS = 300, SPIN_ROUNDS_CROWDED = 20, MAX_NAMED = 8 };

/* ---- job ---- */
void shared_job_fail(struct shared_job *job, err_t code, int world_rank, const char *reason)
{
    int healthy = 0;

    if (!atomic_compare_exchange_strong(&job->state, &healthy, 1)) return;
    job->code = code;
    job->rank = world_rank;
    snprintf(job->reason, sizeof job->reason, "%s", reason);
    atomic_store(&job->state, 2);
}

err_t shared_job_check(struct shared_job *job, struct error *e)
{
    if (atomic_load(&job->state) == 0) return ERR_NONE;
    /* the writer may be a process that dies right here: do not wait for it for ever */
    for (int i = 0; i < 1000 && atomic_load(&job->state) == 1; i++) clock_sleep_ns(100 * 1000);
    if (atomic_load(&job->state) == 1) return FAIL(e, ERR_COMM, "another rank failed and died before it could say why");
    return FAIL(e, job->code, "%s", job->reason);
}

void shared_job_set_timeout(struct shared_job *job, double seconds)
{
    atomic_store(&job->timeout_ns, seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * 1e9) : 0);
}

/* ---- region ---- */
static size_t window_bytes_for(int size, size_t wanted)
{
    size_t least = (size_t)size * 64;

    return ((wanted > least ? wanted : least) + 63) / 64 * 64;
}

static size_t windows_at(int size) { return sizeof(struct shared_region) + (size_t)size * sizeof(struct shared_slot); }

size_t shared_region_bytes(int size, size_t window_bytes)
{
    return windows_at(size) + (size_t)size * SHARED_BUFFERS * window_bytes_for(size, window_bytes);
}

void shared_region_init(struct shared_region *r, int size, size_t window_bytes)
{
    r->size = size;
    r->window_bytes = window_bytes_for(size, window_bytes);
    r->windows_at = windows_at(size);
}

/* ---- group ---- */
void shared_group_init(struct shared_group *g, struct shared_job *job, struct shared_region *region, int rank,
                       const int *world_ranks, const void **sources)
{
    *g = (struct shared_group){.job = job, .region = region, .rank = rank, .size = region->size};
    g->world_ranks = world_ranks;
    g->sources = sources;
    g->spin_rounds = SPIN_ROUNDS_CROWDED;
    if (affinity_get(&region->slots[rank].cores, NULL)) region->slots[rank].cores = (struct affinity_mask){0};
    g->call.name = "";
}

/* Whether this rank may spin while it waits: ranks on the same cores are no more than these. By now all have said where
 * they run. */
static int spin_rounds(const struct shared_group *g)
{
    const struct affinity_mask *own = &g->region->slots[g->rank].cores;
    int sharers = 0;

    for (int q = 0; q < g->size; q++) sharers += memcmp(&g->region->slots[q].cores, own, sizeof *own) == 0;
    return sharers <= affinity_count(own) ? SPIN_ROUNDS : SPIN_ROUNDS_CROWDED;
}

static long futex(atomic_uint *word, int operation, unsigned value, const struct timespec *limit)
{
    return syscall(SYS_futex, word, operation, value, limit, NULL, 0);
}

static void wake_waiters(struct shared_slot *own)
{
    if (atomic_load(&own->waiters)) futex(&own->phase, FUTEX_WAKE, INT_MAX, NULL);
}

void shared_group_leave(struct shared_group *g)
{
    struct shared_slot *own = &g->region->slots[g->rank];

    atomic_store(&own->has_left, 1);
    wake_waiters(own);
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Counters wrap around: compare by difference. */
static bool has_arrived(const struct shared_group *g, int q)
{
    return (int)(atomic_load_explicit(&g->region->slots[q].phase, memory_order_acquire) - g->phase) >= 0;
}

static void load_call(const struct shared_group *g, int q, uint64_t sequence, uint64_t words[CALL_WORDS])
{
    for (int i = 0; i < CALL_WORDS; i++)
        words[i] = atomic_load_explicit(&g->region->slots[q].call[sequence & 1][i], memory_order_relaxed);
}

/* "#17 barrier "x"", the newest call that rank q has announced. */
static void print_last_call(struct str *out, const struct shared_group *g, int q)
{
    uint64_t a[CALL_WORDS], b[CALL_WORDS];
    const uint64_t *last;

    load_call(g, q, 0, a);
    load_call(g, q, 1, b);
    last = a[2] > b[2] ? a : b;
    if (last[2] == 0) {
        str_add(out, "none yet");
        return;
    }
    str_addf(out, "#%llu ", (unsigned long long)last[2]);
    call_print(out, last);
}

static void print_own_call(struct str *out, const struct shared_group *g)
{
    uint64_t words[CALL_WORDS];

    call_pack(&g->call, words);
    call_print(out, words);
}

static void fail_with(struct shared_group *g, err_t code, int q, struct str *text)
{
    shared_job_fail(g->job, code, q < 0 ? -1 : g->world_ranks[q],
                    text->failed ? "out of memory in a report" : str_text(text));
    str_release(text);
}

static void fail_timeout(struct shared_group *g, double seconds)
{
    struct str text = {0}, names = {0}, calls = {0};
    int missing = 0;

    for (int q = 0; q < g->size; q++) {
        if (q == g->rank || has_arrived(g, q)) continue;
        missing++;
        if (missing > MAX_NAMED) continue;
        str_addf(&names, "%s%d", missing > 1 ? ", " : "", g->world_ranks[q]);
        str_addf(&calls, "%srank %d: ", missing > 1 ? "; " : "", g->world_ranks[q]);
        print_last_call(&calls, g, q);
    }
    print_own_call(&text, g);
    str_addf(&text, ": rank%s %s", missing > 1 ? "s" : "", str_text(&names));
    if (missing > MAX_NAMED) str_addf(&text, " and %d more", missing - MAX_NAMED);
    str_addf(&text, " did not arrive within %.3g s (this is call #%llu of rank %d; last calls here: %s)", seconds,
             (unsigned long long)g->call.sequence, g->world_ranks[g->rank], str_text(&calls));
    fail_with(g, ERR_TIMEOUT, -1, &text);
    str_release(&names);
    str_release(&calls);
}

static void fail_left(struct shared_group *g, int q)
{
    struct str text = {0};

    print_own_call(&text, g);
    str_addf(&text, ": rank %d has left the communicator that rank %d still uses; its last call here was ",
             g->world_ranks[q], g->world_ranks[g->rank]);
    print_last_call(&text, g, q);
    fail_with(g, ERR_PEER, q, &text);
}

static void fail_mismatch(struct shared_group *g, int q, const uint64_t theirs[CALL_WORDS])
{
    struct str text = {0};
    int mine = g->world_ranks[g->rank], other = g->world_ranks[q];

    str_addf(&text, "ranks %d and %d make different calls: rank %d calls ", mine, other, mine);
    print_own_call(&text, g);
    str_addf(&text, ", rank %d calls ", other);
    call_print(&text, theirs);
    str_addf(&text, " (call #%llu); every rank must make the same calls in the same order",
             (unsigned long long)g->call.sequence);
    fail_with(g, ERR_COMM, -1, &text);
}

static void nap(struct shared_slot *theirs, unsigned wanted)
{
    static const struct timespec limit = {.tv_nsec = NAP_NS};
    unsigned seen;

    atomic_fetch_add(&theirs->waiters, 1);
    seen = atomic_load(&theirs->phase);
    if ((int)(seen - wanted) < 0 && !atomic_load(&theirs->has_left)) futex(&theirs->phase, FUTEX_WAIT, seen, &limit);
    atomic_fetch_sub(&theirs->waiters, 1);
}

static err_t wait_for(struct shared_group *g, int q, int64_t *start_ns, struct error *e)
{
    struct shared_slot *theirs = &g->region->slots[q];
    err_t rc;

    for (int i = 0; i < g->spin_rounds; i++) {
        if (has_arrived(g, q)) return ERR_NONE;
        relax();
    }
    if (!*start_ns) *start_ns = clock_ns();
    for (;;) {
        int64_t limit_ns = atomic_load_explicit(&g->job->timeout_ns, memory_order_relaxed), now_ns;

        nap(theirs, g->phase);
        if (has_arrived(g, q)) return ERR_NONE;
        /* the flag is set after the last phase: look at the phase again before believing it */
        if (atomic_load(&theirs->has_left) && !has_arrived(g, q)) fail_left(g, q);
        now_ns = clock_ns();
        if (limit_ns > 0 && now_ns - *start_ns > limit_ns) fail_timeout(g, (double)limit_ns * 1e-9);
        if (g->poll) g->poll(g->context);
        if ((rc = shared_job_check(g->job, e))) return rc;
    }
}

err_t shared_sync(struct shared_group *g, struct error *e)
{
    struct shared_slot *own = &g->region->slots[g->rank];
    int64_t start_ns = 0;
    err_t rc = ERR_NONE;

    g->phase++;
    atomic_store(&own->phase, g->phase);
    wake_waiters(own);
    for (int i = 1; i < g->size && !rc; i++) {
        int q = (g->rank + i) % g->size;

        if (!has_arrived(g, q)) rc = wait_for(g, q, &start_ns, e);
    }
    return rc;
}

err_t shared_begin(struct shared_group *g, const struct call *call, const void *buffer, struct error *e)
{
    struct shared_slot *own = &g->region->slots[g->rank];
    uint64_t words[CALL_WORDS], sequence = g->call.sequence + 1;
    err_t rc;

    if (buffer) {
        atomic_store_explicit(&own->buffer, buffer, memory_order_relaxed);
        atomic_store(&own->is_inside, 1); /* before the look at the failure word: see shared_leave_direct */
    }
    if ((rc = shared_job_check(g->job, e))) return rc;
    g->call = *call;
    g->call.sequence = sequence;
    call_pack(&g->call, words);
    for (int i = 0; i < CALL_WORDS; i++)
        atomic_store_explicit(&own->call[sequence & 1][i], words[i], memory_order_relaxed);
    return ERR_NONE;
}

/* Calls lie in two places by turns: nobody overwrites one before everybody has met in the next. */
err_t shared_meet(struct shared_group *g, struct error *e)
{
    uint64_t mine[CALL_WORDS], theirs[CALL_WORDS];
    err_t rc = shared_sync(g, e);

    if (rc) return rc;
    if (g->call.sequence == 1) g->spin_rounds = spin_rounds(g);
    call_pack(&g->call, mine);
    for (int i = 1; i < g->size; i++) {
        int q = (g->rank + i) % g->size;

        load_call(g, q, g->call.sequence, theirs);
        if (memcmp(mine, theirs, sizeof mine) == 0) continue;
        fail_mismatch(g, q, theirs);
        return shared_job_check(g->job, e);
    }
    return ERR_NONE;
}

/*
 * A rank that fails in the middle of a call may not return while another still reads its buffer. Everybody
 * says "inside" before it looks at the failure word; so whoever is not inside by the time this rank has seen
 * the failure will see it too, and read nothing.
 */
void shared_leave_direct(struct shared_group *g, bool has_failed)
{
    atomic_store(&g->region->slots[g->rank].is_inside, 0);
    for (int q = 0; q < g->size && has_failed; q++)
        while (atomic_load(&g->region->slots[q].is_inside)) clock_sleep_ns(100 * 1000);
}
