/* SPDX-License-Identifier: MIT */
/*
 * Every kernel case, for every level this CPU has: twin = reference within the tolerance of its kernel, float32 and
 * bfloat16 = float64, the same bits for any number of threads, and for any split of a product's rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "tests/kernels/cases.h"

enum { MOST_THREADS = 3 };
static const char *const levels[] = {"reference", "avx2", "avx512"};
static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_FLOAT64, DTYPE_BFLOAT16};
enum { LEVELS = sizeof levels / sizeof levels[0], TYPES = sizeof types / sizeof types[0] };

struct fixture {
    struct device_ops ops;
    struct device device[MOST_THREADS]; /* with 1, 2, 3 threads */
    struct kernel_context context[MOST_THREADS];
};

/* The table of a level, or NULL where this CPU lacks it. */
static const struct kernels *table_of(struct fixture *f, enum dtype type, const char *level)
{
    const struct kernels *k = NULL;
    struct error e;

    if (kernels_for(&k, &f->device[0], type, level, &e)) assert_int_equal(e.code, ERR_UNSUPPORTED);
    return k;
}

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(1, sizeof *f);
    struct error e;

    assert_non_null(f);
    f->ops.name = "cpu";
    for (int i = 0; i < MOST_THREADS; i++) {
        struct kernel_context *c = &f->context[i];

        f->device[i].ops = &f->ops;
        assert_int_equal(pool_create(&f->device[i].pool, i + 1, &e), 0);
        c->device = &f->device[i];
        for (int level = 0; level < LEVELS * TYPES; level++) {
            const struct kernels *k = table_of(f, types[level % TYPES], levels[level / TYPES]);
            size_t need = k ? kernels_workspace_bytes(k, i + 1) : 0;

            if (need > c->workspace_bytes) c->workspace_bytes = need;
        }
        c->workspace = mem_aligned(64, c->workspace_bytes);
        assert_non_null(c->workspace);
    }
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < MOST_THREADS; i++) {
        pool_destroy(f->device[i].pool);
        mem_free(f->context[i].workspace);
    }
    mem_free(f);
    return 0;
}

static void check_close(const struct kernel_run *got, const struct kernel_run *want, double tolerance, const char *what)
{
    char text[CASE_TEXT_BYTES];
    int worst;
    double d = kernel_run_difference(got, want, &worst);

    kernel_case_text(want->c, text);
    if (!(d <= tolerance))
        fail_msg("%s %s, %s: array %d differs by %.3g (relative L2), above %.3g", got->c->kernel, text, what, worst, d,
                 tolerance);
}

static void compare_level(struct fixture *f, const char *level)
{
    for (int type = 0; type < TYPES; type++) {
        const struct kernels *reference = table_of(f, types[type], "reference"), *k = table_of(f, types[type], level);

        for (int i = 0; i < kernel_cases_count; i++) {
            const struct kernel_case *c = &kernel_cases[i];
            struct kernel_run got, want;

            if (c->is_bench) continue;
            kernel_run_init(&want, c, reference, &f->context[0]);
            kernel_run_init(&got, c, reference, &f->context[0]);
            kernel_run_call(&want, reference);
            kernel_run_call(&got, k);
            check_close(&got, &want, kernel_case_tolerance(c, types[type]), level);
            kernel_run_release(&want);
            kernel_run_release(&got);
        }
    }
}

static void test_avx2_is_reference(void **state)
{
    if (!table_of(*state, DTYPE_FLOAT32, "avx2")) skip();
    compare_level(*state, "avx2");
}

static void test_avx512_is_reference(void **state)
{
    if (!table_of(*state, DTYPE_FLOAT32, "avx512")) skip();
    compare_level(*state, "avx512");
}

static void test_float32_is_float64(void **state)
{
    struct fixture *f = *state;
    const struct kernels *single = table_of(f, DTYPE_FLOAT32, "reference"),
                         *precise = table_of(f, DTYPE_FLOAT64, "reference");

    for (int i = 0; i < kernel_cases_count; i++) {
        struct kernel_run got, want;

        if (kernel_cases[i].is_bench) continue;
        kernel_run_init(&got, &kernel_cases[i], single, &f->context[0]);
        kernel_run_init(&want, &kernel_cases[i], precise, &f->context[0]);
        kernel_run_call(&got, single);
        kernel_run_call(&want, precise);
        check_close(&got, &want, 2e-6, "float32 against float64");
        kernel_run_release(&got);
        kernel_run_release(&want);
    }
}

static void check_threads(struct fixture *f, const struct kernels *k, const struct kernels *reference,
                          const struct kernel_case *c)
{
    struct kernel_run run[MOST_THREADS];
    char text[CASE_TEXT_BYTES];

    kernel_case_text(c, text);
    for (int i = 0; i < MOST_THREADS; i++) {
        kernel_run_init(&run[i], c, reference, &f->context[0]);
        run[i].context = &f->context[i];
        kernel_run_call(&run[i], k);
        if (!kernel_run_same_bits(&run[0], &run[i]))
            fail_msg("%s %s, %s %s: %d threads give other bits than 1", c->kernel, text, k->level, dtype_name(k->type),
                     i + 1);
    }
    for (int i = 0; i < MOST_THREADS; i++) kernel_run_release(&run[i]);
}

static void test_threads_give_the_same_bits(void **state)
{
    struct fixture *f = *state;

    for (int level = 0; level < LEVELS * TYPES; level++) {
        enum dtype type = types[level % TYPES];
        const struct kernels *k = table_of(f, type, levels[level / TYPES]), *reference = table_of(f, type, "reference");

        for (int i = 0; k && i < kernel_cases_count; i++)
            if (!kernel_cases[i].is_bench) check_threads(f, k, reference, &kernel_cases[i]);
    }
}

/* What bfloat16 kernels store is what float64 kernels make of the same numbers, rounded once. Results that are summed
 * in float differ by 1e-6 before they are rounded, so that some in a thousand become the neighbour, 2^-8 away: 1e-4 in
 * all, somewhat more where there are few. Numbers cut off or rounded twice show with more than 1e-3. */
static void test_bfloat16_is_float64(void **state)
{
    struct fixture *f = *state;
    const struct kernels *half = table_of(f, DTYPE_BFLOAT16, "reference"),
                         *precise = table_of(f, DTYPE_FLOAT64, "reference");

    for (int i = 0; i < kernel_cases_count; i++) {
        double tolerance = kernel_case_tolerance(&kernel_cases[i], DTYPE_BFLOAT16);
        struct kernel_run got, want;

        if (kernel_cases[i].is_bench) continue;
        kernel_run_init(&got, &kernel_cases[i], half, &f->context[0]);
        kernel_run_init(&want, &kernel_cases[i], precise, &f->context[0]);
        kernel_run_copy(&want, &got);
        kernel_run_call(&got, half);
        kernel_run_call(&want, precise);
        kernel_run_round(&want, DTYPE_BFLOAT16);
        check_close(&got, &want, tolerance > 2e-6 ? tolerance : 2e-6, "bfloat16 against float64");
        kernel_run_release(&got);
        kernel_run_release(&want);
    }
}

/* Rows [0, m) at once, and in pieces of 1, 7 and the rest. */
static void test_row_splits_give_the_same_bits(void **state)
{
    enum { M = 61, N = 83, K = 700, PAD = 2 };
    const struct kernel_case whole = {.kernel = "gemm", .m = M, .n = N, .k = K, .transpose_b = true, .pad = PAD};
    const int64_t starts[] = {0, 1, 8, M};
    struct fixture *f = *state;

    for (int level = 0; level < LEVELS * TYPES; level++) {
        const struct kernels *k = table_of(f, types[level % TYPES], levels[level / TYPES]);
        struct kernel_run once, pieces;

        if (!k) continue;
        kernel_run_init(&once, &whole, k, &f->context[1]);
        kernel_run_init(&pieces, &whole, k, &f->context[1]);
        kernel_run_call(&once, k);
        for (int i = 0; i < 3; i++) {
            char *a = (char *)pieces.array[0] + (size_t)starts[i] * (K + PAD) * dtype_bytes(k->type);
            char *out = (char *)pieces.array[2] + (size_t)starts[i] * (N + PAD) * dtype_bytes(k->type);

            k->gemm(&f->context[1], false, true, starts[i + 1] - starts[i], N, K, a, K + PAD, pieces.array[1], K + PAD,
                    false, out, N + PAD);
        }
        assert_true(kernel_run_same_bits(&once, &pieces));
        kernel_run_release(&once);
        kernel_run_release(&pieces);
    }
}

static void test_every_kernel_has_a_case(void **state)
{
    static const char *const names[] = {
#define KERNEL(name, family, arguments, help) #name,
#include "kernels/kernels.def"
#undef KERNEL
    };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool found = false;

        for (int c = 0; c < kernel_cases_count && !found; c++) found = strcmp(kernel_cases[c].kernel, names[i]) == 0;
        if (!found) fail_msg("the kernel %s has no case in tests/kernels/cases.c", names[i]);
    }
}

static void test_refused_tables(void **state)
{
    struct fixture *f = *state;
    struct device_ops ops = {.name = "abacus"};
    struct device other = {.ops = &ops};
    const struct kernels *k;
    struct error e;

    assert_int_equal(kernels_for(&k, &other, DTYPE_FLOAT32, "auto", &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "abacus"));
    assert_int_equal(kernels_for(&k, &f->device[0], DTYPE_INT32, "auto", &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "int32"));
    assert_int_equal(kernels_for(&k, &f->device[0], DTYPE_FLOAT32, "sse9", &e), ERR_CONFIG);
    assert_non_null(strstr(e.message, "sse9"));
    assert_null(k);
}

static void test_a_failed_context_says_so(void **state)
{
    struct kernel_context c = {0};
    struct error e = {0};

    (void)state;
    assert_int_equal(kernel_context_check(&c, &e), 0);
    c.failed = FAIL(&c.error, ERR_DEVICE, "the device went away");
    assert_int_equal(kernel_context_check(&c, &e), ERR_DEVICE);
    assert_string_equal(e.message, "the device went away");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kernel_has_a_case),       cmocka_unit_test(test_refused_tables),
        cmocka_unit_test(test_a_failed_context_says_so),      cmocka_unit_test(test_float32_is_float64),
        cmocka_unit_test(test_bfloat16_is_float64),           cmocka_unit_test(test_avx2_is_reference),
        cmocka_unit_test(test_avx512_is_reference),           cmocka_unit_test(test_threads_give_the_same_bits),
        cmocka_unit_test(test_row_splits_give_the_same_bits),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
