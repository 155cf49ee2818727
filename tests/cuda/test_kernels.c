/* SPDX-License-Identifier: MIT */
/*
 * Every kernel case on the GPU, in every compute type: twin = the CPU's reference within the tolerance of its kernel,
 * the same bits in a second run, and nothing written beside what is the kernel's. Each case also runs with its arrays
 * one element off their alignment, which takes the kernels' other path.
 *
 * timeout: 600
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "tests/kernels/cases.h"
#include "tests/support/gpu.h"

struct fixture {
    struct device *device, host;
    struct device_ops host_ops;
    struct kernel_context on_device, on_host;
};

static void ok(err_t rc, const struct error *e)
{
    if (rc) fail_msg("%s", e->message);
}

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(1, sizeof *f);

    assert_non_null(f);
    f->device = gpu_open(0);
    f->host_ops.name = "cpu";
    f->host.ops = &f->host_ops;
    f->on_host.device = &f->host;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    device_close(f->device);
    mem_free(f);
    return 0;
}

/* The tensor cores take probabilities, and the gradients of scores, rounded to bfloat16, 2^-9 away at most. */
static double tolerance_of(const struct kernel_case *c, enum dtype type)
{
    bool may_be_on_tensor_cores = c->attention.heads && c->attention.d_qk % 8 == 0;

    return type == DTYPE_BFLOAT16 && may_be_on_tensor_cores ? 5e-3 : kernel_case_tolerance(c, type);
}

/* The simulator takes minutes for what the GPU does in a moment: second runs, and shifted ones, are for small cases. */
static bool is_small(const struct kernel_case *c) { return kernel_case_flops(c) < 1e6; }

/* One case: what the device makes of it comes back in `got`, which was like what the host starts with. */
static void run_on_device(struct fixture *f, const struct kernels *k, struct kernel_run *got, int64_t shift)
{
    struct kernel_run r;
    struct error e = {0};

    ok(kernel_run_upload(&r, got, &f->on_device, shift, &e), &e);
    kernel_run_call(&r, k);
    ok(kernel_context_check(&f->on_device, &e), &e);
    ok(kernel_run_download(got, &r, &e), &e);
    kernel_run_drop(&r);
}

static void check_case(struct fixture *f, const struct kernels *k, const struct kernels *reference,
                       const struct kernel_case *c, int64_t shift)
{
    double tolerance = tolerance_of(c, k->type), d;
    struct kernel_run want, got, again;
    char text[CASE_TEXT_BYTES];
    int worst;

    kernel_case_text(c, text);
    kernel_run_init(&want, c, reference, &f->on_host);
    kernel_run_init(&got, c, reference, &f->on_host);
    kernel_run_init(&again, c, reference, &f->on_host);
    run_on_device(f, k, &got, shift);
    if (is_small(c)) run_on_device(f, k, &again, shift);
    kernel_run_call(&want, reference);
    d = kernel_run_difference(&got, &want, &worst);
    if (!(d <= tolerance))
        fail_msg("%s of %s, %s, shifted by %jd: array %d differs by %.3g (relative L2), above %.3g", c->kernel,
                 dtype_name(k->type), text, (intmax_t)shift, worst, d, tolerance);
    if (is_small(c) && !kernel_run_same_bits(&got, &again))
        fail_msg("%s of %s, %s: a second run gives other bits", c->kernel, dtype_name(k->type), text);
    kernel_run_release(&want);
    kernel_run_release(&got);
    kernel_run_release(&again);
}

static void check_type(struct fixture *f, enum dtype type)
{
    const struct kernels *k, *reference;
    struct error e = {0};

    ok(kernels_for(&k, f->device, type, "auto", &e), &e);
    ok(kernels_for(&reference, &f->host, type, "reference", &e), &e);
    ok(kernel_context_open(&f->on_device, f->device, k, NULL, true, &e), &e);
    for (int i = 0; i < kernel_cases_count; i++)
        for (int64_t shift = 0; shift < (is_small(&kernel_cases[i]) ? 2 : 1); shift++)
            if (!kernel_cases[i].is_bench) check_case(f, k, reference, &kernel_cases[i], shift);
    kernel_context_close(&f->on_device);
}

static void test_float32(void **state) { check_type(*state, DTYPE_FLOAT32); }
static void test_bfloat16(void **state) { check_type(*state, DTYPE_BFLOAT16); }
static void test_float64(void **state) { check_type(*state, DTYPE_FLOAT64); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float32),
        cmocka_unit_test(test_bfloat16),
        cmocka_unit_test(test_float64),
    };

    if (!gpu_is_here()) return GPU_SKIPPED;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
