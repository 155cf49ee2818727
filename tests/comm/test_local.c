/* SPDX-License-Identifier: MIT */
/* Ranks as threads: right bits for every call, and clear, prompt ends when a rank stays away, fails, leaves
 * or calls something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/trace.h"
#include "comm/local.h"
#include "tests/support/comm_cases.h"

static const int sizes[] = {1, 2, 3, 4, 7};

#define ON_ALL_SIZES(name)                                                                                             \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) ranks_as_threads(sizes[i], 0, case_##name, NULL);    \
    }
ON_ALL_SIZES(all_reduce)
ON_ALL_SIZES(reduce_scatter)
ON_ALL_SIZES(all_gather)
ON_ALL_SIZES(broadcast)
ON_ALL_SIZES(mixed_sizes)
ON_ALL_SIZES(split)
ON_ALL_SIZES(split_ranks)
ON_ALL_SIZES(not_a_number)
ON_ALL_SIZES(bad_arguments)

static void test_many_ranks(void **state)
{
    (void)state;
    ranks_as_threads(33, 0, case_split, NULL);
    ranks_as_threads(33, 0, case_mixed_sizes, NULL);
}

/* Rank 2 does not call; everybody learns its name, and rank 2 itself too when it comes late. */
static void stay_away(struct rank_test *t)
{
    float x = 1;
    struct error e = {0};

    rank_check_ok(t, comm_barrier(t->comm, "start", &e));
    if (t->comm->rank == 2) {
        clock_sleep_ns(700 * 1000 * 1000);
        rank_check(t, comm_barrier(t->comm, "late", &e) == ERR_TIMEOUT);
        return;
    }
    rank_check(t, comm_all_reduce(t->comm, "gradient norm", &x, 1, DTYPE_FLOAT32, COMM_SUM, NULL, &e) == ERR_TIMEOUT);
    rank_check_at(t,
                  strstr(e.message,
                         "all_reduce \"gradient norm\" (sum of 1 float32): rank 2 did not arrive within 0.3 s") != NULL,
                  __FILE__, __LINE__, "%s", e.message);
    rank_check_at(t, strstr(e.message, "rank 2: #1 barrier \"start\"") != NULL, __FILE__, __LINE__, "%s", e.message);
    rank_check(t, comm_barrier(t->comm, "again", &e) == ERR_TIMEOUT); /* failed once, failed for ever */
}

static void test_timeout_names_the_missing_rank(void **state)
{
    (void)state;
    ranks_as_threads(4, 0.3, stay_away, NULL);
}

static void stay_away_in_group(struct rank_test *t)
{
    struct comm *group = NULL;
    struct error e = {0};

    comm_set_timeout(t->comm, 30);
    if (!rank_check_ok(t, comm_split(t->comm, t->comm->rank / 2, 0, &group, &e))) return;
    rank_check_ok(t, comm_barrier(t->comm, "start", &e));
    comm_set_timeout(t->comm, 0.2); /* holds for groups made before */
    if (t->comm->rank != 3) {
        /* ranks 0 and 1 are well among themselves: they end because the job has failed elsewhere */
        while (comm_barrier(group, "in group", &e) == ERR_NONE) clock_sleep_ns(1000 * 1000);
        rank_check(t, e.code == ERR_TIMEOUT);
        rank_check_at(t, strstr(e.message, "rank 3 did not") || strstr(e.message, "nobody else is here"), __FILE__,
                      __LINE__, "%s", e.message);
    } else {
        while (comm_barrier(t->comm, "nobody else is here", &e) == ERR_NONE) continue;
    }
    comm_destroy(group);
}

static void test_failure_in_a_group_ends_the_job(void **state)
{
    (void)state;
    ranks_as_threads(4, 0, stay_away_in_group, NULL);
}

static void abort_in_the_middle(struct rank_test *t)
{
    size_t count = 1 << 16; /* direct path: rank 1 must not touch the others' freed buffers */
    int64_t start = clock_ns();
    struct error e = {0};
    err_t rc = ERR_NONE;

    for (int round = 0; !rc; round++) {
        float *x = calloc(count, sizeof *x);

        if (t->comm->rank == 1 && round == 5) comm_abort(t->comm, "out of luck");
        rc = comm_all_reduce(t->comm, "sum", x, count, DTYPE_FLOAT32, COMM_SUM, NULL, &e);
        free(x);
    }
    rank_check(t, rc == ERR_PEER);
    rank_check_at(t, strstr(e.message, "rank 1 failed: out of luck") != NULL, __FILE__, __LINE__, "%s", e.message);
    rank_check(t, clock_ns() - start < (int64_t)60e9); /* far from the time-out of five minutes */
}

static void test_abort_wakes_all(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) ranks_as_threads(3, 0, abort_in_the_middle, NULL);
}

static void leave_early(struct rank_test *t)
{
    struct error e = {0};

    rank_check_ok(t, comm_barrier(t->comm, "start", &e));
    if (t->comm->rank == 0) return; /* its communicator is destroyed */
    rank_check(t, comm_barrier(t->comm, "end", &e) == ERR_PEER);
    rank_check_at(t, strstr(e.message, "rank 0 has left") != NULL, __FILE__, __LINE__, "%s", e.message);
}

static void test_leaving_early_is_noticed(void **state)
{
    (void)state;
    ranks_as_threads(3, 0, leave_early, NULL);
}

/* What rank 1 calls while the others call all_reduce "a" of 4 float32. */
enum odd_call { ODD_NAME, ODD_COUNT, ODD_LARGE, ODD_TYPE, ODD_OPERATOR, ODD_KIND, ODD_CALLS };

static void call_something_else(struct rank_test *t)
{
    static const char *const theirs[ODD_CALLS] = {"\"b\"",        "sum of 5 float32", "sum of 100000 float32",
                                                  "of 4 float64", "max of 4",         "barrier \"a\""};
    enum odd_call odd = *(const enum odd_call *)t->arg;
    bool differs = t->comm->rank == 1;
    double *x = calloc(100000, sizeof *x);
    size_t count = differs && odd == ODD_COUNT ? 5 : differs && odd == ODD_LARGE ? 100000 : 4;
    enum dtype type = differs && odd == ODD_TYPE ? DTYPE_FLOAT64 : DTYPE_FLOAT32;
    enum comm_operator op = differs && odd == ODD_OPERATOR ? COMM_MAX : COMM_SUM;
    struct error e = {0};
    err_t rc;

    if (differs && odd == ODD_KIND)
        rc = comm_barrier(t->comm, "a", &e);
    else
        rc = comm_all_reduce(t->comm, differs && odd == ODD_NAME ? "b" : "a", x, count, type, op, NULL, &e);
    rank_check_at(
        t, rc == ERR_COMM && strstr(e.message, theirs[odd]) && strstr(e.message, "all_reduce \"a\" (sum of 4 float32)"),
        __FILE__, __LINE__, "%s", e.message);
    free(x);
}

static void test_different_calls_are_named(void **state)
{
    (void)state;
    for (int odd = 0; odd < ODD_CALLS; odd++) ranks_as_threads(3, 0, call_something_else, &odd);
}

static void wait_for_sleeper(struct rank_test *t)
{
    struct trace trace;
    struct comm *group = NULL;
    struct error e = {0};

    trace_init(&trace);
    t->comm->trace = &trace;
    rank_check_ok(t, comm_split(t->comm, 0, 0, &group, &e));
    rank_check(t, group && group->trace == &trace);
    if (t->comm->rank == 0) clock_sleep_ns(100 * 1000 * 1000);
    rank_check_ok(t, comm_barrier(group, "x", &e));
    if (t->comm->rank != 0) rank_check(t, trace.total_ns[TRACE_COMMUNICATION] > 50 * 1000 * 1000);
    rank_check(t, trace.depth == 1);
    comm_destroy(group);
}

static void test_waiting_is_traced(void **state)
{
    (void)state;
    ranks_as_threads(2, 0, wait_for_sleeper, NULL);
}

static void test_creation_without_memory(void **state)
{
    struct comm *c[3];
    struct error e = {0};
    long n = 0;

    (void)state;
    for (;; n++) {
        mem_fault_arm(n);
        if (comm_local_create(3, NULL, c, &e) == ERR_NONE) break;
        assert_int_equal(e.code, ERR_MEMORY);
        for (int i = 0; i < 3; i++) assert_null(c[i]);
    }
    mem_fault_arm(-1);
    assert_true(n >= 9);
    for (int i = 0; i < 3; i++) comm_destroy(c[i]);
    assert_int_equal(comm_local_create(0, NULL, c, &e), ERR_COMM);
    assert_int_equal(comm_local_create(1 << 20, NULL, c, &e), ERR_COMM);
}

static void split_without_memory(struct rank_test *t)
{
    struct comm *group = NULL;
    struct error e = {0};
    err_t rc;

    rank_check_ok(t, comm_barrier(t->comm, "start", &e));
    if (t->comm->rank == 0) mem_fault_arm(*(const int *)t->arg);
    rank_check_ok(t, comm_barrier(t->comm, "armed", &e));
    rc = comm_split(t->comm, 0, 0, &group, &e);
    /* whoever lacked memory, everybody's next call ends promptly */
    if (!rc) rc = comm_barrier(group, "after", &e);
    rank_check(t, (rc != ERR_NONE) == (mem_fault_fired() != 0));
    rank_check(t, rc == ERR_NONE || rc == ERR_MEMORY || rc == ERR_PEER);
    comm_destroy(group);
}

static void test_split_without_memory(void **state)
{
    (void)state;
    for (int n = 0; n < 16; n++) {
        ranks_as_threads(2, 0, split_without_memory, &n);
        mem_fault_arm(-1);
    }
}

/* The job ends while two ranks split, at any point of it: no group is left behind, which a leak checker sees. */
static void split_until_the_end(struct rank_test *t)
{
    struct comm *pair = NULL, *group = NULL;
    struct error e = {0};
    err_t rc = ERR_NONE;

    if (!rank_check_ok(t, comm_split(t->comm, t->comm->rank / 2, 0, &pair, &e))) return;
    if (t->comm->rank == 2) {
        clock_sleep_ns(*(const int *)t->arg);
        comm_abort(t->comm, "enough");
    }
    for (; !rc && t->comm->rank < 2; comm_destroy(group)) {
        group = NULL;
        rc = comm_split(pair, 0, 0, &group, &e);
    }
    rank_check(t, t->comm->rank == 2 || rc == ERR_PEER);
    comm_destroy(pair);
}

static void test_split_in_a_job_that_ends(void **state)
{
    (void)state;
    for (int ns = 0; ns < 40 * 50000; ns += 50000) ranks_as_threads(3, 0, split_until_the_end, &ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_reduce_scatter),
        cmocka_unit_test(test_all_gather),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_mixed_sizes),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_ranks),
        cmocka_unit_test(test_not_a_number),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_timeout_names_the_missing_rank),
        cmocka_unit_test(test_failure_in_a_group_ends_the_job),
        cmocka_unit_test(test_abort_wakes_all),
        cmocka_unit_test(test_leaving_early_is_noticed),
        cmocka_unit_test(test_different_calls_are_named),
        cmocka_unit_test(test_waiting_is_traced),
        cmocka_unit_test(test_creation_without_memory),
        cmocka_unit_test(test_split_without_memory),
        cmocka_unit_test(test_split_in_a_job_that_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
