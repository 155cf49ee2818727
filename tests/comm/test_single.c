/* SPDX-License-Identifier: MIT */
/* The communicators of one process: self, and the fake of a job that is not there. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "comm/fake.h"
#include "comm/self.h"
#include "tests/support/comm_cases.h"

static void test_self(void **state)
{
    struct rank_test t = {0};
    struct comm *c = NULL, *part = NULL;
    struct error e = {0};

    (void)state;
    assert_int_equal(comm_self_create(&t.comm, &e), ERR_NONE);
    case_all_reduce(&t);
    case_reduce_scatter(&t);
    case_all_gather(&t);
    case_broadcast(&t);
    case_mixed_sizes(&t);
    case_split(&t);
    case_split_ranks(&t);
    case_not_a_number(&t);
    case_bad_arguments(&t);
    assert_int_equal(t.failures, 0);
    c = t.comm;
    assert_int_equal(comm_split(c, 0, 0, &part, &e), ERR_NONE);
    comm_abort(part, "the reason");
    comm_abort(c, "too late");
    assert_int_equal(comm_barrier(c, "x", &e), ERR_PEER);
    assert_string_equal(e.message, "rank 0 failed: the reason");
    comm_destroy(c);
    comm_destroy(part);
    comm_destroy(NULL);
}

static void test_fake(void **state)
{
    struct comm *c = NULL, *half = NULL;
    const int ranks[] = {6, 5, 1};
    float x[3] = {1, -2, 3}, all[8][3] = {{0}};
    double scatter[8] = {0, 0, 0, 0, 0, 2.5, 0, 0}, part = 0;
    int64_t n = 7;
    struct error e = {0};

    (void)state;
    assert_int_equal(comm_fake_create(8, 5, &c, &e), ERR_NONE);
    assert_int_equal(comm_all_gather(c, "g", x, all, 3, DTYPE_FLOAT32, NULL, &e), ERR_NONE);
    for (int q = 0; q < 8; q++) assert_memory_equal(all[q], x, sizeof x);
    assert_int_equal(comm_all_gather(c, "g", all[5], all, 3, DTYPE_FLOAT32, NULL, &e), ERR_NONE); /* in place */
    assert_int_equal(comm_all_reduce(c, "r", x, 3, DTYPE_FLOAT32, COMM_SUM, NULL, &e), ERR_NONE);
    assert_true(x[0] == 8 && x[1] == -16 && x[2] == 24);
    assert_int_equal(comm_all_reduce(c, "r", x, 3, DTYPE_FLOAT32, COMM_MAX, NULL, &e), ERR_NONE);
    assert_true(x[0] == 8);
    assert_int_equal(comm_all_reduce(c, "r", &n, 1, DTYPE_INT64, COMM_SUM, NULL, &e), ERR_NONE);
    assert_int_equal(n, 56);
    assert_int_equal(comm_reduce_scatter(c, "s", scatter, &part, 1, DTYPE_FLOAT64, COMM_SUM, NULL, &e), ERR_NONE);
    assert_true(part == 20);
    assert_int_equal(comm_broadcast(c, "b", x, sizeof x, 3, NULL, &e), ERR_NONE);
    assert_int_equal(comm_split_ranks(c, ranks, 3, &half, &e), ERR_NONE);
    assert_true(half->size == 3 && half->rank == 1 && half->world_rank == 5);
    assert_int_equal(comm_barrier(half, "x", &e), ERR_NONE);
    comm_destroy(half);
    comm_destroy(c);
    assert_int_equal(comm_fake_create(8, 8, &c, &e), ERR_COMM);
    assert_int_equal(comm_fake_create(0, 0, &c, &e), ERR_COMM);
    assert_null(c);
}

static void test_no_memory(void **state)
{
    struct comm *c = NULL;
    struct error e = {0};

    (void)state;
    for (int n = 0; n < 2; n++) {
        mem_fault_arm(n);
        assert_int_equal(comm_self_create(&c, &e), ERR_MEMORY);
        assert_null(c);
    }
    mem_fault_arm(0);
    assert_int_equal(comm_fake_create(2, 0, &c, &e), ERR_MEMORY);
    mem_fault_arm(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self),
        cmocka_unit_test(test_fake),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
