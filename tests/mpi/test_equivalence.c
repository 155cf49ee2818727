/* SPDX-License-Identifier: MIT */
/* ranks: 2 4 */
/*
 * Processes against threads: the same mesh gives the same bits, inside one host and (test_hosts.sh runs this program
 * so) between hosts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "comm/launch.h"
#include "tests/support/equivalence.h"
#include "tests/support/rank.h"

static void body(struct rank_test *t)
{
    const struct equivalence_case *c = t->arg;
    struct equivalence_result processes, threads;
    struct error e = {0};

    if (!rank_check_ok(t, equivalence_run(c, t->comm, &processes, &e))) return;
    equivalence_run_threads(c, &threads); /* on every rank: then every rank's own result is compared */
    rank_check(t, processes.n == threads.n);
    rank_check(t, memcmp(processes.gradients, threads.gradients, (size_t)threads.n * sizeof(double)) == 0);
    rank_check(t, memcmp(processes.parameters, threads.parameters, (size_t)threads.n * sizeof(double)) == 0);
    rank_check(t, memcmp(processes.loss, threads.loss, sizeof threads.loss) == 0);
    rank_check(t, memcmp(processes.norm, threads.norm, sizeof threads.norm) == 0);
    rank_check(t, memcmp(&processes.validation_loss, &threads.validation_loss, sizeof(double)) == 0);
    equivalence_release(&processes);
    equivalence_release(&threads);
}

static void test_processes_equal_threads(void **state)
{
    struct comm *world = *state;

    for (int shards = 1; shards <= world->size; shards *= 2) {
        for (int type = DTYPE_FLOAT32; type <= DTYPE_BFLOAT16; type++) {
            struct equivalence_case c = {
                world->size / shards, shards, 2, RESHARD_DEFAULT, (enum dtype)type, false, false, 0, 0, NULL, 0};

            ranks_as_processes(world, body, &c);
        }
    }
}

int main(void)
{
    struct comm_world w = {0};
    struct error e = {0};
    int failures;

    ranks_find_plugin();
    if (comm_world_open(&w, NULL, &e)) {
        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_processes_equal_threads, w.comm)};

    if (w.comm->rank != 0 && !freopen("/dev/null", "w", stdout)) return 1; /* one report is enough */
    failures = cmocka_run_group_tests(tests, NULL, NULL);
    if (comm_world_close(&w, failures > 0, &e)) fprintf(stderr, "%s\n", e.message);
    return failures != 0;
}
