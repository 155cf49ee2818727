/* SPDX-License-Identifier: MIT */
/* AdamW against the published algorithm, element by element in double; decay and rate by groups; clipping and
 * norms, also not finite ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "comm/self.h"
#include "optim/optimizer.h"
#include "tests/support/rank.h"

enum { N_TENSORS = 4, LARGEST = 1777, STEPS = 12 };

static const char *const names[N_TENSORS] = {"tok_embeddings.weight", "layers.0.attention.wq.weight",
                                             "layers.0.ffn_norm.weight", "empty.weight"};
static const int64_t sizes[N_TENSORS] = {LARGEST, 64, 9, 0};

/* The optimizer's tensors, and the same in double, updated by the formula as it stands in the paper. */
struct fixture {
    struct device *device;
    const struct kernels *kernels;
    struct comm *world;
    struct optimizer o;
    enum dtype type;
    void *value[N_TENSORS], *gradient[N_TENSORS];
    double parameter[N_TENSORS][LARGEST], first[N_TENSORS][LARGEST], second[N_TENSORS][LARGEST];
};

static double get(const struct fixture *f, const void *array, int64_t i)
{
    return f->type == DTYPE_FLOAT64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static void set(const struct fixture *f, void *array, int64_t i, double x)
{
    if (f->type == DTYPE_FLOAT64)
        ((double *)array)[i] = x;
    else
        ((float *)array)[i] = (float)x;
}

static err_t open_optimizer(struct fixture *f, const struct optim_group *groups, int n_groups, struct error *e)
{
    struct optim_spec spec = {.device = f->device,
                              .kernels = f->kernels,
                              .type = f->type,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .groups = groups,
                              .n_groups = n_groups};
    struct optim_tensor *tensors = mem_zalloc(N_TENSORS, sizeof *tensors);

    if (!tensors) return FAIL(e, ERR_MEMORY, "out of memory");
    for (int k = 0; k < N_TENSORS; k++)
        tensors[k] =
            (struct optim_tensor){.name = names[k], .n = sizes[k], .value = f->value[k], .gradient = f->gradient[k]};
    return optimizer_open(&f->o, &spec, tensors, N_TENSORS, e);
}

static void set_up(struct fixture *f, enum dtype type, const char *kernels)
{
    struct device_options options = {.kind = "cpu", .local_size = 1, .threads = 2};
    struct rng_key key = rng_key_of(1, "parameters");
    struct error e = {0};

    memset(f, 0, sizeof *f);
    f->type = type;
    if (device_open(&f->device, &options, &e) || kernels_for(&f->kernels, f->device, type, kernels, &e) ||
        comm_self_create(&f->world, &e))
        fail_msg("%s", e.message);
    for (int k = 0; k < N_TENSORS; k++) {
        f->value[k] = mem_aligned(64, LARGEST * sizeof(double));
        f->gradient[k] = mem_aligned(64, LARGEST * sizeof(double));
        for (int64_t i = 0; i < sizes[k]; i++) {
            set(f, f->value[k], i, rng_normal(key, (uint64_t)(k * LARGEST + i), 1, 0));
            f->parameter[k][i] = get(f, f->value[k], i);
        }
    }
}

static void tear_down(struct fixture *f)
{
    optimizer_close(&f->o);
    for (int k = 0; k < N_TENSORS; k++) {
        mem_free(f->value[k]);
        mem_free(f->gradient[k]);
    }
    comm_destroy(f->world);
    device_close(f->device);
}

/* Gradients of every size: large, tiny, zero. */
static void draw_gradients(struct fixture *f, int step)
{
    struct rng_key key = rng_key_of((uint64_t)step, "gradients");

    for (int k = 0; k < N_TENSORS; k++)
        for (int64_t i = 0; i < sizes[k]; i++)
            set(f, f->gradient[k], i,
                i % 7 == 3 ? 0 : rng_normal(key, (uint64_t)(k * LARGEST + i), pow(10, (double)(i % 9) - 6), 0));
}

/* Loshchilov, Hutter 2019, algorithm 2, with the gradient clipped first. */
static void follow(struct fixture *f, int step, double lr, double scale, const double *weight_decay,
                   const double *lr_factor)
{
    for (int k = 0; k < N_TENSORS; k++)
        for (int64_t i = 0; i < sizes[k]; i++) {
            double g = get(f, f->gradient[k], i) * scale, rate = lr * lr_factor[k], m, v;

            f->first[k][i] = 0.9 * f->first[k][i] + 0.1 * g;
            f->second[k][i] = 0.95 * f->second[k][i] + 0.05 * g * g;
            m = f->first[k][i] / (1 - pow(0.9, step));
            v = f->second[k][i] / (1 - pow(0.95, step));
            f->parameter[k][i] -= rate * weight_decay[k] * f->parameter[k][i];
            f->parameter[k][i] -= rate * m / (sqrt(v) + 1e-8);
        }
}

static void compare(const struct fixture *f, int step)
{
    double tolerance = f->type == DTYPE_FLOAT64 ? 1e-13 : 2e-5;

    for (int k = 0; k < N_TENSORS; k++)
        for (int64_t i = 0; i < sizes[k]; i++) {
            double got = get(f, f->value[k], i), want = f->parameter[k][i];

            if (!(fabs(got - want) <= tolerance * (fabs(want) + 0.1)))
                fail_msg("%s[%lld] after step %d: got %.17g, want %.17g", names[k], (long long)i, step, got, want);
        }
}

static void run_steps(struct fixture *f, const double *weight_decay, const double *lr_factor)
{
    struct error e = {0};

    for (int step = 1; step <= STEPS; step++) {
        double lr = 1e-2 / step, scale = step % 3 ? 1 : 0.25;

        draw_gradients(f, step);
        *f->o.factor = scale;
        if (optimizer_step(&f->o, lr, &e)) fail_msg("%s", e.message);
        assert_int_equal(f->o.step, step);
        follow(f, step, lr, scale, weight_decay, lr_factor);
        compare(f, step);
    }
}

static const struct {
    enum dtype type;
    const char *kernels;
} ways[] = {{DTYPE_FLOAT64, "reference"}, {DTYPE_FLOAT32, "reference"}, {DTYPE_FLOAT32, "auto"}};

/* Without groups every parameter decays: embeddings and norms too, as in torchtitan. */
static void test_formula(void **state)
{
    static const double decay[] = {0.1, 0.1, 0.1, 0.1}, factor[] = {1, 1, 1, 1};

    (void)state;
    for (int i = 0; i < 3; i++) {
        static struct fixture f;
        struct error e = {0};

        set_up(&f, ways[i].type, ways[i].kernels);
        if (open_optimizer(&f, NULL, 0, &e)) fail_msg("%s", e.message);
        run_steps(&f, decay, factor);
        tear_down(&f);
    }
}

static struct optim_group group(const char *pattern, double weight_decay, double lr_factor)
{
    return (struct optim_group){pattern, (int)strlen(pattern), weight_decay, lr_factor};
}

/* The first pattern that matches wins, and what it leaves open stays as for all. */
static void test_groups(void **state)
{
    static const double decay[] = {0.1, 0.3, 0, 0.1}, factor[] = {0.5, 1, 1, 1};
    struct optim_group groups[] = {group("norm", 0, NAN), group("embeddings", NAN, 0.5),
                                   group("layers\\.0\\.", 0.3, NAN), group("^tok|norm", 9, 9)};

    (void)state;
    for (int i = 0; i < 3; i++) {
        static struct fixture f;
        struct error e = {0};

        set_up(&f, ways[i].type, ways[i].kernels);
        if (open_optimizer(&f, groups, 4, &e)) fail_msg("%s", e.message);
        run_steps(&f, decay, factor);
        tear_down(&f);
    }
}

/* A pattern need not end with a NUL, and is searched anywhere in the name. */
static void test_groups_refused(void **state)
{
    static struct fixture f;
    struct optim_group nothing = group("layers.9", 0, NAN), broken = group("(", 0, NAN),
                       cut = {"norm: weight_decay=0", 4, 0, NAN};
    struct error e = {0};

    (void)state;
    set_up(&f, DTYPE_FLOAT64, "reference");
    assert_int_equal(open_optimizer(&f, &nothing, 1, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "\"layers.9\" matches no parameter"));
    assert_non_null(strstr(e.message, "layers.0.ffn_norm.weight")); /* what names look like */
    assert_int_equal(open_optimizer(&f, &broken, 1, &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "\"(\" is not a regular expression"));
    assert_int_equal(open_optimizer(&f, &cut, 1, &e), ERR_NONE);
    assert_true(f.o.tensors[2].weight_decay == 0 && f.o.tensors[1].weight_decay == 0.1);
    tear_down(&f);
}

static void test_norm(void **state)
{
    static struct fixture f;
    struct error e = {0};

    (void)state;
    for (int i = 0; i < 3; i++) {
        double want = 0, got;

        set_up(&f, ways[i].type, ways[i].kernels);
        if (open_optimizer(&f, NULL, 0, &e)) fail_msg("%s", e.message);
        draw_gradients(&f, 1);
        for (int k = 0; k < N_TENSORS; k++)
            for (int64_t j = 0; j < sizes[k]; j++) want += pow(get(&f, f.gradient[k], j), 2);
        for (int again = 0; again < 2; again++) { /* a second call begins anew */
            assert_int_equal(optimizer_gradient_norm(&f.o, f.world, 1, &e), ERR_NONE);
            got = *f.o.norm;
            assert_true(fabs(got - sqrt(want)) <= 1e-6 * sqrt(want));
        }
        set(&f, f.gradient[0], 1776, INFINITY);
        assert_int_equal(optimizer_gradient_norm(&f.o, f.world, 1, &e), ERR_NONE);
        got = *f.o.norm;
        assert_true(isinf(got));
        set(&f, f.gradient[2], 8, NAN);
        assert_int_equal(optimizer_gradient_norm(&f.o, f.world, 1, &e), ERR_NONE);
        got = *f.o.norm;
        assert_true(isnan(got));
        tear_down(&f);
    }
}

static double factor_of(const struct fixture *f, double norm, double max_norm)
{
    double squares = norm * norm, root, factor;

    f->kernels->clip(&(struct kernel_context){.device = f->device}, &squares, max_norm, &root, &factor);
    assert_true(root == norm || (isnan(root) && isnan(norm)));
    return factor;
}

static void test_clip_factor(void **state)
{
    static struct fixture f;

    (void)state;
    for (int i = 0; i < 3; i++) {
        set_up(&f, ways[i].type, ways[i].kernels);
        assert_true(factor_of(&f, 2, 1) == 1 / (2 + 1e-6));
        assert_true(factor_of(&f, 0.5, 1) == 1);
        assert_true(factor_of(&f, 0, 1) == 1);
        assert_true(factor_of(&f, 1, 1) == 1 / (1 + 1e-6)); /* torch's rule, to the bit */
        assert_true(factor_of(&f, 1e30, 1) > 0);
        assert_true(factor_of(&f, 1e30, 0) == 1); /* 0 never clips */
        assert_true(factor_of(&f, INFINITY, 0) == 1);
        assert_true(factor_of(&f, INFINITY, 1) == 0);
        assert_true(factor_of(&f, NAN, 1) == 1);
        assert_true(factor_of(&f, NAN, 0) == 1);
        tear_down(&f);
    }
}

/* One element that is not finite spoils itself alone, so that its tensor can be named afterwards. */
static void test_not_finite(void **state)
{
    static struct fixture f;
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    struct error e = {0};

    (void)state;
    for (int i = 0; i < 9; i++) {
        set_up(&f, ways[i % 3].type, ways[i % 3].kernels);
        if (open_optimizer(&f, NULL, 0, &e)) fail_msg("%s", e.message);
        draw_gradients(&f, 1);
        set(&f, f.gradient[1], 5, bad[i / 3]);
        assert_int_equal(optimizer_gradient_norm(&f.o, f.world, 1, &e), ERR_NONE);
        assert_int_equal(optimizer_step(&f.o, 1e-2, &e), ERR_NONE);
        for (int k = 0; k < N_TENSORS; k++)
            for (int64_t j = 0; j < sizes[k]; j++)
                assert_int_equal(isfinite(get(&f, f.value[k], j)) != 0, !(k == 1 && j == 5));
        tear_down(&f);
    }
}

/* Ranks that hold different rows agree on one norm; one of them may hold nothing. */
static void norm_of_shards(struct rank_test *t)
{
    static const double mine[] = {3, 0, 4, 12};
    struct device_options options = {.kind = "cpu", .local_size = 1, .threads = 1};
    struct optim_spec spec = {.type = DTYPE_FLOAT64, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    struct optim_tensor *tensor = mem_zalloc(1, sizeof *tensor);
    struct optimizer o = {0};
    struct error e = {0};
    double gradient = mine[t->comm->rank], value = 1;

    *tensor = (struct optim_tensor){.name = "w", .n = t->comm->rank != 1, .value = &value, .gradient = &gradient};
    if (!rank_check_ok(t, device_open(&spec.device, &options, &e))) return;
    rank_check_ok(t, kernels_for(&spec.kernels, spec.device, spec.type, "reference", &e));
    rank_check_ok(t, optimizer_open(&o, &spec, tensor, 1, &e));
    rank_check_ok(t, optimizer_gradient_norm(&o, t->comm, 1, &e));
    rank_check(t, *o.norm == 13 && *o.factor == 1 / (13 + 1e-6));
    optimizer_close(&o);
    device_close(spec.device);
}

static void test_norm_over_ranks(void **state)
{
    (void)state;
    ranks_as_threads(4, 0, norm_of_shards, NULL);
}

static void test_out_of_memory(void **state)
{
    static struct fixture f;
    struct optim_group groups[] = {group("norm", 0, NAN)};
    struct memory_stats stats;
    struct error e = {0};

    (void)state;
    set_up(&f, DTYPE_FLOAT32, "auto");
    for (int n = 0;; n++) {
        err_t rc;

        mem_fault_arm(n);
        rc = open_optimizer(&f, groups, 1, &e);
        if (!mem_fault_fired()) {
            assert_int_equal(rc, ERR_NONE);
            assert_true(n >= 4);
            break;
        }
        if (!rc) { /* a block of the device's allocator that was not split, or a library's memory */
            optimizer_close(&f.o);
            continue;
        }
        assert_true(rc == ERR_MEMORY);
        device_memory_stats(f.device, &stats);
        assert_int_equal(stats.active_bytes, 0);
        optimizer_close(&f.o); /* after a failure too */
    }
    mem_fault_arm(-1);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula),         cmocka_unit_test(test_groups),
        cmocka_unit_test(test_groups_refused),  cmocka_unit_test(test_norm),
        cmocka_unit_test(test_clip_factor),     cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_norm_over_ranks), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
