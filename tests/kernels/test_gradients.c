/* SPDX-License-Identifier: MIT */
/*
 * Backward kernels against finite differences of their forward kernels, in double: for a random direction u of each
 * input x, (L(x + h u) - L(x - h u)) / 2h = <dL/dx, u>, where L = <dout, out> and dout is what the backward kernel was
 * given.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "tests/kernels/cases.h"

/* Which arrays of the cases (see cases.c) belong together. */
struct derivative {
    const char *backward, *forward;
    int input, gradient; /* array numbers: x, dx */
    int output, output_gradient;
    bool accumulates; /* the backward kernel adds to the gradient */
};

static const struct derivative derivatives[] = {
    {"rmsnorm_backward_input", "rmsnorm_forward", 0, 5, 2, 4, false},
    {"rmsnorm_backward_weight", "rmsnorm_forward", 1, 6, 2, 4, true},
    {"attention_backward", "attention_forward", 0, 6, 3, 5, false},
    {"attention_backward", "attention_forward", 1, 7, 3, 5, false},
    {"attention_backward", "attention_forward", 2, 8, 3, 5, false},
    {"swiglu_backward", "swiglu_forward", 0, 3, 2, 2, false},
    {"swiglu_backward", "swiglu_forward", 1, 4, 2, 2, false},
    {"embedding_backward_weight", "embedding_forward", 0, 2, 1, 1, true},
};

struct fixture {
    struct device_ops ops;
    struct device device;
    struct kernel_context context;
    const struct kernels *k;
};

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(1, sizeof *f);
    struct error e;

    assert_non_null(f);
    f->ops.name = "cpu";
    f->device.ops = &f->ops;
    f->context.device = &f->device;
    assert_int_equal(pool_create(&f->device.pool, 2, &e), 0);
    assert_int_equal(kernels_for(&f->k, &f->device, DTYPE_FLOAT64, "reference", &e), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    pool_destroy(f->device.pool);
    mem_free(f);
    return 0;
}

static double direction(int64_t i) { return (double)(hash_mix((uint64_t)i + 12345) >> 40) / (1 << 23) - 1; }

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* L at x + step * u */
static double loss_at(struct fixture *f, const struct derivative *d, const struct kernel_case *c,
                      const double *output_gradient, double step)
{
    struct kernel_case forward = *c;
    struct kernel_run run;
    double loss, *x;

    forward.kernel = d->forward;
    kernel_run_init(&run, &forward, f->k, &f->context);
    x = run.array[d->input];
    for (int64_t i = 0; i < run.count[d->input]; i++) x[i] += step * direction(i);
    kernel_run_call(&run, f->k);
    loss = dot(run.array[d->output], output_gradient, run.count[d->output]);
    kernel_run_release(&run);
    return loss;
}

static void check_derivative(struct fixture *f, const struct derivative *d, const struct kernel_case *c)
{
    const double h = 1e-5;
    struct kernel_run run, fresh;
    double expected, got = 0, size = 0, *dx, *before;
    char text[CASE_TEXT_BYTES];

    kernel_run_init(&run, c, f->k, &f->context);
    kernel_run_init(&fresh, c, f->k, &f->context);
    kernel_run_call(&run, f->k);
    dx = run.array[d->gradient];
    before = fresh.array[d->gradient];
    for (int64_t i = 0; i < run.count[d->gradient]; i++) {
        double g = dx[i] - (d->accumulates || c->accumulate ? before[i] : 0);

        got += g * direction(i);
        size += g * g;
    }
    expected =
        (loss_at(f, d, c, run.array[d->output_gradient], h) - loss_at(f, d, c, run.array[d->output_gradient], -h)) /
        (2 * h);
    kernel_case_text(c, text);
    if (!(fabs(got - expected) <= 1e-7 * (fabs(expected) + sqrt(size)) + 1e-9))
        fail_msg("%s %s, gradient of array %d: %.12g, finite difference %.12g", c->kernel, text, d->input, got,
                 expected);
    kernel_run_release(&run);
    kernel_run_release(&fresh);
}

static void test_finite_differences(void **state)
{
    int checked = 0;

    for (size_t i = 0; i < sizeof derivatives / sizeof derivatives[0]; i++)
        for (int c = 0; c < kernel_cases_count; c++) {
            if (strcmp(kernel_cases[c].kernel, derivatives[i].backward) != 0) continue;
            if (kernel_cases[c].is_bench || kernel_cases[c].pad > 0) continue; /* gaps have no gradient */
            check_derivative(*state, &derivatives[i], &kernel_cases[c]);
            checked++;
        }
    assert_true(checked > 30);
}

/* The gradient takes the place of the logits; rows without a label have none. */
static void test_cross_entropy(void **state)
{
    const struct kernel_case c = {.kernel = "cross_entropy", .t = 9, .v = 37, .accumulate = true};
    const double h = 1e-5;
    struct fixture *f = *state;
    double loss[2], got = 0, expected, *x;
    struct kernel_run run;

    for (int side = 0; side < 2; side++) {
        struct kernel_case forward = c;

        forward.accumulate = false;
        kernel_run_init(&run, &forward, f->k, &f->context);
        x = run.array[0];
        for (int64_t i = 0; i < run.count[0]; i++) x[i] += (side ? h : -h) * direction(i);
        kernel_run_call(&run, f->k);
        loss[side] = *run.sum;
        kernel_run_release(&run);
    }
    kernel_run_init(&run, &c, f->k, &f->context);
    kernel_run_call(&run, f->k);
    x = run.array[0];
    for (int64_t i = 0; i < run.count[0]; i++) got += x[i] * direction(i);
    for (int64_t i = 0; i < c.v; i++) assert_true(x[6 * c.v + i] == 0);
    expected = 0.125 * (loss[1] - loss[0]) / (2 * h);
    assert_true(fabs(got - expected) <= 1e-7 * fabs(expected));
    kernel_run_release(&run);
}

/* <w, R x> = <R' w, x>: the inverse rotation is the backward pass, and it undoes the rotation. */
static void test_rope(void **state)
{
    enum { T = 5, HEADS = 2, D = 6, N = T * HEADS * D };
    const int32_t positions[T] = {3, 0, 4, 1, 1};
    struct fixture *f = *state;
    double cosine[T * D / 2], sine[T * D / 2], x[N], w[N], rotated[N], back[N];

    for (int i = 0; i < T * D / 2; i++) {
        cosine[i] = cos(0.7 * i);
        sine[i] = sin(0.7 * i);
    }
    for (int i = 0; i < N; i++) {
        rotated[i] = x[i] = direction(i);
        back[i] = w[i] = direction(i + N);
    }
    f->k->rope(&f->context, T, HEADS, D, HEADS * D, cosine, sine, positions, false, rotated);
    f->k->rope(&f->context, T, HEADS, D, HEADS * D, cosine, sine, positions, true, back);
    assert_true(fabs(dot(w, rotated, N) - dot(back, x, N)) < 1e-13);
    f->k->rope(&f->context, T, HEADS, D, HEADS * D, cosine, sine, positions, true, rotated);
    for (int i = 0; i < N; i++) assert_true(fabs(rotated[i] - x[i]) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_rope),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
