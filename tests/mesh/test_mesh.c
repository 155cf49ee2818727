/* SPDX-License-Identifier: MIT */
/* Ranks as points of the box pp x dp_replicate x dp_shard x cp x tp, and the groups along its axes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "comm/fake.h"
#include "comm/self.h"
#include "mesh/mesh.h"
#include "tests/support/rank.h"

/* torchtitan's order, written out: tp varies fastest, pp slowest. */
static void test_ranks_and_coordinates(void **state)
{
    static const struct mesh_shape shapes[] = {
        {{1, 1, 1, 1, 1}}, {{2, 3, 4, 5, 6}}, {{1, 1, 8, 1, 1}}, {{2, 2, 2, 2, 2}},
        {{4, 1, 1, 1, 8}}, {{1, 2, 4, 1, 1}}, {{3, 1, 2, 7, 1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct mesh_shape *s = &shapes[i];
        const int *d = s->degree;
        int rank = 0, c[AXIS_COUNT], got[AXIS_COUNT];

        assert_int_equal(mesh_size(s), d[0] * d[1] * d[2] * d[3] * d[4]);
        for (c[0] = 0; c[0] < d[0]; c[0]++)
            for (c[1] = 0; c[1] < d[1]; c[1]++)
                for (c[2] = 0; c[2] < d[2]; c[2]++)
                    for (c[3] = 0; c[3] < d[3]; c[3]++)
                        for (c[4] = 0; c[4] < d[4]; c[4]++, rank++) {
                            mesh_coordinates(s, rank, got);
                            assert_memory_equal(got, c, sizeof got);
                        }
        assert_int_equal(rank, mesh_size(s));
    }
}

static void assert_described(struct mesh_shape shape, const char *want)
{
    struct str text = {0};

    mesh_describe(&shape, &text);
    assert_string_equal(str_text(&text), want);
    str_release(&text);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(axis_name(AXIS_PP), "pp");
    assert_string_equal(axis_name(AXIS_DP_REPLICATE), "dp_replicate");
    assert_string_equal(axis_name(AXIS_DP_SHARD), "dp_shard");
    assert_string_equal(axis_name(AXIS_CP), "cp");
    assert_string_equal(axis_name(AXIS_TP), "tp");
    assert_described((struct mesh_shape){{1, 1, 1, 1, 1}}, "1 rank");
    assert_described((struct mesh_shape){{1, 2, 4, 1, 1}}, "dp_replicate 2 x dp_shard 4");
    assert_described((struct mesh_shape){{2, 3, 4, 5, 6}}, "pp 2 x dp_replicate 3 x dp_shard 4 x cp 5 x tp 6");
}

/* Gathers everybody's world rank over a group and compares it with who should be in it, in that order. */
static void check_group(struct rank_test *t, struct comm *group, const struct mesh *m, unsigned varies)
{
    int64_t mine = t->comm->rank, members[32];
    struct error e = {0};
    int n = 0, own[AXIS_COUNT], other[AXIS_COUNT];

    if (!rank_check_ok(t, comm_all_gather(group, "members", &mine, members, 1, DTYPE_INT64, NULL, &e))) return;
    mesh_coordinates(&m->shape, t->comm->rank, own);
    for (int r = 0; r < t->comm->size; r++) {
        bool is_member = true;

        mesh_coordinates(&m->shape, r, other);
        for (int a = 0; a < AXIS_COUNT; a++) is_member &= own[a] == other[a] || (varies >> a & 1);
        if (!is_member) continue;
        if (!rank_check(t, n < group->size && members[n] == r)) return;
        if (r == t->comm->rank) rank_check(t, group->rank == n);
        n++;
    }
    rank_check(t, group->size == n);
}

static void open_and_check(struct rank_test *t)
{
    const struct mesh_shape *shape = t->arg;
    int own[AXIS_COUNT];
    struct mesh m;
    struct error e = {0};

    if (!rank_check_ok(t, mesh_open(&m, shape, t->comm, &e))) return;
    mesh_coordinates(&m.shape, t->comm->rank, own);
    rank_check(t, memcmp(m.coordinate, own, sizeof own) == 0);
    for (int a = 0; a < AXIS_COUNT; a++) {
        rank_check(t, m.axis[a]->size == shape->degree[a] && m.axis[a]->rank == m.coordinate[a]);
        check_group(t, m.axis[a], &m, 1u << a);
    }
    rank_check(t, m.batch->size == shape->degree[AXIS_DP_REPLICATE] * shape->degree[AXIS_DP_SHARD]);
    rank_check(t, m.batch->rank ==
                      m.coordinate[AXIS_DP_REPLICATE] * shape->degree[AXIS_DP_SHARD] + m.coordinate[AXIS_DP_SHARD]);
    check_group(t, m.batch, &m, 1u << AXIS_DP_REPLICATE | 1u << AXIS_DP_SHARD);
    mesh_close(&m);
    mesh_close(&m); /* a closed one may be closed */
    mesh_close(NULL);
}

static void test_groups(void **state)
{
    static const struct mesh_shape shapes[] = {
        {{1, 1, 1, 1, 1}}, {{1, 2, 3, 1, 1}}, {{1, 3, 2, 1, 1}},
        {{2, 2, 2, 2, 2}}, {{3, 1, 2, 1, 2}}, {{1, 1, 1, 4, 2}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        ranks_as_threads(mesh_size(&shapes[i]), 0, open_and_check, (void *)(uintptr_t)&shapes[i]);
}

/* One rank of a job that does not exist knows its place and the sizes of its groups. */
static void test_dry(void **state)
{
    struct mesh_shape shape = {{2, 2, 2, 1, 4}};
    struct comm *world;
    struct mesh m;
    struct error e = {0};

    (void)state;
    assert_int_equal(comm_fake_create(32, 21, &world, &e), ERR_NONE);
    assert_int_equal(mesh_open(&m, &shape, world, &e), ERR_NONE);
    for (int a = 0; a < AXIS_COUNT; a++) {
        static const int want[] = {1, 0, 1, 0, 1};

        assert_int_equal(m.coordinate[a], want[a]);
        assert_int_equal(m.axis[a]->size, shape.degree[a]);
        assert_int_equal(m.axis[a]->rank, want[a]);
    }
    assert_int_equal(m.batch->size, 4);
    assert_int_equal(m.batch->rank, 1);
    mesh_close(&m);
    comm_destroy(world);
}

static void check_wrong_product(struct rank_test *t)
{
    static const struct mesh_shape wrong[] = {
        {{1, 1, 3, 1, 1}}, {{1, 2, 4, 1, 1}}, {{1, 1, 1, 1, 1}}, {{1, 1, 0, 1, 1}}};
    struct mesh m;
    struct error e = {0};

    for (int i = 0; i < 4; i++) {
        rank_check(t, mesh_open(&m, &wrong[i], t->comm, &e) == ERR_CONFIG);
        rank_check(t, strstr(e.message, "the job has 4") != NULL);
        mesh_close(&m);
    }
    rank_check(t, mesh_open(&m, &wrong[1], t->comm, &e) == ERR_CONFIG);
    rank_check(t, strstr(e.message, "dp_replicate 2 x dp_shard 4") != NULL && strstr(e.message, "NGPU") != NULL);
}

/* Degrees that do not multiply to the number of ranks: every rank says so, and none waits for another. */
static void test_wrong_product(void **state)
{
    (void)state;
    ranks_as_threads(4, 0, check_wrong_product, NULL);
}

static void test_out_of_memory(void **state)
{
    struct mesh_shape shape = {{1, 1, 1, 1, 1}};
    struct comm *world;
    struct mesh m;
    struct error e = {0};

    (void)state;
    assert_int_equal(comm_self_create(&world, &e), ERR_NONE);
    for (int n = 0;; n++) {
        err_t rc;

        mem_fault_arm(n);
        rc = mesh_open(&m, &shape, world, &e);
        mesh_close(&m);
        if (!mem_fault_fired()) {
            assert_int_equal(rc, ERR_NONE);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(rc, ERR_MEMORY);
    }
    mem_fault_arm(-1);
    comm_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_and_coordinates),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_dry),
        cmocka_unit_test(test_wrong_product),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
