/* SPDX-License-Identifier: MIT */
/*
 * The executor when something fails: any collective of any rank, any block of device memory, any allocation
 * of the host. An error comes back on every rank, none waits for ever, and nothing stays behind (a device
 * refuses to close while a block is taken; leaks are the sanitizer's task).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "comm/fault.h"
#include "comm/self.h"
#include "device/allocator.h"
#include "tests/support/close.h"
#include "tests/support/rank.h"
#include "tests/support/rig.h"

enum { MICROBATCHES = 2, LENGTH = 3, MOST_GRADIENTS = 4096 };

struct attempt {
    struct mesh_shape mesh;
    enum reshard_policy reshard;
    enum dtype type;
    bool is_tied;
    struct comm_fault fault; /* nth 0: none */
    long fail_block;         /* on rank faulty_rank; 0: none */
    int faulty_rank;
    atomic_bool has_ended_well[4]; /* by rank: no fault was met */
};

static struct rig_spec spec_of(const struct attempt *a, int rank)
{
    struct rig_spec spec = {.model = rig_tiny_model(),
                            .type = a->type,
                            .kernels = "reference",
                            .mesh = a->mesh,
                            .reshard = a->reshard,
                            .n_microbatches = MICROBATCHES,
                            .sequences = 1,
                            .length = LENGTH,
                            .seed = 3,
                            .weight_decay = 0.1,
                            .fail_block = rank == a->faulty_rank ? a->fail_block : 0};

    spec.model.is_tied = a->is_tied;
    return spec;
}

static struct microbatch microbatch_at(int m)
{
    static const int32_t tokens[MICROBATCHES][LENGTH] = {{1, 5, 18}, {0, 2, 7}},
                         labels[MICROBATCHES][LENGTH] = {{5, 18, -100}, {2, 7, 3}}, positions[LENGTH] = {0, 1, 2};

    return (struct microbatch){1, LENGTH, tokens[m], labels[m], positions, NULL};
}

/* Everything that a trainer does with a rank's model: two steps and a validation. */
static err_t train(struct rig *rig, const struct rig_spec *spec, struct comm *world, struct error *e)
{
    struct microbatch batches[MICROBATCHES] = {microbatch_at(0), microbatch_at(1)};
    err_t rc = rig_open(rig, spec, world, e);

    for (int step = 0; step < 2 && !rc; step++) {
        rc = executor_train(&rig->executor, batches, 0.2, e);
        if (!rc) rc = optimizer_gradient_norm(&rig->optimizer, rig->mesh.device_axis[AXIS_DP_SHARD], 0, e);
        if (!rc) rc = optimizer_step(&rig->optimizer, 1e-2, e);
    }
    if (!rc) rc = executor_validate(&rig->executor, &batches[0], e);
    return rc;
}

static void run_rank(struct rank_test *t)
{
    struct attempt *a = t->arg;
    struct rig_spec spec = spec_of(a, t->comm->rank);
    struct rig rig = {0};
    struct error e = {0};
    int me = t->comm->rank;
    bool is_origin = me == (a->fail_block ? a->faulty_rank : a->fault.world_rank);
    err_t rc;

    if (a->fault.nth && !rank_check_ok(t, comm_fault_create(t->comm, &a->fault, &t->comm, &e))) return;
    rc = train(&rig, &spec, t->comm, &e);
    if (rc) comm_abort(t->comm, e.message); /* as every rank does that fails */
    if (rc && is_origin) {
        err_t want = a->fail_block ? ERR_MEMORY : a->fault.action == COMM_FAULT_LEAVE ? ERR_STOPPED : ERR_COMM;

        rank_check_at(t, rc == want && strstr(e.message, "planted fault"), __FILE__, __LINE__, "%d: %s", rc, e.message);
    } else if (rc) {
        rank_check_at(t, rc == ERR_PEER, __FILE__, __LINE__, "%d: %s", rc, e.message);
    }
    atomic_store(&a->has_ended_well[me], rc == ERR_NONE);
    rig_close(&rig);
}

/* Did rank `origin` come to the end? The others may, too, when what failed was its own affair and the last
 * one. */
static bool attempt(struct attempt *a, int origin)
{
    ranks_as_threads(mesh_size(&a->mesh), 60, run_rank, a);
    return atomic_load(&a->has_ended_well[origin]);
}

static const struct mesh_shape meshes[] = {{{1, 1, 2, 1, 1}}, {{1, 2, 1, 1, 1}}, {{1, 2, 2, 1, 1}}};

static void test_collectives_fail(void **state)
{
    static const enum comm_fault_action actions[] = {COMM_FAULT_FAIL, COMM_FAULT_LEAVE};

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int action = 0; action < 2; action++)
            for (int rank = 0, size = mesh_size(&meshes[i]); rank < size; rank += size - 1) {
                int nth = 1;

                for (;; nth++) {
                    struct attempt a = {.mesh = meshes[i],
                                        .type = DTYPE_FLOAT64,
                                        .is_tied = action,
                                        .fault = {.action = actions[action], .world_rank = rank, .nth = nth}};

                    if (attempt(&a, rank)) break;
                }
                assert_true(nth > 4);
            }
}

static void device_is_out_of_memory(const struct mesh_shape *mesh, enum dtype type, int rank)
{
    long n = 1;

    for (;; n++) {
        struct attempt a = {.mesh = *mesh,
                            .reshard = (enum reshard_policy)(n % 3),
                            .type = type,
                            .is_tied = n / 3 % 2,
                            .fail_block = n,
                            .faulty_rank = rank};

        if (attempt(&a, rank)) break;
    }
    assert_true(n > 50);
}

static void test_device_is_out_of_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int rank = 0, size = mesh_size(&meshes[i]); rank < size; rank += size - 1) {
            device_is_out_of_memory(&meshes[i], DTYPE_FLOAT64, rank);
            device_is_out_of_memory(&meshes[i], DTYPE_BFLOAT16, rank);
        }
}

/* One rank: every allocation of the host fails once. The device's allocator does without some of them. */
static void test_host_is_out_of_memory(void **state)
{
    struct attempt a = {.mesh = {{1, 1, 1, 1, 1}}, .type = DTYPE_FLOAT64};
    struct rig_spec spec = spec_of(&a, 0);
    struct comm *world;
    struct error e = {0};
    bool has_fired = true;
    long n = 0;

    (void)state;
    assert_int_equal(comm_self_create(&world, &e), ERR_NONE);
    for (; has_fired; n++) {
        struct rig rig;
        err_t rc;

        mem_fault_arm(n);
        rc = train(&rig, &spec, world, &e);
        has_fired = mem_fault_fired();
        mem_fault_arm(-1);
        if (rc) assert_int_equal(rc, ERR_MEMORY);
        if (!has_fired) assert_int_equal(rc, ERR_NONE);
        rig_close(&rig);
    }
    assert_true(n > 50);
    comm_destroy(world);
}

/* ---- going on after a failure ---- */
struct retry {
    struct mesh_shape mesh;
    enum dtype type;
    long n; /* the block that fails, on every rank alike; -1: none */
    bool is_tied;
    atomic_bool is_beyond;
    double gradients[4][MOST_GRADIENTS]; /* by rank, of the good pass; of the wide type */
    int64_t n_gradients[4];
};

static void retry_rank(struct rank_test *t)
{
    struct retry *r = t->arg;
    struct attempt a = {.mesh = r->mesh, .type = r->type, .is_tied = r->is_tied};
    struct rig_spec spec = spec_of(&a, t->comm->rank);
    struct microbatch batches[MICROBATCHES] = {microbatch_at(0), microbatch_at(1)};
    struct memory_stats before, after;
    struct rig rig = {0};
    struct error e = {0};
    size_t width = dtype_bytes(dtype_wide(r->type));
    int64_t at = 0;
    bool has_fired = false;

    if (!rank_check_ok(t, rig_open(&rig, &spec, t->comm, &e))) return;
    device_memory_stats(rig.device, &before);
    for (int part = 0; part < 2; part++) { /* training, then validation */
        err_t rc;

        allocator_fault_arm(rig.device->allocator, r->n);
        rc = part ? executor_validate(&rig.executor, batches, &e) : executor_train(&rig.executor, batches, 0.2, &e);
        has_fired |= allocator_fault_fired(rig.device->allocator);
        rank_check_at(t, rc == (allocator_fault_fired(rig.device->allocator) ? ERR_MEMORY : ERR_NONE), __FILE__,
                      __LINE__, "%s", e.message);
        allocator_fault_arm(rig.device->allocator, -1);
        device_memory_stats(rig.device, &after);
        for (int k = 0; k < MEMORY_KIND_COUNT; k++)
            rank_check_at(t, after.kind_bytes[k] == before.kind_bytes[k], __FILE__, __LINE__,
                          "block %ld: %lld bytes of %s are kept", r->n,
                          (long long)(after.kind_bytes[k] - before.kind_bytes[k]),
                          memory_kind_name((enum memory_kind)k));
    }
    atomic_store(&r->is_beyond, !has_fired);
    rank_check_ok(t, executor_train(&rig.executor, batches, 0.2, &e));
    for (int i = 0; i < rig.model->parameters.n; i++) {
        const struct parameter *p = rig.model->parameters.items[i];
        int64_t n = p->shard_rows * parameter_row_elements(p);

        if (!rank_check(t, at + n <= MOST_GRADIENTS)) break;
        memcpy((char *)r->gradients[t->comm->rank] + (size_t)at * width, p->shard_gradient, (size_t)n * width);
        at += n;
    }
    r->n_gradients[t->comm->rank] = at;
    rig_close(&rig);
}

/* Every block of a step fails once, on all ranks alike. */
static void check_retries(const struct mesh_shape *mesh, enum dtype type, bool is_tied)
{
    static struct retry good, bad;
    int size = mesh_size(mesh);

    memset(&good, 0, sizeof good);
    good.mesh = *mesh;
    good.type = type;
    good.is_tied = is_tied;
    good.n = -1;
    ranks_as_threads(size, 60, retry_rank, &good);
    atomic_store(&bad.is_beyond, false);
    for (long n = 0; !atomic_load(&bad.is_beyond); n++) {
        memset(&bad, 0, sizeof bad);
        bad.mesh = *mesh;
        bad.type = type;
        bad.is_tied = is_tied;
        bad.n = n;
        ranks_as_threads(size, 60, retry_rank, &bad);
        for (int r = 0; r < size; r++) {
            assert_int_equal(bad.n_gradients[r], good.n_gradients[r]);
            assert_bits_equal("gradients after a failed step", dtype_wide(type), bad.gradients[r], good.gradients[r],
                              (size_t)good.n_gradients[r]);
        }
    }
}

/* Memory that ran out on all ranks at the same block leaves no trace: the next step gives the bits that it
 * gives without a failure. */
static void test_the_next_step_is_right(void **state)
{
    static const struct mesh_shape one = {{1, 1, 1, 1, 1}};

    (void)state;
    for (int tied = 0; tied < 2; tied++)
        for (int i = 0; i < 3; i++) check_retries(&meshes[i], DTYPE_FLOAT64, tied);
    check_retries(&one, DTYPE_BFLOAT16, true);
    check_retries(&meshes[2], DTYPE_BFLOAT16, false);
}

/* ---- attention is made ready when the executor is opened ---- */
struct planned {
    int forward, backward, with_documents;
    int64_t length;
    bool fails;
};

static err_t prepare(void *owner, const struct attention *a, bool is_backward, size_t *workspace_bytes, struct error *e)
{
    struct planned *p = owner;

    p->forward += !is_backward;
    p->backward += is_backward;
    p->with_documents += a->document_start != NULL;
    p->length = a->length;
    if (p->fails && is_backward) return FAIL(e, ERR_UNSUPPORTED, "no such attention");
    *workspace_bytes = is_backward ? 123456 : 4096;
    return ERR_NONE;
}

/* Each block's attention, of training and of validation; the workspace is what the largest wants. */
static void test_attention_is_planned(void **state)
{
    struct attempt a = {0};
    struct rig_spec spec = spec_of(&a, 0);
    struct planned planned = {0};
    struct executor_spec executor;
    struct kernels kernels;
    struct comm *world;
    struct rig rig;
    struct error e;

    (void)state;
    for (int i = 0; i < AXIS_COUNT; i++) spec.mesh.degree[i] = 1;
    assert_int_equal(comm_self_create(&world, &e), 0);
    if (rig_open(&rig, &spec, world, &e)) fail_msg("%s", e.message);
    executor = rig.executor.spec;
    kernels = *executor.kernels;
    kernels.prepare_attention = prepare;
    kernels.owner = &planned;
    executor.kernels = &kernels;
    executor.has_documents = true;
    executor_close(&rig.executor);
    if (executor_open(&rig.executor, &executor, &e)) fail_msg("%s", e.message);
    assert_int_equal(planned.forward, 2 * spec.model.n_layers);
    assert_int_equal(planned.backward, spec.model.n_layers);
    assert_int_equal(planned.with_documents, 3 * spec.model.n_layers);
    assert_int_equal(planned.length, LENGTH);
    assert_true(rig.executor.kernel.workspace_bytes == 123456);
    executor_close(&rig.executor);

    planned.fails = true;
    assert_int_equal(executor_open(&rig.executor, &executor, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "no such attention"));
    rig_close(&rig);
    comm_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives_fail),      cmocka_unit_test(test_device_is_out_of_memory),
        cmocka_unit_test(test_host_is_out_of_memory), cmocka_unit_test(test_the_next_step_is_right),
        cmocka_unit_test(test_attention_is_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
