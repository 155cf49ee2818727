/* SPDX-License-Identifier: MIT */
/* Each chunk runs exactly once, whatever the number of threads, in loops that follow each other closely;
 * failures release everything. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"

enum { CHUNKS = 1000 };

struct loop {
    int count[CHUNKS]; /* not atomic: two threads with one chunk are a race that ThreadSanitizer sees */
    int64_t value[CHUNKS];
    atomic_int running, most_running;
};

static struct pool *open_pool(int n_threads)
{
    struct pool *p;
    struct error e = {0};

    if (pool_create(&p, n_threads, &e)) fail_msg("%s", e.message);
    return p;
}

static void count_chunk(void *arg, int64_t chunk)
{
    struct loop *l = arg;

    l->count[chunk]++;
    l->value[chunk] = chunk * chunk;
}

static void test_each_chunk_once(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 17, CHUNKS};

    (void)state;
    for (int threads = 0; threads <= 5; threads++) {
        struct pool *p = threads ? open_pool(threads) : NULL;

        assert_int_equal(pool_threads(p), threads ? threads : 1);
        for (int i = 0; i < 6; i++) {
            struct loop l = {0};

            pool_run(p, count_chunk, &l, sizes[i]);
            for (int64_t c = 0; c < CHUNKS; c++) {
                assert_int_equal(l.count[c], c < sizes[i]);
                assert_int_equal(l.value[c], c < sizes[i] ? c * c : 0);
            }
        }
        pool_run(p, count_chunk, NULL, -3); /* nothing to do */
        pool_destroy(p);
    }
}

/* Kernels follow each other within microseconds: what a loop wrote is there when the next one starts, and for
 * the caller. */
static void add_one(void *arg, int64_t chunk) { ((struct loop *)arg)->value[chunk]++; }

static void mirror(void *arg, int64_t chunk)
{
    struct loop *l = arg;

    l->count[chunk] = (int)l->value[15 - chunk];
}

static void test_loops_in_sequence(void **state)
{
    struct pool *p = open_pool(4);
    struct loop l = {0};

    (void)state;
    for (int round = 1; round <= 3000; round++) {
        pool_run(p, add_one, &l, 16);
        pool_run(p, mirror, &l, 16);
        for (int c = 0; c < 16; c++) assert_int_equal(l.count[c], round);
        if (round % 1000 == 0) clock_sleep_ns(3000000); /* long enough for workers to fall asleep */
    }
    pool_destroy(p);
}

static void wait_for_others(void *arg, int64_t chunk)
{
    struct loop *l = arg;
    int now = atomic_fetch_add(&l->running, 1) + 1, most = atomic_load(&l->most_running);

    (void)chunk;
    while (now > most && !atomic_compare_exchange_weak(&l->most_running, &most, now)) {
    }
    for (int64_t end = clock_ns() + 5000000000; atomic_load(&l->most_running) < 3 && clock_ns() < end;)
        clock_sleep_ns(100000);
    atomic_fetch_sub(&l->running, 1);
}

/* The caller and all workers take part: three chunks that wait for each other all start. */
static void test_all_threads_work(void **state)
{
    struct pool *p = open_pool(3);
    struct loop l = {0};

    (void)state;
    pool_run(p, wait_for_others, &l, 3);
    assert_int_equal(atomic_load(&l.most_running), 3);
    pool_destroy(p);
}

struct held {
    pthread_t caller, worker;
    atomic_int met;
    atomic_bool is_held, is_free;
};

static struct held held; /* the signal handler finds it here */

static void meet(void *arg, int64_t chunk)
{
    (void)arg, (void)chunk;
    if (!pthread_equal(pthread_self(), held.caller)) held.worker = pthread_self();
    atomic_fetch_add(&held.met, 1);
    while (atomic_load(&held.met) < 2) clock_sleep_ns(100000);
}

static void hold(int signal_number)
{
    (void)signal_number;
    atomic_store(&held.is_held, true);
    while (!atomic_load(&held.is_free)) clock_sleep_ns(100000);
}

/* A worker that gets no core, here one that is held by a signal between loops, is not waited for. */
static void test_late_worker(void **state)
{
    struct sigaction action = {.sa_handler = hold, .sa_flags = SA_RESTART};
    struct pool *p = open_pool(2);
    struct loop l = {0};

    (void)state;
    held.caller = pthread_self();
    pool_run(p, meet, NULL, 2);
    clock_sleep_ns(20000000); /* long enough for it to sleep, holding no lock */
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(pthread_kill(held.worker, SIGUSR1), 0);
    while (!atomic_load(&held.is_held)) clock_sleep_ns(100000);
    pool_run(p, count_chunk, &l, CHUNKS);
    for (int c = 0; c < CHUNKS; c++) assert_int_equal(l.count[c], 1);
    atomic_store(&held.is_free, true);
    pool_run(p, count_chunk, &l, CHUNKS);
    pool_destroy(p);
}

static void test_numbers_of_threads(void **state)
{
    struct pool *p = open_pool(0);

    (void)state;
    assert_int_equal(pool_threads(p), 1);
    pool_destroy(p);
    p = open_pool(-7);
    assert_int_equal(pool_threads(p), 1);
    pool_destroy(p);
    pool_destroy(NULL);
    for (int i = 0; i < 50; i++) pool_destroy(open_pool(1 + i % 5)); /* never used */
}

static void test_out_of_memory(void **state)
{
    struct pool *p;
    struct error e = {0};
    int n = 0;

    (void)state;
    for (;; n++) {
        err_t rc;

        mem_fault_arm(n);
        rc = pool_create(&p, 3, &e);
        if (!mem_fault_fired()) {
            assert_int_equal(rc, ERR_NONE);
            break;
        }
        assert_int_equal(rc, ERR_MEMORY);
        assert_null(p);
        assert_non_null(strstr(e.message, "3 threads"));
    }
    mem_fault_arm(-1);
    assert_true(n >= 2);
    pool_destroy(p);
}

/* Pools of several ranks of one process do not know of each other. */
static void *run_own_pool(void *arg)
{
    struct pool *p = open_pool(2);
    struct loop *l = arg;

    for (int i = 0; i < 300; i++) pool_run(p, add_one, l, 64);
    pool_destroy(p);
    return NULL;
}

static void test_pools_side_by_side(void **state)
{
    static struct loop loops[3];
    pthread_t threads[3];

    (void)state;
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_own_pool, &loops[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        for (int c = 0; c < 64; c++) assert_int_equal(loops[i].value[c], 300);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_chunk_once),  cmocka_unit_test(test_loops_in_sequence),
        cmocka_unit_test(test_all_threads_work), cmocka_unit_test(test_numbers_of_threads),
        cmocka_unit_test(test_out_of_memory),    cmocka_unit_test(test_pools_side_by_side),
        cmocka_unit_test(test_late_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
