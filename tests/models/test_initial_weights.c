/* SPDX-License-Identifier: MIT */
/*
 * Golden hashes of initial weights: the debug model's in float32 for the seed 42, and a small model's in
 * float64. The same bits come out of every sharding and every mesh, on every machine; a change of any draw,
 * name, order or deviation turns this red.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "tests/support/configs.h"
#include "tests/support/rig.h"
#include "tests/support/world.h"

#define GOLDEN_DEBUG_MODEL 0x5684aa08eceb86f2u
#define GOLDEN_SMALL 0xd0554c26f04f2218u

/* Of the parameters in their order: name, then values. Each is drawn in n_shards pieces. */
static uint64_t hash_of(const struct model *m, enum dtype type, uint64_t seed, int n_shards)
{
    uint64_t h = HASH_FNV_START;

    for (int i = 0; i < m->parameters.n; i++) {
        struct parameter *p = m->parameters.items[i];
        size_t row = (size_t)parameter_row_elements(p) * dtype_bytes(type), bytes = row * (size_t)p->dim[0];
        char *whole = mem_zalloc(1, bytes);

        for (int k = n_shards - 1; k >= 0; k--) {
            parameter_shard(p, k, n_shards);
            parameter_initialise(p, seed, type, whole + row * (size_t)p->shard_first);
        }
        h = hash_fnv(hash_fnv_text(h, p->name), whole, bytes);
        mem_free(whole);
    }
    return h;
}

static void assert_hash(uint64_t got, uint64_t want)
{
    if (got != want)
        fail_msg("the initial weights hash to %#llx, not to %#llx", (unsigned long long)got, (unsigned long long)want);
}

static void test_debug_model(void **state)
{
    struct device_options options = {.kind = "cpu", .local_size = 1, .threads = 1};
    struct config_problems problems = {0};
    struct config *c = config_of_text("");
    struct model_spec spec = {0};
    struct device *d;
    struct model *m;
    struct error e = {0};

    (void)state;
    model_spec_resolve(&spec, c, &problems);
    assert_int_equal(problems.n, 0);
    assert_int_equal(c->debug.seed, 42);
    config_destroy(c);
    assert_int_equal(device_open(&d, &options, &e), ERR_NONE);
    assert_int_equal(model_create(&m, &spec, d, DTYPE_FLOAT32, 8, &e), ERR_NONE);
    assert_hash(hash_of(m, DTYPE_FLOAT32, 42, 1), GOLDEN_DEBUG_MODEL);
    assert_hash(hash_of(m, DTYPE_FLOAT32, 42, 2), GOLDEN_DEBUG_MODEL);
    assert_hash(hash_of(m, DTYPE_FLOAT32, 42, 3), GOLDEN_DEBUG_MODEL);
    assert_hash(hash_of(m, DTYPE_FLOAT32, 42, 7), GOLDEN_DEBUG_MODEL);
    assert_true(hash_of(m, DTYPE_FLOAT32, 43, 1) != GOLDEN_DEBUG_MODEL);
    model_destroy(m);
    device_close(d);
}

/* ---- through the executor, on a mesh ---- */
struct drawn {
    int n_replicas, n_shards;
    struct model_spec model;
    enum dtype type;
    uint64_t hash; /* of rank 0 */
};

/* Each rank puts its rows into a whole that starts as zeros; the ranks' wholes are added. */
static err_t draw(struct comm *world, void *arg, struct error *e)
{
    struct drawn *want = arg;
    struct rig_spec spec = {.model = want->model,
                            .type = want->type,
                            .kernels = "reference",
                            .mesh = {{1, want->n_replicas, want->n_shards, 1, 1}},
                            .n_microbatches = 1,
                            .sequences = 1,
                            .length = 4,
                            .seed = 42};
    struct rig rig = {0};
    uint64_t h = HASH_FNV_START;
    err_t rc = rig_open(&rig, &spec, world, e);

    for (int i = 0; !rc && i < rig.model->parameters.n; i++) {
        const struct parameter *p = rig.model->parameters.items[i];
        size_t row = (size_t)parameter_row_elements(p) * dtype_bytes(want->type), bytes = row * (size_t)p->dim[0];
        char *whole = mem_zalloc(1, bytes);

        memcpy(whole + row * (size_t)p->shard_first, p->shard, row * (size_t)p->shard_rows);
        rc = comm_all_reduce(rig.mesh.axis[AXIS_DP_SHARD], "collect", whole, (size_t)parameter_elements(p), want->type,
                             COMM_SUM, NULL, e);
        h = hash_fnv(hash_fnv_text(h, p->name), whole, bytes);
        mem_free(whole);
    }
    rig_close(&rig);
    if (world->rank == world->size - 1) want->hash = h;
    return rc;
}

static void assert_mesh(int n_replicas, int n_shards, const struct model_spec *model, enum dtype type, uint64_t golden)
{
    struct drawn d = {.n_replicas = n_replicas, .n_shards = n_shards, .model = *model, .type = type};

    world_run(n_replicas * n_shards, draw, &d);
    assert_hash(d.hash, golden);
}

static void test_small_model_on_meshes(void **state)
{
    static const int meshes[][2] = {{1, 1}, {1, 2}, {1, 3}, {1, 7}, {2, 1}, {2, 2}, {3, 2}, {2, 7}};
    struct model_spec small = rig_tiny_model();

    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        assert_mesh(meshes[i][0], meshes[i][1], &small, DTYPE_FLOAT64, GOLDEN_SMALL);
}

static void test_debug_model_on_meshes(void **state)
{
    static const int meshes[][2] = {{1, 3}, {2, 2}};
    struct config_problems problems = {0};
    struct config *c = config_of_text("");
    struct model_spec spec = {0};

    (void)state;
    model_spec_resolve(&spec, c, &problems);
    config_destroy(c);
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        assert_mesh(meshes[i][0], meshes[i][1], &spec, DTYPE_FLOAT32, GOLDEN_DEBUG_MODEL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_debug_model),
        cmocka_unit_test(test_small_model_on_meshes),
        cmocka_unit_test(test_debug_model_on_meshes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
