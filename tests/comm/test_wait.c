/* SPDX-License-Identifier: MIT */
/* comm_wait_event: an end, a failure of the device, of a collective, and one that never ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "comm/wait.h"

struct fake {
    struct device device;
    struct comm comm;
    bool is_broken;
    int polls_until_done;            /* -1: never */
    int polls_until_broken;          /* of the device; -1: never */
    int checks, checks_until_broken; /* of the communicator; -1: never */
};

static struct fake fake;

static bool is_done(struct device *d, struct event *event)
{
    (void)d, (void)event;
    if (fake.polls_until_broken >= 0 && fake.polls_until_broken-- == 0) return fake.is_broken = true;
    return fake.polls_until_done >= 0 && fake.polls_until_done-- == 0;
}

static err_t synchronize(struct device *d, struct event *event, struct error *e)
{
    (void)d, (void)event;
    return fake.is_broken ? FAIL(e, ERR_DEVICE, "an illegal address was touched") : ERR_NONE;
}

static err_t check(struct comm *c, struct str *pending, struct error *e)
{
    (void)c;
    fake.checks++;
    if (fake.checks_until_broken >= 0 && fake.checks_until_broken-- == 0)
        return FAIL(e, ERR_COMM, "a connection was lost");
    if (pending) str_add(pending, "all_gather \"layers.3\"");
    return ERR_NONE;
}

static const struct device_ops device_ops = {
    .name = "fake", .event_is_done = is_done, .event_synchronize = synchronize};
static const struct comm_ops comm_ops = {.name = "fake", .check = check};
static const struct comm_ops plain_ops = {.name = "plain"};

static int reset(void **state)
{
    (void)state;
    fake = (struct fake){.device = {.ops = &device_ops},
                         .comm = {.ops = &comm_ops, .size = 2},
                         .polls_until_done = -1,
                         .polls_until_broken = -1,
                         .checks_until_broken = -1};
    return 0;
}

static err_t wait_for(double timeout_s, struct error *e)
{
    struct comm plain = {.ops = &plain_ops}, *comms[] = {&plain, &fake.comm};

    return comm_wait_event(&fake.device, NULL, comms, 2, timeout_s, e);
}

static void test_ends_when_the_event_has_happened(void **state)
{
    struct error e = {0};

    (void)state;
    fake.polls_until_done = 0;
    assert_int_equal(wait_for(60, &e), ERR_NONE);
    assert_int_equal(fake.checks, 0);
    fake.polls_until_done = 30;
    assert_int_equal(wait_for(0, &e), ERR_NONE);
}

static void test_a_failed_device_ends_the_wait(void **state)
{
    struct error e = {0};

    (void)state;
    fake.polls_until_broken = 3;
    assert_int_equal(wait_for(60, &e), ERR_DEVICE);
    assert_non_null(strstr(e.message, "illegal address"));
}

static void test_a_failed_collective_ends_the_wait(void **state)
{
    struct error e = {0};

    (void)state;
    fake.checks_until_broken = 1;
    assert_int_equal(wait_for(60, &e), ERR_COMM);
    assert_non_null(strstr(e.message, "connection was lost"));
}

static void test_a_hang_is_named(void **state)
{
    struct error e = {0};

    (void)state;
    assert_int_equal(wait_for(0.05, &e), ERR_TIMEOUT);
    assert_non_null(strstr(e.message, "all_gather \"layers.3\" did not finish within 0.05 s"));
}

static void test_without_a_collective_the_device_is_named(void **state)
{
    struct error e = {0};

    (void)state;
    assert_int_equal(comm_wait_event(&fake.device, NULL, NULL, 0, 0.02, &e), ERR_TIMEOUT);
    assert_non_null(strstr(e.message, "the device did not finish"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_ends_when_the_event_has_happened, reset),
        cmocka_unit_test_setup(test_a_failed_device_ends_the_wait, reset),
        cmocka_unit_test_setup(test_a_failed_collective_ends_the_wait, reset),
        cmocka_unit_test_setup(test_a_hang_is_named, reset),
        cmocka_unit_test_setup(test_without_a_collective_the_device_is_named, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
