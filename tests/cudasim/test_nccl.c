/* SPDX-License-Identifier: MIT */
/* The simulator's NCCL between processes and between threads: results, laziness without deadlocks, reports. */
#include "cudasim.h"
#include "scenario.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One rank: of the processes, or a thread. */
struct rank {
    int rank, n;
    ncclComm_t comm;
    cudaStream_t stream;
};

/* The first rank of the processes writes ids into the scenario's file, each one after the others. */
static ncclUniqueId get_id(int rank, int index)
{
    ncclUniqueId id;
    FILE *file;
    if (rank == 0) {
        OK(ncclGetUniqueId(&id));
        file = fopen(scenario_file(), "r+");
        fseek(file, (long)sizeof id * index, SEEK_SET);
        fwrite(&id, sizeof id, 1, file);
        fclose(file);
        return id;
    }
    for (;;) {
        file = fopen(scenario_file(), "r");
        fseek(file, (long)sizeof id * index, SEEK_SET);
        size_t got = fread(&id, sizeof id, 1, file);
        fclose(file);
        if (got) return id;
        usleep(1000);
    }
}

static struct rank open_rank(int n)
{
    struct rank r = {.rank = scenario_rank(), .n = n};
    OK(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    OK(ncclCommInitRank(&r.comm, n, get_id(r.rank, 0), r.rank));
    return r;
}

static void close_rank(struct rank *r)
{
    OK(cudaStreamSynchronize(r->stream));
    OK(ncclCommFinalize(r->comm));
    OK(ncclCommDestroy(r->comm));
    OK(cudaStreamDestroy(r->stream));
}

/* Device memory of n floats that begin with first, and go up by step. */
static float *floats(struct rank *r, size_t n, float first, float step)
{
    float *p, *host;
    OK(cudaMalloc((void **)&p, n * sizeof *p));
    OK(cudaHostAlloc((void **)&host, n * sizeof *p, 0));
    for (size_t i = 0; i < n; i++) host[i] = first + step * (float)i;
    OK(cudaMemcpyAsync(p, host, n * sizeof *p, cudaMemcpyHostToDevice, r->stream));
    OK(cudaStreamSynchronize(r->stream));
    OK(cudaFreeHost(host));
    return p;
}

static void check_floats(struct rank *r, const float *p, size_t n, float first, float step)
{
    float *host;
    OK(cudaHostAlloc((void **)&host, n * sizeof *p, 0));
    OK(cudaMemcpyAsync(host, p, n * sizeof *p, cudaMemcpyDeviceToHost, r->stream));
    OK(cudaStreamSynchronize(r->stream));
    for (size_t i = 0; i < n; i++) CHECK(host[i] == first + step * (float)i);
    OK(cudaFreeHost(host));
}

/* ---- good ---- */

static void run_all(struct rank *r)
{
    /* more than goes through a slot at a time; the values are exact in float32 */
    size_t n = 400000, ranks = (size_t)r->n;
    float me = (float)r->rank, all = (float)r->n, sum = all * (all - 1) / 2;
    float *a = floats(r, n, me, 1), *b = floats(r, n * ranks, me * 1000, 1), *c = floats(r, n * ranks, 0, 0);
    OK(ncclAllReduce(a, a, n, ncclFloat32, ncclSum, r->comm, r->stream));
    check_floats(r, a, n, sum, all);
    OK(ncclAllReduce(a, c, n, ncclFloat32, ncclAvg, r->comm, r->stream));
    check_floats(r, c, n, sum, all);
    OK(ncclReduceScatter(b, c, n, ncclFloat32, ncclSum, r->comm, r->stream));
    check_floats(r, c, n, sum * 1000 + me * (float)n * all, all);
    /* what is gathered lies in its place already */
    float *mine = c + (size_t)r->rank * n;
    OK(cudaMemcpyAsync(mine, a, n * sizeof *a, cudaMemcpyDeviceToDevice, r->stream));
    OK(ncclAllGather(mine, c, n, ncclFloat32, r->comm, r->stream));
    for (int i = 0; i < r->n; i++) check_floats(r, c + (size_t)i * n, n, sum, all);
    OK(ncclBroadcast(b, b, n, ncclFloat32, r->n - 1, r->comm, r->stream));
    check_floats(r, b, n, (all - 1) * 1000, 1);
    OK(cudaMemsetAsync(a, r->rank, 8, r->stream));
    OK(ncclAllReduce(a, a, 8, ncclInt8, ncclMax, r->comm, r->stream));
    OK(ncclAllReduce(a, a, 1, ncclInt64, ncclSum, r->comm, r->stream));
    OK(ncclReduce(b, c, 100, ncclFloat32, ncclMax, 0, r->comm, r->stream));
    OK(cudaStreamSynchronize(r->stream));
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFree(c));
}

static void collectives_of_2(void)
{
    struct rank r = open_rank(2);
    run_all(&r);
    close_rank(&r);
}

static void collectives_of_4(void)
{
    struct rank r = open_rank(4);
    run_all(&r);
    close_rank(&r);
}

static ncclUniqueId thread_id;

static void *run_thread(void *argument)
{
    struct rank *r = argument;
    OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    OK(ncclCommInitRank(&r->comm, r->n, thread_id, r->rank));
    run_all(r);
    close_rank(r);
    return NULL;
}

static void collectives_of_threads(void)
{
    struct rank ranks[3];
    pthread_t threads[3];
    OK(ncclGetUniqueId(&thread_id));
    for (int i = 0; i < 3; i++) {
        ranks[i] = (struct rank){.rank = i, .n = 3};
        OK(pthread_create(&threads[i], NULL, run_thread, &ranks[i]));
    }
    for (int i = 0; i < 3; i++) OK(pthread_join(threads[i], NULL));
}

static void bfloat16_is_rounded(void)
{
    struct rank r = open_rank(2);
    uint16_t *host;
    void *p;
    OK(cudaMalloc(&p, 4));
    OK(cudaHostAlloc((void **)&host, 4, 0));
    host[0] = r.rank ? 0x3f80 : 0x4380; /* 1 and 256: the sum lies between two numbers, the even one is 256 */
    host[1] = 0x3f80;
    OK(cudaMemcpyAsync(p, host, 4, cudaMemcpyHostToDevice, r.stream));
    OK(ncclAllReduce(p, p, 2, ncclBfloat16, ncclSum, r.comm, r.stream));
    OK(cudaStreamSynchronize(r.stream));
    OK(cudaMemcpyAsync(host, p, 4, cudaMemcpyDeviceToHost, r.stream));
    OK(cudaStreamSynchronize(r.stream));
    CHECK(host[0] == 0x4380 && host[1] == 0x4000);
    OK(cudaFree(p));
    OK(cudaFreeHost(host));
    close_rank(&r);
}

/* A ring: each sends to the next and receives from the one before; more than a box holds. */
static void messages_round_a_ring(void)
{
    struct rank r = open_rank(3);
    size_t n = 300000;
    float *a = floats(&r, n, (float)r.rank, 1), *b = floats(&r, n, 0, 0);
    int next = (r.rank + 1) % 3, before = (r.rank + 2) % 3;
    for (int i = 0; i < 3; i++) {
        OK(ncclGroupStart());
        OK(ncclSend(a, n, ncclFloat32, next, r.comm, r.stream));
        OK(ncclRecv(b, n, ncclFloat32, before, r.comm, r.stream));
        OK(ncclGroupEnd());
        check_floats(&r, b, n, (float)before, 1);
    }
    /* and one way, without a group */
    if (r.rank == 0) OK(ncclSend(a, 10, ncclFloat32, 2, r.comm, r.stream));
    if (r.rank == 2) OK(ncclRecv(b, 10, ncclFloat32, 0, r.comm, r.stream));
    OK(ncclAllReduce(a, a, n, ncclFloat32, ncclSum, r.comm, r.stream));
    check_floats(&r, a, n, 3, 3);
    OK(cudaFree(a));
    OK(cudaFree(b));
    close_rank(&r);
}

/* The host of rank 1 never waits for its collective; it waits for a file that rank 0 makes after its own one. */
static void a_rank_that_looks_away_does_its_part(void)
{
    struct rank r = open_rank(2);
    char path[200];
    float *a = floats(&r, 10, 1, 0);
    snprintf(path, sizeof path, "%s.done", scenario_file());
    OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r.comm, r.stream));
    if (r.rank == 0) {
        OK(cudaStreamSynchronize(r.stream));
        fclose(fopen(path, "w"));
    } else {
        while (access(path, F_OK)) usleep(1000);
        unlink(path);
    }
    check_floats(&r, a, 10, 2, 0);
    OK(cudaFree(a));
    close_rank(&r);
}

/*
 * Two communicators on two streams, forced in different orders by the ranks. A device runs both streams at once, so
 * this must end; and an event between the streams must be followed.
 */
static void two_communicators_crosswise(void)
{
    struct rank r = open_rank(2);
    ncclComm_t other;
    cudaStream_t second;
    cudaEvent_t event;
    float *a = floats(&r, 10, 1, 0), *b = floats(&r, 10, 2, 0);
    OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(ncclCommInitRank(&other, 2, get_id(r.rank, 1), r.rank));
    for (int i = 0; i < 20; i++) {
        OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclMax, r.comm, r.stream));
        OK(cudaEventRecord(event, r.stream));
        OK(ncclAllReduce(b, b, 10, ncclFloat32, ncclMax, other, second));
        OK(cudaStreamWaitEvent(second, event, 0));
        OK(cudaMemcpyAsync(b, a, 40, cudaMemcpyDeviceToDevice, second));
        OK(cudaEventRecord(event, second));
        OK(cudaStreamWaitEvent(r.stream, event, 0));
        if (i % 2) OK(cudaStreamSynchronize(r.rank ? r.stream : second));
        if (i % 5 == 4)
            while (cudaStreamQuery(r.rank ? second : r.stream) == cudaErrorNotReady)
                ;
    }
    OK(cudaStreamSynchronize(second));
    check_floats(&r, b, 10, 1, 0);
    OK(ncclCommFinalize(other));
    OK(ncclCommDestroy(other));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(second));
    OK(cudaFree(a));
    OK(cudaFree(b));
    close_rank(&r);
}

static void settle(ncclComm_t comm, ncclResult_t result)
{
    while (result == ncclInProgress) {
        OK(ncclCommGetAsyncError(comm, &result));
        usleep(100);
    }
    OK(result);
}

static void calls_in_progress(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct rank r = {.rank = scenario_rank(), .n = 2};
    ncclUniqueId id = get_id(r.rank, 0);
    config.blocking = 0;
    OK(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    ncclResult_t result = ncclCommInitRankConfig(&r.comm, 2, id, r.rank, &config);
    settle(r.comm, result);
    float *a = floats(&r, 10, 1, 0);
    int in_progress = 0;
    for (int i = 0; i < 50; i++) {
        result = ncclAllReduce(a, a, 10, ncclFloat32, ncclMax, r.comm, r.stream);
        in_progress += result == ncclInProgress;
        settle(r.comm, result);
    }
    CHECK(in_progress > 0);
    check_floats(&r, a, 10, 1, 0);
    OK(cudaFree(a));
    OK(cudaStreamDestroy(r.stream));
    settle(r.comm, ncclCommFinalize(r.comm));
    OK(ncclCommDestroy(r.comm));
}

/* Rank 1 never calls; rank 0 asks whether it is done, loses patience and aborts. */
static void an_abort_ends_the_wait(void)
{
    struct rank r = open_rank(2);
    float *a = floats(&r, 10, 1, 0), *b;
    OK(cudaMalloc((void **)&b, 80));
    if (r.rank == 0) {
        OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r.comm, r.stream));
        OK(ncclAllGather(a, b, 10, ncclFloat32, r.comm, r.stream));
        for (int i = 0; i < 100; i++) {
            CHECK(cudaStreamQuery(r.stream) == cudaErrorNotReady);
            usleep(1000);
        }
        OK(cudaMemcpyAsync(a, b, 40, cudaMemcpyDeviceToDevice, r.stream)); /* it does not know yet */
        OK(ncclCommAbort(r.comm));
        OK(cudaStreamSynchronize(r.stream));
    } else {
        ncclResult_t error = ncclSuccess;
        while (error != ncclRemoteError) {
            OK(ncclCommGetAsyncError(r.comm, &error));
            usleep(1000);
        }
        OK(ncclCommAbort(r.comm));
    }
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaStreamDestroy(r.stream));
}

/* Rank 1 is killed: rank 0 learns of it. */
static void a_lost_rank_is_an_error(void)
{
    struct rank r = open_rank(2);
    ncclResult_t error = ncclSuccess;
    float *a = floats(&r, 10, 1, 0);
    if (r.rank == 1) {
        usleep(50000);
        _exit(0);
    }
    OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r.comm, r.stream));
    while (error != ncclRemoteError) {
        CHECK(cudaStreamQuery(r.stream) == cudaErrorNotReady);
        OK(ncclCommGetAsyncError(r.comm, &error));
        usleep(1000);
    }
    OK(ncclCommAbort(r.comm));
    OK(cudaStreamSynchronize(r.stream));
    OK(cudaFree(a));
    OK(cudaStreamDestroy(r.stream));
}

static void a_chosen_call_fails(void)
{
    struct rank r = open_rank(2);
    float *a = floats(&r, 10, 1, 0);
    CHECK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSystemError);
    OK(ncclCommAbort(r.comm));
    OK(cudaFree(a));
    OK(cudaStreamDestroy(r.stream));
}

static void without_data_calls_still_meet(void)
{
    struct rank r = open_rank(2);
    struct cudasim_counters c;
    void *a;
    OK(cudaMalloc(&a, (size_t)8 << 30));
    for (int i = 0; i < 100; i++) OK(ncclAllReduce(a, a, (size_t)2 << 30, ncclFloat32, ncclSum, r.comm, r.stream));
    OK(cudaStreamSynchronize(r.stream));
    cudasim_get_counters(&c);
    CHECK(c.collectives == 100 && c.collective_bytes == (uint64_t)800 << 30);
    OK(cudaFree(a));
    close_rank(&r);
}

/* ---- planted ---- */

static void different_counts(void)
{
    struct rank r = open_rank(2);
    float *a = floats(&r, 10, 1, 0);
    OK(ncclAllReduce(a, a, r.rank ? 10 : 9, ncclFloat32, ncclSum, r.comm, r.stream));
    close_rank(&r);
}

static void different_types(void)
{
    struct rank r = open_rank(2);
    float *a = floats(&r, 10, 1, 0);
    OK(ncclAllReduce(a, a, 10, r.rank ? ncclFloat32 : ncclInt32, ncclSum, r.comm, r.stream));
    close_rank(&r);
}

static void different_order(void)
{
    struct rank r = open_rank(2);
    float *a = floats(&r, 20, 1, 0);
    if (r.rank == 0) OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r.comm, r.stream));
    OK(ncclBroadcast(a, a, 10, ncclFloat32, 0, r.comm, r.stream));
    if (r.rank == 1) OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r.comm, r.stream));
    close_rank(&r);
}

static void missing_peer(void)
{
    struct rank r = open_rank(2);
    float *a = floats(&r, 10, 1, 0);
    if (r.rank == 0) {
        OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r.comm, r.stream));
        OK(cudaStreamSynchronize(r.stream));
    }
    usleep(2500000);
    _exit(0);
}

static void missing_rank(void)
{
    if (scenario_rank() == 0) open_rank(2);
}

/* Both send first: where neither may keep the message for the other, neither gets on. */
static void both_send_first(void)
{
    struct rank r = open_rank(2);
    float *a = floats(&r, 10, 1, 0), *b = floats(&r, 10, 1, 0);
    OK(ncclSend(a, 10, ncclFloat32, 1 - r.rank, r.comm, r.stream));
    OK(ncclRecv(b, 10, ncclFloat32, 1 - r.rank, r.comm, r.stream));
    close_rank(&r);
}

static void message_of_another_size(void)
{
    struct rank r = open_rank(2);
    float *a = floats(&r, 10, 1, 0);
    if (r.rank == 0)
        OK(ncclSend(a, 10, ncclFloat32, 1, r.comm, r.stream));
    else
        OK(ncclRecv(a, 9, ncclFloat32, 0, r.comm, r.stream));
    close_rank(&r);
}

static void receive_buffer_too_small(void)
{
    struct rank r = open_rank(2);
    float *a = floats(&r, 10, 1, 0), *b = floats(&r, 19, 1, 0);
    ncclAllGather(a, b, 10, ncclFloat32, r.comm, r.stream);
}

static void collective_beside_a_copy(void)
{
    struct rank r = open_rank(2);
    cudaStream_t second;
    float *a = floats(&r, 10, 1, 0);
    OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r.comm, r.stream));
    OK(cudaMemsetAsync(a, 0, 40, second));
    OK(cudaDeviceSynchronize());
    close_rank(&r);
}

static void call_while_in_progress(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct rank r = {.rank = scenario_rank(), .n = 2};
    ncclUniqueId id = get_id(r.rank, 0);
    config.blocking = 0;
    OK(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    ncclResult_t result = ncclCommInitRankConfig(&r.comm, 2, id, r.rank, &config);
    while (r.rank == 1 && result != ncclRemoteError) { /* it is there until the other one has ended */
        OK(ncclCommGetAsyncError(r.comm, &result));
        usleep(100);
    }
    if (r.rank == 1) _exit(0);
    settle(r.comm, result);
    float *a = floats(&r, 10, 1, 0);
    for (int i = 0; i < 50; i++) ncclAllReduce(a, a, 10, ncclFloat32, ncclMax, r.comm, r.stream);
    _exit(cudasim_reports() ? 86 : 0);
}

static void communicator_leak(void)
{
    struct rank r = open_rank(2);
    OK(cudaStreamDestroy(r.stream));
}

int main(int argc, char **argv)
{
#define GOOD_RANKS(name, n, environment)                                                                               \
    {                                                                                                                  \
#name, name, NULL, environment, n                                                                              \
    }
#define BUG_RANKS(name, n, report)                                                                                     \
    {                                                                                                                  \
#name, name, report, "CUDASIM_NCCL_TIMEOUT=1", n                                                               \
    }
    static const struct scenario all[] = {
        GOOD_RANKS(collectives_of_2, 2, NULL),
        GOOD_RANKS(collectives_of_4, 4, "CUDASIM_SEED=3"),
        GOOD_RANKS(collectives_of_threads, 1, NULL),
        GOOD_RANKS(bfloat16_is_rounded, 2, NULL),
        GOOD_RANKS(messages_round_a_ring, 3, NULL),
        GOOD_RANKS(a_rank_that_looks_away_does_its_part, 2, NULL),
        GOOD_RANKS(two_communicators_crosswise, 2, NULL),
        {"two_communicators_crosswise_seed_2", two_communicators_crosswise, NULL, "CUDASIM_SEED=2", 2},
        GOOD_RANKS(calls_in_progress, 2, "CUDASIM_SEED=1"),
        GOOD_RANKS(an_abort_ends_the_wait, 2, NULL),
        GOOD_RANKS(a_lost_rank_is_an_error, 2, NULL),
        GOOD_RANKS(a_chosen_call_fails, 2, "CUDASIM_FAIL=nccl:2"),
        GOOD_RANKS(without_data_calls_still_meet, 2, "CUDASIM_DATA=0"),
        BUG_RANKS(different_counts, 2, "do not call alike: rank"),
        BUG_RANKS(different_types, 2, "do not call alike: rank"),
        BUG_RANKS(different_order, 2, "do not call alike: rank"),
        BUG_RANKS(missing_peer, 2,
                  "rank 0 of 2 waited too long for its peers; rank 0 waits in ncclAllReduce (call 1: 10 elements"),
        BUG_RANKS(missing_rank, 2, "rank 1 has not joined"),
        BUG_RANKS(both_send_first, 2, "waits in ncclSend"),
        BUG_RANKS(message_of_another_size, 2, "rank 0 sends 40 bytes of type 7, rank 1 receives 36 bytes"),
        BUG_RANKS(receive_buffer_too_small, 2, "ncclAllGather: the receive buffer: 80 bytes at"),
        BUG_RANKS(collective_beside_a_copy, 2, "stream hazard: "),
        {"call_while_in_progress", call_while_in_progress, "still has a call in progress", "CUDASIM_SEED=1", 2},
        BUG_RANKS(communicator_leak, 2, "leak: 1 NCCL communicators"),
    };
    return scenarios_main(argc, argv, all, sizeof all / sizeof *all);
}
