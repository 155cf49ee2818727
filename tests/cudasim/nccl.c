/* SPDX-License-Identifier: MIT */
/*
 * libnccl: communicators, groups and collectives. Data move through group.h; the ranks are processes, or threads of
 * one.
 *
 * A collective is an operation of its stream: lazy like all others, but it has to meet other ranks. How that cannot
 * deadlock where a device would not:
 *   - While an operation waits for other ranks the simulator's mutex is free, so that this process goes on: only the
 *     operation's stream is busy.
 *   - Each communicator has a thread. It runs the communicator's first pending operation (and what its stream needs
 *     before it) as soon as any rank of the communicator waits in one. So a rank that only waits for what another rank
 *     has enqueued gets it, although that rank's host may never look; a device could choose that order too. A thread
 *     that runs into another communicator's operation waits there, and that communicator's threads run elsewhere: one
 *     thread for all could be stuck in one communicator while it is needed in another.
 *   - Calls that never wait (cudaEventQuery) ask that thread to run the operation.
 * What remains are deadlocks that a device has too: ranks that call in different orders. After CUDASIM_NCCL_TIMEOUT
 * seconds (60) they are reported with what each rank waits in.
 *
 * Without data, ranks still meet and compare their calls.
 */
#include "group.h"
#include "runtime.h"
#include "stream.h"

#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* the header declares them without parameters, which in C says nothing */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

enum { COMM = 0x6cc10001, DEAD, DEFERRED_POLLS = 2 };

struct pending {
    struct sim_stream *stream;
    uint64_t position;
    struct pending *next;
};

struct ncclComm {
    uint32_t magic;
    struct group group;
    pthread_t thread;
    bool is_blocking, is_stopping, is_demanded, is_finalized, has_left;
    int error;            /* ncclResult_t */
    uint64_t calls;       /* by the host */
    uint64_t collectives; /* that ran: the same number on all ranks */
    uint64_t messages;
    struct pending *first, **last; /* those that have not run */
    struct nccl_op *deferred;      /* one that the host was told is in progress */
    struct sim_stream *deferred_stream;
    int polls;
};

enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, SEND, RECV };
static const char *const kind_names[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast",
                                         "ncclReduce",    "ncclSend",      "ncclRecv"};
struct call {
    enum kind kind;
    const void *send;
    void *recv;
    uint64_t count;      /* of elements, as the caller counts them */
    int type, op, peer;  /* peer: the root, too */
    uint64_t done_bytes; /* of a message */
};
struct nccl_op {
    struct sim_op op;
    struct ncclComm *comm;
    uint64_t number; /* of messages: among the communicator's operations with messages */
    int n;
    struct call calls[];
};

static _Thread_local int group_depth;
static _Thread_local struct {
    struct call call;
    struct ncclComm *comm;
    struct sim_stream *stream;
} * grouped;
static _Thread_local int n_grouped;
static int live;

/* ---- one collective ---- */

static void describe(char *text, const struct call *c, uint64_t number)
{
    bool has_peer = c->kind == BROADCAST || c->kind == REDUCE || c->kind == SEND || c->kind == RECV;
    int n = snprintf(text, GROUP_TEXT, "%s (call %llu: %llu elements of type %d", kind_names[c->kind],
                     (unsigned long long)number, (unsigned long long)c->count, c->type);
    if (c->kind == ALL_REDUCE || c->kind == REDUCE_SCATTER || c->kind == REDUCE)
        n += snprintf(text + n, (size_t)(GROUP_TEXT - n), ", operator %d", c->op);
    if (has_peer)
        n += snprintf(text + n, (size_t)(GROUP_TEXT - n), ", %s %d", c->kind < SEND ? "root" : "peer", c->peer);
    snprintf(text + n, (size_t)(GROUP_TEXT - n), ")");
}

/* All ranks must have called the same; the texts are compared, as they are what a report shows. */
static void compare_calls(const struct group *g)
{
    const char *mine = g->shared->members[g->rank].called;
    for (int r = 0; r < g->n; r++)
        if (strcmp(mine, g->shared->members[r].called))
            sim_die("NCCL: the ranks of a communicator do not call alike: rank %d %s, rank %d %s", g->rank, mine, r,
                    g->shared->members[r].called);
}

/*
 * The parts of a collective that go through the slots at a time: elements [from, from + n) of what the caller counts.
 */
struct piece {
    const struct call *c;
    struct group *g;
    const uint8_t *send; /* aliases, NULL where this rank has none */
    uint8_t *recv;
    uint64_t from, n, element;
    int first; /* the rank with which sums begin */
};

static void fill_slot(const struct piece *p)
{
    uint8_t *slot = group_slot(p->g, p->g->rank);
    bool is_root = p->g->rank == p->c->peer;
    if (p->c->kind == REDUCE_SCATTER)
        for (int r = 0; r < p->g->n; r++)
            memcpy(slot + (uint64_t)r * p->n * p->element, p->send + ((uint64_t)r * p->c->count + p->from) * p->element,
                   p->n * p->element);
    else if (p->c->kind != BROADCAST || is_root)
        memcpy(slot, p->send + p->from * p->element, p->n * p->element);
}

static void empty_slots(const struct piece *p)
{
    uint64_t bytes = p->n * p->element, offset = p->c->kind == REDUCE_SCATTER ? (uint64_t)p->g->rank * bytes : 0;
    uint8_t *to = p->recv ? p->recv + p->from * p->element : NULL;
    switch (p->c->kind) {
    case ALL_GATHER:
        for (int r = 0; r < p->g->n; r++)
            memcpy(to + (uint64_t)r * p->c->count * p->element, group_slot(p->g, r), bytes);
        return;
    case BROADCAST: memcpy(to, group_slot(p->g, p->c->peer), bytes); return;
    case REDUCE:
        if (p->g->rank != p->c->peer) return;
        break;
    default: break;
    }
    memcpy(to, group_slot(p->g, p->first) + offset, bytes);
    for (int r = 1; r < p->g->n; r++)
        reduce_into(p->c->type, p->c->op, to, group_slot(p->g, (p->first + r) % p->g->n) + offset, p->n);
    if (p->c->op == ncclAvg) reduce_divide(p->c->type, to, p->g->n, p->n);
}

static void run_collective(struct ncclComm *comm, const struct call *c, struct sim_access *access)
{
    struct group *g = &comm->group;
    struct piece p = {.c = c, .g = g, .element = reduce_type_bytes(c->type)};
    uint64_t whole = c->count * p.element, n = (uint64_t)g->n;
    bool is_root = g->rank == c->peer;
    if (c->kind != BROADCAST || is_root)
        p.send =
            sim_touch(access, c->send, c->kind == REDUCE_SCATTER ? whole * n : whole, true, false, kind_names[c->kind]);
    if (c->kind != REDUCE || is_root)
        p.recv =
            sim_touch(access, c->recv, c->kind == ALL_GATHER ? whole * n : whole, false, true, kind_names[c->kind]);
    struct group_member *me = &g->shared->members[g->rank];
    uint64_t number = ++comm->collectives;
    describe(me->called, c, number);
    describe(me->doing, c, number);
    uint64_t most = GROUP_SLOT / p.element / (c->kind == REDUCE_SCATTER ? n : 1);
    if (!sim_options.has_data) p.from = c->count;
    do {
        uint64_t state = g->shared->seed + number * 1000 + p.from;
        p.first = g->shared->seed ? (int)(sim_random(&state) % n) : 0;
        p.n = c->count - p.from < most ? c->count - p.from : most;
        if (sim_options.has_data) fill_slot(&p);
        if (!group_barrier(g)) return;
        compare_calls(g);
        if (sim_options.has_data) empty_slots(&p);
        if (!group_barrier(g)) return;
        p.from += p.n;
    } while (p.from < c->count);
}

/* ---- messages ---- */

static struct group_box *box_of(const struct group *g, const struct call *c, uint8_t **data)
{
    return c->kind == SEND ? group_box(g, g->rank, c->peer, data) : group_box(g, c->peer, g->rank, data);
}

/* Is there a piece left, and room for it (or: is there one to take)? */
static bool can_move(const struct group *g, const struct call *c)
{
    uint8_t *data;
    const struct group_box *box = box_of(g, c, &data);
    return c->done_bytes < c->count * reduce_type_bytes(c->type) && (box->written > box->taken) == (c->kind == RECV);
}

static void move_piece(struct group *g, struct call *c, struct sim_access *access, uint64_t number)
{
    uint64_t bytes = c->count * reduce_type_bytes(c->type), left = bytes - c->done_bytes;
    uint64_t n = left < GROUP_BOX ? left : GROUP_BOX;
    uint8_t *data;
    struct group_box *box = box_of(g, c, &data);
    if (c->kind == SEND) {
        const void *from = sim_touch(access, (const uint8_t *)c->send + c->done_bytes, n, true, false, "ncclSend");
        box->bytes = bytes;
        box->type = (uint64_t)c->type;
        if (sim_options.has_data) memcpy(data, from, n);
        box->written++;
    } else {
        if (box->bytes != bytes || box->type != (uint64_t)c->type)
            sim_die("NCCL: rank %d sends %llu bytes of type %llu, rank %d receives %llu bytes of type %d (call %llu)",
                    c->peer, (unsigned long long)box->bytes, (unsigned long long)box->type, g->rank,
                    (unsigned long long)bytes, c->type, (unsigned long long)number);
        void *to = sim_touch(access, (uint8_t *)c->recv + c->done_bytes, n, false, true, "ncclRecv");
        if (sim_options.has_data) memcpy(to, data, n);
        box->taken++;
    }
    c->done_bytes += n;
    group_changed(g);
}

static bool is_message(const struct call *c) { return c->kind == SEND || c->kind == RECV; }

/* Of a message: all pieces moved, and taken. */
static bool is_finished(const struct group *g, const struct call *c)
{
    uint8_t *data;
    if (c->done_bytes < c->count * reduce_type_bytes(c->type)) return false;
    const struct group_box *box = group_box(g, g->rank, c->peer, &data);
    return c->kind == RECV || box->written == box->taken;
}

/* Messages to several peers go on side by side, those to or from one peer in order. */
static bool is_turn(const struct group *g, const struct nccl_op *o, int i)
{
    const struct call *c = &o->calls[i];
    for (int k = 0; k < i; k++)
        if (o->calls[k].kind == c->kind && o->calls[k].peer == c->peer && !is_finished(g, &o->calls[k])) return false;
    return is_message(c) && !is_finished(g, c);
}

static int count_finished(const struct group *g, const struct nccl_op *o)
{
    int n = 0;
    for (int i = 0; i < o->n; i++) n += !is_message(&o->calls[i]) || is_finished(g, &o->calls[i]);
    return n;
}

struct standstill {
    const struct nccl_op *op;
    int n_finished;
};

static bool can_go_on(const struct group *g, const void *argument)
{
    const struct standstill *s = argument;
    if (count_finished(g, s->op) != s->n_finished) return true;
    for (int i = 0; i < s->op->n; i++)
        if (is_turn(g, s->op, i) && can_move(g, &s->op->calls[i])) return true;
    return false;
}

static void run_messages(struct nccl_op *o, struct sim_access *access)
{
    struct group *g = &o->comm->group;
    for (int finished = count_finished(g, o); finished < o->n; finished = count_finished(g, o)) {
        for (int i = 0; i < o->n; i++)
            if (is_turn(g, o, i) && can_move(g, &o->calls[i])) move_piece(g, &o->calls[i], access, o->number);
        struct standstill now = {o, count_finished(g, o)};
        if (now.n_finished < o->n && !group_wait(g, can_go_on, &now)) return;
    }
}

/* ---- the operation in its stream ---- */

static void remove_pending(struct ncclComm *comm, uint64_t position, const struct sim_stream *s)
{
    for (struct pending **at = &comm->first; *at; at = &(*at)->next)
        if ((*at)->position == position && (*at)->stream == s) {
            struct pending *gone = *at;
            *at = gone->next;
            if (!*at) comm->last = at;
            free(gone);
            return;
        }
}

/* After an abort the results hold anything. Whoever copies them before the failure is known does nothing wrong. */
static void spoil_results(const struct nccl_op *o, struct sim_access *access)
{
    for (int i = 0; i < o->n; i++) {
        const struct call *c = &o->calls[i];
        bool receives = c->kind != SEND && (c->kind != REDUCE || o->comm->group.rank == c->peer);
        uint64_t bytes = c->count * reduce_type_bytes(c->type);
        bytes *= c->kind == ALL_GATHER ? (uint64_t)o->comm->group.n : 1;
        if (receives) sim_touch(access, c->recv, bytes, false, true, kind_names[c->kind]);
    }
}

static void run_op(struct sim_op *op, struct sim_access *access)
{
    struct nccl_op *o = (struct nccl_op *)op;
    struct ncclComm *comm = o->comm;
    struct group_member *me = comm->group.shared ? &comm->group.shared->members[comm->group.rank] : NULL;
    bool has_messages = false;
    for (int i = 0; i < o->n; i++) has_messages |= is_message(&o->calls[i]);
    if (has_messages && me && !comm->group.is_aborted) {
        o->number = ++comm->messages;
        for (int i = 0; i < o->n; i++)
            if (is_message(&o->calls[i])) describe(me->doing, &o->calls[i], o->number);
        run_messages(o, access);
    }
    for (int i = 0; i < o->n && me && !comm->group.is_aborted; i++)
        if (!is_message(&o->calls[i])) run_collective(comm, &o->calls[i], access);
    if (comm->group.is_aborted || !me) spoil_results(o, access);
    remove_pending(comm, op->position, op->stream);
}

/* Runs the first one. On a device that has failed nothing runs any more, so that nothing removes itself either. */
static void run_pending(struct ncclComm *comm)
{
    struct pending next = *comm->first;
    stream_run_to(next.stream, next.position);
    remove_pending(comm, next.position, next.stream);
}

static void demand(struct sim_op *op)
{
    struct ncclComm *comm = ((struct nccl_op *)op)->comm;
    comm->is_demanded = true;
    if (comm->group.shared) group_changed(&comm->group);
}

static void issued(struct sim_op *op)
{
    struct ncclComm *comm = ((struct nccl_op *)op)->comm;
    struct pending *p = sim_alloc(sizeof *p);
    *p = (struct pending){.stream = op->stream, .position = op->position};
    *comm->last = p;
    comm->last = &p->next;
    if (comm->group.shared) group_changed(&comm->group);
}

/* See the head of this file. */
static void *progress(void *argument)
{
    struct ncclComm *comm = argument;
    sim_lock();
    while (!comm->is_stopping) {
        uint32_t since = group_changes(&comm->group);
        if (comm->first && (comm->is_demanded || comm->group.shared->waiting)) {
            comm->is_demanded = false;
            run_pending(comm);
            continue;
        }
        comm->is_demanded = false;
        sim_unlock();
        group_sleep(&comm->group, since);
        sim_lock();
    }
    sim_unlock();
    return NULL;
}

/* ---- communicators ---- */

static struct ncclComm *comm_of(const char *function, ncclComm_t comm)
{
    if (!comm || comm->magic != COMM) sim_die("%s: %p is not a communicator, or was destroyed", function, (void *)comm);
    return comm;
}

static bool is_complete(const struct group *g, const void *unused)
{
    (void)unused;
    return group_is_complete(g);
}

static ncclResult_t init_rank(const char *function, ncclComm_t *out, int n, const ncclUniqueId *id, int rank,
                              bool blocks)
{
    if (n < 1 || n > GROUP_RANKS || rank < 0 || rank >= n) return ncclInvalidArgument;
    *out = NULL;
    if (sim_must_fail("nccl")) return ncclSystemError;
    struct ncclComm *comm = sim_alloc(sizeof *comm);
    comm->magic = COMM;
    comm->is_blocking = blocks;
    comm->last = &comm->first;
    if (strncmp(id->internal, "cudasim-", 8) || !group_open(&comm->group, id->internal, rank, n)) {
        free(comm);
        return ncclSystemError;
    }
    snprintf(comm->group.shared->members[rank].doing, GROUP_TEXT, "%s", function);
    live++;
    *out = comm;
    if (blocks) group_wait(&comm->group, is_complete, NULL);
    /* signals are for the program's own threads */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_create(&comm->thread, NULL, progress, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return blocks || group_is_complete(&comm->group) ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    SIM_CALL;
    static int n;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "cudasim-%d-%d-%llx", getpid(), ++n, (unsigned long long)sim_ns());
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank)
{
    SIM_CALL;
    return init_rank(__func__, comm, n, &id, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    SIM_CALL;
    return init_rank(__func__, comm, n, &id, rank, !config || config->blocking != 0);
}

/* What was told to be in progress goes into its stream now. */
static void push_deferred(struct ncclComm *comm)
{
    struct nccl_op *o = comm->deferred;
    comm->deferred = NULL;
    if (o) runtime_push(comm->deferred_stream, &o->op);
}

static bool all_left(const struct group *g, const void *unused)
{
    (void)unused;
    return g->shared->left >= (uint32_t)g->n;
}

/* Is the call that was told to be in progress at its end? */
static bool is_settled(struct ncclComm *comm)
{
    if (!group_is_complete(&comm->group) || (comm->deferred && --comm->polls > 0)) return false;
    push_deferred(comm);
    if (comm->is_finalized && !comm->first && !comm->has_left) {
        comm->has_left = true;
        comm->group.shared->left++;
        group_changed(&comm->group);
    }
    comm->is_demanded |= comm->is_finalized;
    return !comm->is_finalized || (comm->has_left && all_left(&comm->group, NULL));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *error)
{
    SIM_CALL;
    struct ncclComm *comm = comm_of(__func__, handle);
    group_look_for_peers(&comm->group);
    *error = comm->error                 ? (ncclResult_t)comm->error
             : comm->group.has_lost_peer ? ncclRemoteError
             : is_settled(comm)          ? ncclSuccess
                                         : ncclInProgress;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle)
{
    SIM_CALL;
    struct ncclComm *comm = comm_of(__func__, handle);
    comm->is_finalized = true;
    if (!comm->is_blocking) return is_settled(comm) ? ncclSuccess : ncclInProgress;
    while (comm->first) run_pending(comm);
    is_settled(comm);
    group_wait(&comm->group, all_left, NULL);
    return ncclSuccess;
}

/* The memory stays: an operation in a stream may still hold it. */
static void close_comm(struct ncclComm *comm)
{
    comm->is_stopping = true;
    group_changed(&comm->group);
    sim_unlock();
    pthread_join(comm->thread, NULL);
    sim_lock();
    comm->magic = DEAD;
    sim_bury(comm);
    group_close(&comm->group);
    live--;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle)
{
    SIM_CALL;
    struct ncclComm *comm = comm_of(__func__, handle);
    push_deferred(comm);
    if (comm->first && !runtime_device_has_failed())
        sim_report("%s: operations of the communicator have not run yet: wait for their streams, or finalize it",
                   __func__);
    while (comm->first) run_pending(comm);
    close_comm(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle)
{
    SIM_CALL;
    struct ncclComm *comm = comm_of(__func__, handle);
    comm->group.is_aborted = true;
    free(comm->deferred);
    comm->deferred = NULL;
    comm->group.shared->aborted++;
    group_changed(&comm->group);
    /* what waits in it returns; what has not run yet will do nothing */
    while (comm->first) run_pending(comm);
    close_comm(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    SIM_CALL;
    *count = comm_of(__func__, comm)->group.n;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    SIM_CALL;
    *rank = comm_of(__func__, comm)->group.rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    SIM_CALL;
    comm_of(__func__, comm);
    *device = 0;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

void nccl_leaks(void)
{
    if (live) sim_report("leak: %d NCCL communicators are not destroyed at the end", live);
}

/* ---- calls ---- */

static ncclResult_t push(struct ncclComm *comm, struct sim_stream *s, const struct call *calls, int n)
{
    struct nccl_op *o = sim_alloc(sizeof *o + (size_t)n * sizeof *calls);
    *o = (struct nccl_op){.op = {.name = n == 1 ? kind_names[calls->kind] : "ncclGroupEnd",
                                 .bytes = sizeof *o + (size_t)n * sizeof *calls,
                                 .run = run_op,
                                 .issued = issued,
                                 .demand = demand,
                                 .blocks = true},
                          .comm = comm,
                          .n = n};
    memcpy(o->calls, calls, (size_t)n * sizeof *calls);
    for (int i = 0; i < n && o->op.n_uses + 2 <= SIM_USES; i++) {
        if (calls[i].send) o->op.uses[o->op.n_uses++] = calls[i].send;
        if (calls[i].recv) o->op.uses[o->op.n_uses++] = calls[i].recv;
    }
    uint64_t state = sim_options.seed + ++comm->calls;
    if (!comm->is_blocking && !comm->deferred && sim_options.seed && sim_random(&state) % 4 == 0) {
        comm->deferred = o;
        comm->deferred_stream = s;
        comm->polls = DEFERRED_POLLS;
        return ncclInProgress;
    }
    runtime_push(s, &o->op);
    return ncclSuccess;
}

/* Is memory where the call says, and as much? */
static void check_call(struct ncclComm *comm, const struct call *c)
{
    uint64_t bytes = c->count * reduce_type_bytes(c->type), n = (uint64_t)comm->group.n;
    bool is_root = comm->group.rank == c->peer;
    char who[64];
    snprintf(who, sizeof who, "%s: the send buffer", kind_names[c->kind]);
    if (bytes && (c->kind != BROADCAST || is_root) && c->kind != RECV)
        sim_check(c->send, c->kind == REDUCE_SCATTER ? bytes * n : bytes, who);
    snprintf(who, sizeof who, "%s: the receive buffer", kind_names[c->kind]);
    if (bytes && (c->kind != REDUCE || is_root) && c->kind != SEND)
        sim_check(c->recv, c->kind == ALL_GATHER ? bytes * n : bytes, who);
}

static ncclResult_t call(struct call c, ncclComm_t handle, cudaStream_t stream)
{
    const char *function = kind_names[c.kind];
    struct ncclComm *comm = comm_of(function, handle);
    struct sim_stream *s = runtime_stream(function, stream);
    size_t element = reduce_type_bytes(c.type);
    if (!element || (unsigned)c.op > ncclAvg || c.peer < 0 || c.peer >= comm->group.n) {
        sim_report("%s: type %d, operator %d or rank %d is not simulated, or there is none", function, c.type, c.op,
                   c.peer);
        return ncclInvalidArgument;
    }
    if (!group_is_complete(&comm->group) || comm->deferred || comm->is_finalized) {
        sim_report("%s: the communicator %s; ask ncclCommGetAsyncError until it says ncclSuccess", function,
                   comm->is_finalized ? "is finalized" : "still has a call in progress");
        return ncclInvalidUsage;
    }
    if (sim_must_fail("nccl")) {
        comm->error = ncclSystemError;
        return ncclSystemError;
    }
    check_call(comm, &c);
    sim_counters.collectives++;
    sim_counters.collective_bytes +=
        c.kind == RECV ? 0 : c.count * element * (c.kind == REDUCE_SCATTER ? (uint64_t)comm->group.n : 1);
    if (!c.count) return ncclSuccess;
    if (!group_depth) return push(comm, s, &c, 1);
    grouped = sim_grow(grouped, (size_t)(n_grouped + 1) * sizeof *grouped);
    grouped[n_grouped].call = c;
    grouped[n_grouped].comm = comm;
    grouped[n_grouped++].stream = s;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

/* One operation for each communicator and stream that the group's calls name. */
ncclResult_t ncclGroupEnd(void)
{
    SIM_CALL;
    if (!group_depth) return ncclInvalidUsage;
    if (--group_depth) return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    struct call *calls = sim_alloc((size_t)n_grouped * sizeof *calls);
    for (int i = 0; i < n_grouped; i++) {
        struct ncclComm *comm = grouped[i].comm;
        int n = 0;
        if (!comm) continue;
        for (int k = i; k < n_grouped; k++)
            if (grouped[k].comm == comm && grouped[k].stream == grouped[i].stream) {
                calls[n++] = grouped[k].call;
                grouped[k].comm = NULL;
            }
        ncclResult_t one = push(comm, grouped[i].stream, calls, n);
        result = result ? result : one;
    }
    free(calls);
    n_grouped = 0;
    return result;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    SIM_CALL;
    return call((struct call){ALL_REDUCE, send, recv, count, (int)type, (int)op, 0, 0}, comm, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    SIM_CALL;
    return call((struct call){ALL_GATHER, send, recv, count, (int)type, 0, 0, 0}, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    SIM_CALL;
    return call((struct call){REDUCE_SCATTER, send, recv, count, (int)type, (int)op, 0, 0}, comm, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    SIM_CALL;
    return call((struct call){BROADCAST, send, recv, count, (int)type, 0, root, 0}, comm, stream);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    SIM_CALL;
    return call((struct call){REDUCE, send, recv, count, (int)type, (int)op, root, 0}, comm, stream);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    SIM_CALL;
    return call((struct call){SEND, send, NULL, count, (int)type, 0, peer, 0}, comm, stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    SIM_CALL;
    return call((struct call){RECV, NULL, recv, count, (int)type, 0, peer, 0}, comm, stream);
}
