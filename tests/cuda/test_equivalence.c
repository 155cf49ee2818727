/* SPDX-License-Identifier: MIT */
/* ranks: 1 2 4 */
/*
 * The equivalence on GPUs: every mesh of these ranks, a GPU each, gives what one CPU rank gives with the reference
 * kernels: losses, norms, every gradient tensor, the parameters after five steps, the validation. Gathers, reductions
 * and replicas go over NCCL.
 *
 * timeout: 300
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/launch.h"
#include "tests/support/equivalence.h"
#include "tests/support/gpu.h"
#include "tests/support/rank.h"
#include "tests/support/rig.h"

enum { SEQUENCES = 8 }; /* a step */

static void compare(struct comm *world, struct equivalence_case c)
{
    struct equivalence_result want, got;
    struct error e = {0};
    char what[160];

    c.sequences = SEQUENCES;
    c.n_replicas = world->size / c.n_shards;
    c.device = RIG_GPU;
    equivalence_describe(&c, what, sizeof what);
    if (equivalence_run(&c, world, &got, &e)) fail_msg("%s: %s", what, e.message);
    c.device = RIG_CPU;
    c.n_replicas = c.n_shards = c.n_microbatches = 1;
    equivalence_run_threads(&c, &want);
    equivalence_assert_close(what, c.type, &got, &want);
    equivalence_release(&got);
    equivalence_release(&want);
}

static void test_every_mesh(void **state)
{
    for (int shards = 1; shards <= ((struct comm *)*state)->size; shards *= 2)
        for (int microbatches = 1; microbatches <= 2; microbatches++)
            compare(*state, (struct equivalence_case){
                                .n_shards = shards, .n_microbatches = microbatches, .type = DTYPE_FLOAT32});
}

static void test_policies_documents_and_tied_weights(void **state)
{
    struct comm *world = *state;

    compare(world, (struct equivalence_case){.n_shards = world->size,
                                             .n_microbatches = 2,
                                             .reshard = RESHARD_ALWAYS,
                                             .type = DTYPE_FLOAT32,
                                             .with_documents = true});
    compare(world, (struct equivalence_case){.n_shards = world->size,
                                             .n_microbatches = 1,
                                             .reshard = RESHARD_NEVER,
                                             .type = DTYPE_FLOAT32,
                                             .is_tied = true});
}

static bool lacks_gpus(const struct comm *world)
{
    const char *cuda = getenv("CTITAN_CUDA");

    return cuda && strcmp(cuda, "real") == 0 && world->size > 1;
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_every_mesh, w.comm),
        cmocka_unit_test_prestate(test_policies_documents_and_tied_weights, w.comm),
    };

    if (w.comm->rank != 0 && !freopen("/dev/null", "w", stdout)) return 1; /* one report is enough */
    if (lacks_gpus(w.comm)) printf("tests of several ranks take the first GPU each: they run on the simulator\n");
    failures = lacks_gpus(w.comm) || !gpu_is_here() ? -1 : cmocka_run_group_tests(tests, NULL, NULL);
    if (comm_world_close(&w, failures > 0, &e)) fprintf(stderr, "%s\n", e.message);
    return failures < 0 ? GPU_SKIPPED : failures != 0;
}
