/* SPDX-License-Identifier: MIT */
/*
 * Open MPI's side of the collectives benchmark: the library's own operations, timed as bench_collectives times ours,
 * one JSON line. tools/bench compiles it with mpicc.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 12, N_OPERATIONS = 4, N_SIZES = 5 };

static const int sizes_bytes[N_SIZES] = {1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
static const char *const operation_names[N_OPERATIONS] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};

static void call(int operation, float *a, float *b, int count, int ranks)
{
    switch (operation) {
    case 0: MPI_Allreduce(MPI_IN_PLACE, a, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case 1: MPI_Reduce_scatter_block(a, b, count / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case 2: MPI_Allgather(b, count / ranks, MPI_FLOAT, a, count / ranks, MPI_FLOAT, MPI_COMM_WORLD); break;
    default: MPI_Bcast(a, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    }
}

/* The slowest rank's time counts, the first round does not. */
static double best_seconds(int operation, float *a, float *b, int count, int ranks)
{
    double best = 1e9;

    for (int round = 0; round < ROUNDS; round++) {
        double seconds, slowest;

        MPI_Barrier(MPI_COMM_WORLD);
        seconds = MPI_Wtime();
        call(operation, a, b, count, ranks);
        seconds = MPI_Wtime() - seconds;
        MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (round > 0 && slowest < best) best = slowest;
    }
    return best;
}

int main(int argc, char **argv)
{
    const size_t largest = (size_t)sizes_bytes[N_SIZES - 1];
    float *a = aligned_alloc(4096, largest), *b = aligned_alloc(4096, largest);
    int ranks, rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!a || !b) MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < largest / sizeof *a; i++) a[i] = b[i] = 1e-3f;
    for (int operation = 0; operation < N_OPERATIONS; operation++) {
        if (rank == 0)
            printf(operation ? ",\"%s\":[" : "{\"bench\":\"collectives\",\"backend\":\"Open MPI\",\"%s\":[",
                   operation_names[operation]);
        for (int size = 0; size < N_SIZES; size++) {
            double seconds = best_seconds(operation, a, b, sizes_bytes[size] / (int)sizeof *a, ranks);

            if (rank == 0)
                printf("%s{\"bytes\":%d,\"microseconds\":%.2f}", size ? "," : "", sizes_bytes[size], seconds * 1e6);
        }
        if (rank == 0) printf("]");
    }
    if (rank == 0) printf("}\n");
    MPI_Finalize();
    free(a);
    free(b);
    return 0;
}
