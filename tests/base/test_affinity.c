/* SPDX-License-Identifier: MIT */
/* Ranks that share a mask split it evenly; ranks bound by their launcher keep their own; too many threads are
 * warned of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/affinity.h"

static void test_shared_mask_is_split(void **state)
{
    struct affinity_mask masks[3] = {{{0x3f4}}, {{0x3f4}}, {{0x3f4}}}; /* cores 2 4 5 6 7 8 9 */
    const uint64_t want[3] = {0x14, 0x60, 0x380};
    struct affinity a;

    (void)state;
    for (int q = 0; q < 3; q++) {
        affinity_plan(masks, q, 3, 0, &a);
        assert_int_equal(a.cores.words[0], want[q]);
        assert_int_equal(a.threads, q == 2 ? 3 : 2);
        assert_string_equal(a.warning, "");
    }
}

static void test_bound_ranks_keep_their_cores(void **state)
{
    struct affinity_mask masks[4] = {{{0x3}}, {{0xc}}, {{0, 1}}, {{0xc}}};
    struct affinity a;

    (void)state;
    affinity_plan(masks, 0, 4, 0, &a);
    assert_int_equal(a.cores.words[0], 0x3);
    assert_int_equal(a.threads, 2);
    affinity_plan(masks, 2, 4, 1, &a);
    assert_int_equal(a.cores.words[1], 1);
    assert_string_equal(a.warning, "");
    affinity_plan(masks, 3, 4, 0, &a); /* shares with rank 1 */
    assert_int_equal(a.cores.words[0], 0x8);
    affinity_plan(masks, 2, 4, 2, &a);
    assert_int_equal(a.threads, 2);
    assert_non_null(strstr(a.warning, "1 rank with 2 threads each share 1 core"));
    assert_non_null(strstr(a.warning, "--bind-to none"));
}

static void test_more_ranks_than_cores(void **state)
{
    struct affinity_mask masks[3] = {{{0x3}}, {{0x3}}, {{0x3}}};
    struct affinity a;

    (void)state;
    affinity_plan(masks, 1, 3, 0, &a);
    assert_int_equal(a.cores.words[0], 0x3);
    assert_int_equal(a.threads, 1);
    assert_non_null(strstr(a.warning, "3 ranks with 1 thread each share 2 cores"));
}

static void test_binding_this_thread(void **state)
{
    struct affinity_mask before, after;
    struct affinity a = {0};
    struct error e = {0};

    (void)state;
    assert_int_equal(affinity_get(&before, &e), ERR_NONE);
    assert_true(affinity_count(&before) >= 1);
    assert_int_equal(affinity_own_cores(), affinity_count(&before));
    affinity_plan(&before, 0, 1, 1, &a);
    assert_int_equal(affinity_apply(&a, &e), ERR_NONE);
    assert_int_equal(affinity_get(&after, &e), ERR_NONE);
    assert_memory_equal(&after, &before, sizeof after);
    memset(&a.cores, 0, sizeof a.cores);
    assert_int_equal(affinity_apply(&a, &e), ERR_DEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_mask_is_split),
        cmocka_unit_test(test_bound_ranks_keep_their_cores),
        cmocka_unit_test(test_more_ranks_than_cores),
        cmocka_unit_test(test_binding_this_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
