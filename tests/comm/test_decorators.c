/* SPDX-License-Identifier: MIT */
/* Decorators change nothing but what they are for: the conformance checks pass through them; records count,
 * faults strike once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "comm/fault.h"
#include "comm/local.h"
#include "comm/place.h"
#include "comm/record.h"
#include "comm/self.h"
#include "tests/support/comm_cases.h"

static void run_recorded(struct rank_test *t)
{
    struct comm_record record = {0};
    struct comm *inner = t->comm;
    float x[24] = {0}, y[24] = {0};
    struct error e = {0};

    if (!rank_check_ok(t, comm_record_create(inner, &record, &t->comm, &e))) return;
    case_split(t);
    case_split_ranks(t);
    case_bad_arguments(t);
    comm_record_clear(&record);
    rank_check_ok(t, comm_all_gather(t->comm, "gather layers.0", x, y, 6, DTYPE_FLOAT32, NULL, &e));
    rank_check_ok(t, comm_all_gather(t->comm, "gather layers.1", x, y, 5, DTYPE_FLOAT32, NULL, &e));
    rank_check_ok(t, comm_reduce_scatter(t->comm, "reduce layers.1", x, y, 5, DTYPE_FLOAT32, COMM_SUM, NULL, &e));
    rank_check_ok(t, comm_all_reduce(t->comm, "norm", x, 4, DTYPE_FLOAT32, COMM_MAX, NULL, &e));
    rank_check_ok(t, comm_broadcast(t->comm, "seed", x, 8, 1, NULL, &e));
    rank_check_ok(t, comm_barrier(t->comm, "end", &e));
    rank_check(t, record.n == 6 && comm_record_count(&record, CALL_ALL_GATHER, "gather ") == 2);
    rank_check(t, comm_record_bytes(&record, CALL_ALL_GATHER, "gather layers.1") == 3 * 5 * 4);
    rank_check(t, comm_record_bytes(&record, CALL_REDUCE_SCATTER, "") == 3 * 5 * 4);
    rank_check(t, comm_record_bytes(&record, CALL_ALL_REDUCE, "") == 2 * 16 * 3 / 4);
    rank_check(t, comm_record_bytes(&record, CALL_BROADCAST, "") == (t->comm->rank == 1 ? 8 : 0));
    rank_check(t, record.entries[3].op == COMM_MAX && record.entries[3].count == 4 && record.entries[3].size == 4);
    comm_record_release(&record);
}

static void test_record(void **state)
{
    (void)state;
    ranks_as_threads(4, 0, run_recorded, NULL);
}

/* Each rank makes 5 barriers; what the third of rank 1 does is in the fault. */
static void run_faulty(struct rank_test *t)
{
    struct comm_fault *fault = t->arg;
    struct comm *inner = t->comm, *group = NULL;
    int64_t start = clock_ns();
    struct error e = {0};
    err_t rc = ERR_NONE;
    int done = 0;

    if (!rank_check_ok(t, comm_fault_create(inner, fault, &t->comm, &e))) return;
    if (!rank_check_ok(t, comm_split(t->comm, 0, 0, &group, &e))) return;
    while (done < 5 && !(rc = comm_barrier(done % 2 ? group : t->comm, "x", &e))) done++;
    if (fault->action == COMM_FAULT_DELAY) {
        rank_check(t, rc == ERR_NONE && clock_ns() - start > 100 * 1000 * 1000);
    } else {
        rank_check(t, done == 2);
        if (t->comm->rank == 1)
            rank_check(t, rc == (fault->action == COMM_FAULT_FAIL ? ERR_COMM : ERR_STOPPED));
        else
            rank_check(t, rc == ERR_PEER);
        if (t->comm->rank != 1)
            rank_check_at(t, strstr(e.message, "rank 1") != NULL, __FILE__, __LINE__, "%s", e.message);
    }
    comm_destroy(group);
}

static void test_faults(void **state)
{
    const enum comm_fault_action actions[] = {COMM_FAULT_FAIL, COMM_FAULT_DELAY, COMM_FAULT_LEAVE};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct comm_fault fault = {.action = actions[i], .world_rank = 1, .nth = 3, .delay_s = 0.15};

        ranks_as_threads(3, 0, run_faulty, &fault);
    }
}

static void test_fault_kills(void **state)
{
    struct comm_fault fault = {.action = COMM_FAULT_KILL, .world_rank = 0, .nth = 2};
    struct comm *c = NULL, *faulty = NULL;
    struct error e = {0};
    int status = 0;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        if (comm_self_create(&c, &e) || comm_fault_create(c, &fault, &faulty, &e)) _exit(1);
        if (comm_barrier(faulty, "first", &e)) _exit(2);
        _exit(comm_barrier(faulty, "second", &e) ? 3 : 4);
    }
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void place(struct rank_test *t)
{
    struct affinity a, whole;
    struct affinity_mask mask;
    struct error e = {0};

    rank_check_ok(t, comm_place(t->comm, 1, &a, &e));
    rank_check_ok(t, affinity_get(&mask, &e));
    affinity_plan(&mask, 0, 1, 1, &whole);
    rank_check(t, affinity_count(&a.cores) >= 1 && affinity_count(&a.cores) <= affinity_count(&whole.cores));
    rank_check(t, (a.warning[0] != 0) == (affinity_count(&mask) < t->comm->size));
}

static void test_place(void **state)
{
    (void)state;
    ranks_as_threads(1, 0, place, NULL);
    ranks_as_threads(2, 0, place, NULL);
    ranks_as_threads(65, 0, place, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_fault_kills),
        cmocka_unit_test(test_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
