/* SPDX-License-Identifier: MIT */
/* The conformance checks of communicators; see comm_cases.h. Values are hashes of (rank, index), so each rank
 * knows everyone's. */
#include "tests/support/comm_cases.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static const size_t counts[] = {0, 1, 2, 7, 64, 1000, 1027, 4096, 5003, 100003, 262144 + 17};
enum { N_COUNTS = (int)(sizeof counts / sizeof *counts) };

static const enum dtype reducible[] = {DTYPE_FLOAT32, DTYPE_FLOAT64, DTYPE_INT64};

/* Magnitudes from 2^-8 to 2^7, so that the order of a sum shows in its bits. */
static double value(int rank, size_t i)
{
    uint64_t h = hash_mix((uint64_t)rank * 0x9e3779b97f4a7c15u + i + 1);
    double mantissa = (double)(int64_t)(h >> 12) * 0x1p-52 * 2 - 1;

    return ldexp(mantissa, (int)(h & 15) - 8);
}

static void put(void *data, size_t at, enum dtype type, int rank, size_t i)
{
    if (type == DTYPE_FLOAT32) ((float *)data)[at] = (float)value(rank, i);
    if (type == DTYPE_FLOAT64) ((double *)data)[at] = value(rank, i);
    if (type == DTYPE_INT64) ((int64_t *)data)[at] = (int64_t)(value(rank, i) * 1e6);
}

/* acc = acc op value, in the type's own arithmetic. */
static void combine(void *acc, enum dtype type, enum comm_operator op, int rank, size_t i)
{
#define COMBINE(T)                                                                                                     \
    do {                                                                                                               \
        T a, b;                                                                                                        \
        memcpy(&a, acc, sizeof a);                                                                                     \
        put(&b, 0, type, rank, i);                                                                                     \
        a = op == COMM_SUM ? a + b : op == COMM_MIN ? (b < a ? b : a) : (b > a ? b : a);                               \
        memcpy(acc, &a, sizeof a);                                                                                     \
    } while (0)
    if (type == DTYPE_FLOAT32) COMBINE(float);
    if (type == DTYPE_FLOAT64) COMBINE(double);
    if (type == DTYPE_INT64) COMBINE(int64_t);
#undef COMBINE
}

/* Whether got[i] is the reduction over all ranks of element offset + i, for all i < count. */
static bool is_reduced(const struct comm *c, const void *got, size_t count, size_t offset, enum dtype type,
                       enum comm_operator op)
{
    size_t width = dtype_bytes(type);

    for (size_t i = 0; i < count; i++) {
        char want[8];

        put(want, 0, type, 0, offset + i);
        for (int q = 1; q < c->size; q++) combine(want, type, op, q, offset + i);
        if (memcmp((const char *)got + i * width, want, width) != 0) return false;
    }
    return true;
}

static void fill(void *data, size_t count, enum dtype type, int rank)
{
    for (size_t i = 0; i < count; i++) put(data, i, type, rank, i);
}

static void all_reduce_once(struct rank_test *t, size_t count, enum dtype type, enum comm_operator op)
{
    void *data = malloc(count * 8 + 8);
    struct error e = {0};

    fill(data, count, type, t->comm->rank);
    rank_check_ok(t, comm_all_reduce(t->comm, "test", data, count, type, op, NULL, &e));
    rank_check_at(t, is_reduced(t->comm, data, count, 0, type, op), __FILE__, __LINE__, "all_reduce: %s of %zu %s",
                  comm_operator_name(op), count, dtype_name(type));
    free(data);
}

void case_all_reduce(struct rank_test *t)
{
    for (int k = 0; k < N_COUNTS; k++)
        for (int y = 0; y < 3; y++)
            for (int op = COMM_SUM; op <= (counts[k] > 50000 ? COMM_SUM : COMM_MAX); op++)
                all_reduce_once(t, counts[k], reducible[y], (enum comm_operator)op);
}

static void reduce_scatter_once(struct rank_test *t, size_t count, enum dtype type, enum comm_operator op)
{
    size_t all = count * (size_t)t->comm->size;
    void *send = malloc(all * 8 + 8), *recv = malloc(count * 8 + 8);
    struct error e = {0};

    fill(send, all, type, t->comm->rank);
    rank_check_ok(t, comm_reduce_scatter(t->comm, "test", send, recv, count, type, op, NULL, &e));
    rank_check_at(t, is_reduced(t->comm, recv, count, count * (size_t)t->comm->rank, type, op), __FILE__, __LINE__,
                  "reduce_scatter: %s of %zu %s", comm_operator_name(op), count, dtype_name(type));
    free(send);
    free(recv);
}

void case_reduce_scatter(struct rank_test *t)
{
    for (int k = 0; k < N_COUNTS - 1; k++)
        for (int y = 0; y < 3; y++)
            for (int op = COMM_SUM; op <= (counts[k] > 50000 ? COMM_SUM : COMM_MAX); op++)
                reduce_scatter_once(t, counts[k], reducible[y], (enum comm_operator)op);
}

static unsigned char byte_of(int rank, size_t i) { return (unsigned char)(hash_mix((uint64_t)rank << 40 | i)); }

static void all_gather_once(struct rank_test *t, size_t count, enum dtype type, bool in_place)
{
    size_t bytes = count * dtype_bytes(type), wrong = 0;
    unsigned char *send = malloc(bytes + 1), *recv = malloc(bytes * (size_t)t->comm->size + 1), *from;
    struct error e = {0};

    from = in_place ? recv + (size_t)t->comm->rank * bytes : send;
    for (size_t i = 0; i < bytes; i++) from[i] = byte_of(t->comm->rank, i);
    rank_check_ok(t, comm_all_gather(t->comm, "test", from, recv, count, type, NULL, &e));
    for (int q = 0; q < t->comm->size; q++)
        for (size_t i = 0; i < bytes; i++) wrong += recv[(size_t)q * bytes + i] != byte_of(q, i);
    rank_check_at(t, wrong == 0, __FILE__, __LINE__, "all_gather of %zu %s: %zu bytes differ", count, dtype_name(type),
                  wrong);
    free(send);
    free(recv);
}

void case_all_gather(struct rank_test *t)
{
    for (int k = 0; k < N_COUNTS - 1; k++)
        for (int type = 0; type < DTYPE_COUNT; type++) all_gather_once(t, counts[k], (enum dtype)type, type & 1);
}

void case_broadcast(struct rank_test *t)
{
    for (int k = 0; k < N_COUNTS; k++)
        for (int root = 0; root < t->comm->size; root++) {
            unsigned char *data = malloc(counts[k] + 1);
            size_t wrong = 0;
            struct error e = {0};

            for (size_t i = 0; i < counts[k]; i++) data[i] = byte_of(t->comm->rank, i);
            rank_check_ok(t, comm_broadcast(t->comm, "test", data, counts[k], root, NULL, &e));
            for (size_t i = 0; i < counts[k]; i++) wrong += data[i] != byte_of(root, i);
            rank_check_at(t, wrong == 0, __FILE__, __LINE__, "broadcast of %zu bytes: %zu differ", counts[k], wrong);
            free(data);
        }
}

void case_mixed_sizes(struct rank_test *t)
{
    struct error e = {0};

    for (int round = 0; round < 40; round++) {
        size_t count = counts[hash_mix((uint64_t)round) % (N_COUNTS - 2)];

        switch (hash_mix((uint64_t)round + 1000) % 4) {
        case 0: all_reduce_once(t, count, DTYPE_FLOAT32, COMM_SUM); break;
        case 1: reduce_scatter_once(t, count, DTYPE_FLOAT64, COMM_SUM); break;
        case 2: all_gather_once(t, count, DTYPE_INT32, false); break;
        case 3: rank_check_ok(t, comm_barrier(t->comm, "between", &e)); break;
        }
    }
}

/* A few collectives on a group, as a test of its own. */
static void use_group(struct rank_test *t, struct comm *group)
{
    struct rank_test inner = {.comm = group};

    all_reduce_once(&inner, 1027, DTYPE_FLOAT32, COMM_SUM);
    all_gather_once(&inner, 5003, DTYPE_FLOAT64, false);
    reduce_scatter_once(&inner, 100, DTYPE_FLOAT64, COMM_SUM);
    t->failures += inner.failures;
}

void case_split(struct rank_test *t)
{
    struct comm *c = t->comm, *parity = NULL, *reversed = NULL, *alone = NULL, *pair = NULL;
    struct error e = {0};
    int of_parity = (c->size + 1 - c->rank % 2) / 2;

    if (!rank_check_ok(t, comm_split(c, c->rank % 2, c->rank, &parity, &e))) return;
    if (!rank_check_ok(t, comm_split(c, 0, -c->rank, &reversed, &e))) return;
    if (!rank_check_ok(t, comm_split(c, c->rank, 0, &alone, &e))) return;
    if (!rank_check_ok(t, comm_split(parity, parity->rank / 2, 0, &pair, &e))) return;
    rank_check(t, parity->size == of_parity && parity->rank == c->rank / 2);
    rank_check(t, reversed->size == c->size && reversed->rank == c->size - 1 - c->rank);
    rank_check(t, alone->size == 1 && alone->rank == 0);
    rank_check(t, pair->size <= 2 && pair->rank == parity->rank % 2);
    rank_check(t,
               pair->world_rank == c->world_rank && pair->local_size == c->local_size && pair->n_hosts == c->n_hosts);
    for (int round = 0; round < 3; round++) {
        use_group(t, parity);
        use_group(t, reversed);
        use_group(t, alone);
        use_group(t, pair);
        use_group(t, c);
    }
    comm_destroy(parity); /* a group outlives the one it was made from */
    use_group(t, pair);
    comm_destroy(pair);
    comm_destroy(alone);
    comm_destroy(reversed);
}

void case_split_ranks(struct rank_test *t)
{
    struct comm *c = t->comm, *half = NULL;
    int first = c->rank < (c->size + 1) / 2 ? 0 : (c->size + 1) / 2, ranks[64], n = 0, inside = -1;
    struct error e = {0};

    /* the lower and the upper half, each from its highest rank down */
    for (int q = c->size - 1; q >= 0; q--) {
        bool lower = q < (c->size + 1) / 2;

        if (lower != (first == 0)) continue;
        if (q == c->rank) inside = n;
        ranks[n++] = q;
    }
    if (!rank_check_ok(t, comm_split_ranks(c, ranks, n, &half, &e))) return;
    rank_check(t, half->size == n && half->rank == inside);
    use_group(t, half);
    comm_destroy(half);
}

void case_not_a_number(struct rank_test *t)
{
    struct error e = {0};

    for (int where = 0; where < t->comm->size; where++)
        for (int op = COMM_SUM; op <= COMM_MAX; op++) {
            float x[33];
            double y = t->comm->rank == where ? NAN : t->comm->rank;

            for (int i = 0; i < 33; i++) x[i] = t->comm->rank == where && i == 17 ? NAN : (float)i;
            rank_check_ok(t, comm_all_reduce(t->comm, "nan", x, 33, DTYPE_FLOAT32, (enum comm_operator)op, NULL, &e));
            rank_check_ok(t, comm_all_reduce(t->comm, "nan", &y, 1, DTYPE_FLOAT64, (enum comm_operator)op, NULL, &e));
            for (int i = 0; i < 33; i++) rank_check(t, isnan(x[i]) == (i == 17));
            rank_check(t, isnan(y));
        }
}

void case_bad_arguments(struct rank_test *t)
{
    struct comm *c = t->comm, *out = NULL;
    int outside = c->size, other = c->rank + 1;
    float x[4] = {0};
    struct error e = {0};

    rank_check(t, comm_all_reduce(c, "x", NULL, 4, DTYPE_FLOAT32, COMM_SUM, NULL, &e) == ERR_COMM);
    rank_check(t, comm_all_reduce(c, "x", x, 4, DTYPE_BFLOAT16, COMM_SUM, NULL, &e) == ERR_COMM);
    rank_check(t, comm_all_reduce(c, "x", x, 4, DTYPE_FLOAT32, (enum comm_operator)9, NULL, &e) == ERR_COMM);
    rank_check(t, comm_all_reduce(c, "x", x, SIZE_MAX / 4, DTYPE_FLOAT32, COMM_SUM, NULL, &e) == ERR_COMM);
    rank_check(t, comm_all_gather(c, "x", x, x, 4, (enum dtype)99, NULL, &e) == ERR_COMM);
    rank_check(t, comm_broadcast(c, "x", x, 4, c->size, NULL, &e) == ERR_COMM);
    rank_check(t, comm_broadcast(c, "x", x, 4, -1, NULL, &e) == ERR_COMM);
    rank_check(t, comm_split_ranks(c, &outside, 1, &out, &e) == ERR_COMM && !out);
    rank_check(t, c->size == 1 || comm_split_ranks(c, &other, 1, &out, &e) == ERR_COMM);
    rank_check_ok(t, comm_all_reduce(c, NULL, x, 4, DTYPE_FLOAT32, COMM_SUM, NULL, &e));
}
