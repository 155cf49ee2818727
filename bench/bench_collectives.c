/* SPDX-License-Identifier: MIT */
/*
 * Bandwidth of the collectives, as JSON: run alone it uses threads, under mpirun processes. Bus bandwidth as
 * nccl-tests define it: bytes / time * 2 (n - 1) / n for all_reduce, * (n - 1) / n for the others. Best of
 * several rounds, because others use the machine too.
 *
 *   build/release/bench/bench_collectives [ranks]          threads
 *   mpirun -n 2 build/release/bench/bench_collectives      processes
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "comm/launch.h"
#include "comm/local.h"
#include "comm/place.h"

enum { ROUNDS = 12, N_OPERATIONS = 4, N_SIZES = 5 };

static const size_t sizes_bytes[N_SIZES] = {1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
static const char *const operation_names[N_OPERATIONS] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};

struct bench {
    struct comm *comm;
    double best_s[N_OPERATIONS][N_SIZES];
    struct error e;
    err_t rc;
};

static err_t call(struct comm *c, int operation, char *a, char *b, size_t bytes, struct error *e)
{
    size_t count = bytes / 4, part = count / (size_t)c->size;

    switch (operation) {
    case 0: return comm_all_reduce(c, "bench", a, count, DTYPE_FLOAT32, COMM_SUM, NULL, e);
    case 1: return comm_reduce_scatter(c, "bench", a, b, part, DTYPE_FLOAT32, COMM_SUM, NULL, e);
    case 2: return comm_all_gather(c, "bench", b, a, part, DTYPE_FLOAT32, NULL, e);
    default: return comm_broadcast(c, "bench", a, bytes, 0, NULL, e);
    }
}

/* The slowest rank's time counts. */
static err_t time_one(struct bench *b, int operation, int size, char *x, char *y)
{
    double best = 1e9;

    for (int round = 0; round < ROUNDS; round++) {
        double seconds;
        int64_t start_ns;
        err_t rc = comm_barrier(b->comm, "start", &b->e);

        if (rc) return rc;
        start_ns = clock_ns();
        if ((rc = call(b->comm, operation, x, y, sizes_bytes[size], &b->e))) return rc;
        seconds = (double)(clock_ns() - start_ns) * 1e-9;
        if ((rc = comm_all_reduce(b->comm, "slowest", &seconds, 1, DTYPE_FLOAT64, COMM_MAX, NULL, &b->e))) return rc;
        if (round > 0 && seconds < best) best = seconds;
    }
    b->best_s[operation][size] = best;
    return ERR_NONE;
}

static void *run(void *arg)
{
    struct bench *b = arg;
    size_t largest = sizes_bytes[N_SIZES - 1];
    char *x = aligned_alloc(4096, largest), *y = aligned_alloc(4096, largest);

    struct affinity place;

    b->rc = comm_place(b->comm, 1, &place, &b->e); /* as in training: each rank on a core of its own */
    if (!b->rc) b->rc = affinity_apply(&place, &b->e);
    if (!x || !y) b->rc = FAIL(&b->e, ERR_MEMORY, "out of memory");
    for (size_t i = 0; !b->rc && i < largest / 4; i++) ((float *)x)[i] = ((float *)y)[i] = 1e-3f;
    for (int operation = 0; operation < N_OPERATIONS; operation++)
        for (int size = 0; size < N_SIZES && !b->rc; size++) b->rc = time_one(b, operation, size, x, y);
    if (b->rc) comm_abort(b->comm, b->e.message);
    free(x);
    free(y);
    return NULL;
}

static void print(const struct bench *b)
{
    int n = b->comm->size;
    struct str s = {0};

    json_open(&s, '{');
    json_member_text(&s, "bench", "collectives");
    json_member_text(&s, "backend", b->comm->ops->name);
    json_member_int(&s, "ranks", n);
    json_member_int(&s, "hosts", b->comm->n_hosts);
    for (int operation = 0; operation < N_OPERATIONS; operation++) {
        json_key(&s, operation_names[operation]);
        json_open(&s, '[');
        for (int size = 0; size < N_SIZES; size++) {
            double factor = (operation == 0 ? 2.0 : 1.0) * (n - 1) / n, seconds = b->best_s[operation][size];

            json_open(&s, '{');
            json_member_int(&s, "bytes", (int64_t)sizes_bytes[size]);
            json_member_number(&s, "microseconds", (double)(int64_t)(seconds * 1e8) / 100);
            json_member_number(&s, "bus_gb_per_s",
                               (double)(int64_t)((double)sizes_bytes[size] * factor / seconds * 1e-7) / 100);
            json_close(&s, '}');
        }
        json_close(&s, ']');
    }
    json_close(&s, '}');
    puts(str_text(&s));
    str_release(&s);
}

static int run_threads(int n)
{
    struct comm *comms[64] = {NULL};
    struct bench *benches = calloc(64, sizeof *benches);
    pthread_t threads[64];
    struct error e = {0};
    int failed = 0;

    if (n < 1 || n > 64 || comm_local_create(n, NULL, comms, &e)) {
        fprintf(stderr, "bench_collectives: %s\n", e.message[0] ? e.message : "want 1 to 64 ranks");
        free(benches);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        benches[i].comm = comms[i];
        if (pthread_create(&threads[i], NULL, run, &benches[i])) abort();
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < n; i++) failed += benches[i].rc != ERR_NONE;
    if (failed)
        fprintf(stderr, "bench_collectives: %s\n", benches[0].e.message);
    else
        print(&benches[0]);
    for (int i = 0; i < n; i++) comm_destroy(comms[i]);
    free(benches);
    return failed != 0;
}

/* The plugin lies in the build folder above this program's. */
static void find_plugin(const char *program)
{
    char path[4096];
    const char *slash = strrchr(program, '/');

    snprintf(path, sizeof path, "%.*s/..", slash ? (int)(slash - program) : 1, slash ? program : ".");
    setenv("CTITAN_PLUGIN_PATH", path, 0);
}

int main(int argc, char **argv)
{
    struct comm_launch launch;
    struct comm_world world;
    struct bench b = {0};

    comm_launch_detect(&launch);
    if (!launch.launcher) return run_threads(argc > 1 ? atoi(argv[1]) : 2);
    find_plugin(argv[0]);
    if (comm_world_open(&world, NULL, &b.e)) {
        fprintf(stderr, "bench_collectives: %s\n", b.e.message);
        return 1;
    }
    b.comm = world.comm;
    run(&b);
    if (!b.rc && b.comm->rank == 0) print(&b);
    if (b.rc) fprintf(stderr, "bench_collectives: rank %d: %s\n", b.comm->rank, b.e.message);
    return comm_world_close(&world, b.rc != ERR_NONE, &b.e) || b.rc;
}
