/* SPDX-License-Identifier: MIT */
/* ranks: 1 2 4 */
/*
 * Ranks as processes: the same checks as on threads (tests/comm), bit for bit. With CTITAN_MPI_HOSTS=2 in the
 * environment the ranks act as two hosts (test_hosts.sh). `test_comm loop [rank action]` is no test but a job
 * for the scripts that kill it: collectives for ever, in which one rank may fail, exit, hang or stop after a
 * while. `test_comm poor n`: its start lacks memory for the n-th allocation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/launch.h"
#include "tests/support/comm_cases.h"
#include "tests/support/rank.h"

#define ON_THE_WORLD(name)                                                                                             \
    static void test_##name(void **state) { ranks_as_processes(*state, case_##name, NULL); }
ON_THE_WORLD(all_reduce)
ON_THE_WORLD(reduce_scatter)
ON_THE_WORLD(all_gather)
ON_THE_WORLD(broadcast)
ON_THE_WORLD(mixed_sizes)
ON_THE_WORLD(split)
ON_THE_WORLD(split_ranks)
ON_THE_WORLD(not_a_number)
ON_THE_WORLD(bad_arguments)

static void check_hosts(struct rank_test *t)
{
    const char *hook = getenv("CTITAN_MPI_HOSTS");
    struct comm *c = t->comm;
    int hosts = hook ? atoi(hook) : 1;

    rank_check(t, c->size == 1 || (c->n_hosts == hosts && c->host_index == c->rank * hosts / c->size));
    rank_check(t, c->local_rank < c->local_size && c->world_rank == c->rank);
    if (hosts == 1) rank_check(t, c->local_rank == c->rank && c->local_size == c->size);
}

static void test_hosts(void **state) { ranks_as_processes(*state, check_hosts, NULL); }

static int run_all(struct comm_world *world)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_hosts, world->comm),
        cmocka_unit_test_prestate(test_all_reduce, world->comm),
        cmocka_unit_test_prestate(test_reduce_scatter, world->comm),
        cmocka_unit_test_prestate(test_all_gather, world->comm),
        cmocka_unit_test_prestate(test_broadcast, world->comm),
        cmocka_unit_test_prestate(test_mixed_sizes, world->comm),
        cmocka_unit_test_prestate(test_split, world->comm),
        cmocka_unit_test_prestate(test_split_ranks, world->comm),
        cmocka_unit_test_prestate(test_not_a_number, world->comm),
        cmocka_unit_test_prestate(test_bad_arguments, world->comm),
    };

    if (world->comm->rank != 0 && !freopen("/dev/null", "w", stdout)) return 1; /* one report is enough */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Says "running" once it is under way, then goes on until something ends it. */
static int loop(struct comm_world *world, int argc, char **argv)
{
    struct comm *c = world->comm;
    bool acts = argc > 3 && atoi(argv[2]) == c->rank;
    float x[5000];
    struct error e = {0};
    err_t rc = ERR_NONE;

    for (int round = 0; !rc && strcmp(argv[1], "start") != 0; round++) {
        if (round == 20) printf("running %d %d\n", c->rank, (int)getpid());
        fflush(stdout);
        for (int i = 0; i < 5000; i++) x[i] = 1;
        if (round == 50 && acts && strcmp(argv[3], "exit") == 0) _exit(3);
        if (round == 50 && acts && strcmp(argv[3], "hang") == 0) clock_sleep_ns((int64_t)1000e9);
        if (round == 50 && acts && strcmp(argv[3], "fail") == 0) {
            fprintf(stderr, "rank %d: planted failure\n", c->rank);
            comm_abort(c, "planted failure");
            break;
        }
        if (round == 50 && strcmp(argv[1], "end") == 0) break;
        if (round == 50) comm_set_timeout(c, 2);
        rc = comm_all_reduce(c, "loop", x, 5000, DTYPE_FLOAT32, COMM_SUM, NULL, &e);
        clock_sleep_ns(1000 * 1000);
    }
    if (rc && rc != ERR_PEER)
        fprintf(stderr, "rank %d: %s\n", c->rank, e.message); /* else the rank itself has said it */
    rc = rc || acts;
    if (comm_world_close(world, rc != ERR_NONE, &e)) fprintf(stderr, "rank %d: end: %s\n", c->rank, e.message);
    return rc;
}

/* How many locks of those that the kernel gives up for a process that dies this one holds. It follows the same list as
 * the kernel, so it crashes where one of them lies in memory that is gone. */
static int held_locks(void)
{
    struct robust_list_head *head;
    size_t bytes;
    int n = 0;

    if (syscall(SYS_get_robust_list, 0, &head, &bytes)) return -1;
    for (const struct robust_list *at = head->list.next; at != &head->list; at = at->next) n++;
    return n;
}

int main(int argc, char **argv)
{
    struct comm_world world;
    struct error e = {0};
    int failed;

    ranks_find_plugin();
    if (argc > 2 && strcmp(argv[1], "poor") == 0) mem_fault_arm(atoi(argv[2]));
    if (comm_world_open(&world, NULL, &e)) {
        fprintf(stderr, "%s (%d locks are held)\n", e.message, held_locks());
        return 2;
    }
    if (argc > 2 && strcmp(argv[1], "poor") == 0) _exit(0);
    if (argc > 1) return loop(&world, argc, argv);
    failed = run_all(&world);
    if (comm_world_close(&world, failed, &e)) {
        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    return failed ? 1 : 0;
}
