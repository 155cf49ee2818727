/* SPDX-License-Identifier: MIT */
/* The caching allocator over the CPU device: reuse, merging, statistics, peaks, limits and the report of who holds
 * what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "base/mem.h"
#include "device/allocator.h"
#include "device/device.h"
#include "device/dry.h"

static struct device *open_cpu(int64_t limit_bytes)
{
    struct device_options options = {.kind = "cpu", .local_size = 1, .threads = 1, .memory_limit_bytes = limit_bytes};
    struct device *d;
    struct error e = {0};

    if (device_open(&d, &options, &e)) fail_msg("%s", e.message);
    return d;
}

static void *take(struct device *d, size_t bytes)
{
    struct error e = {0};
    void *p;

    if (device_alloc(d, bytes, MEMORY_STASH, "test", NULL, &p, &e)) fail_msg("%s", e.message);
    return p;
}

static void test_reuse_and_statistics(void **state)
{
    struct device *d = open_cpu(0);
    struct memory_stats s;
    void *a = take(d, 1000), *b = take(d, 3 << 20), *c;

    (void)state;
    assert_int_equal((uintptr_t)a % 64, 0);
    device_memory_stats(d, &s);
    assert_int_equal(s.active_bytes, 1024 + (3 << 20));
    assert_int_equal(s.kind_bytes[MEMORY_STASH], s.active_bytes);
    assert_int_equal(s.reserved_bytes, ALLOCATOR_SMALL_SEGMENT + (3 << 20));
    device_free(d, b);
    c = take(d, 2 << 20); /* fits into the freed block */
    assert_ptr_equal(c, b);
    device_memory_stats(d, &s);
    assert_int_equal(s.reserved_bytes, ALLOCATOR_SMALL_SEGMENT + (3 << 20));
    assert_int_equal(s.active_peak_bytes, 1024 + (3 << 20));
    device_reset_peaks(d);
    device_memory_stats(d, &s);
    assert_int_equal(s.active_peak_bytes, s.active_bytes);
    device_free(d, a);
    device_free(d, c);
    device_free(d, NULL);
    device_memory_stats(d, &s);
    assert_int_equal(s.active_bytes, 0);
    device_close(d);
}

/* Zeros, whether the memory is new, was another's before, or is a part of it. */
static void test_zeros(void **state)
{
    struct device *d = open_cpu(0);
    struct error e = {0};
    size_t bytes = 3 << 20;

    (void)state;
    for (int round = 0; round < 3; round++) {
        unsigned char *a, *b, *c;

        assert_int_equal(device_alloc_zeros(d, bytes, MEMORY_STASH, "a", NULL, (void **)&a, &e), ERR_NONE);
        assert_int_equal(device_alloc_zeros(d, bytes / 3, MEMORY_STASH, "b", NULL, (void **)&b, &e), ERR_NONE);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(a[i], 0);
        for (size_t i = 0; i < bytes / 3; i++) assert_int_equal(b[i], 0);
        memset(a, 7, bytes);
        memset(b, 8, bytes / 3);
        device_free(d, a);
        assert_int_equal(device_alloc_zeros(d, bytes / 2, MEMORY_STASH, "c", NULL, (void **)&c, &e), ERR_NONE);
        for (size_t i = 0; i < bytes / 2; i++) assert_int_equal(c[i], 0);
        memset(c, 9, bytes / 2);
        device_free(d, c);
        device_free(d, b);
    }
    device_close(d);
}

/* Blocks never overlap and keep their contents; after all are freed every segment is one block again. */
static void test_random_traffic(void **state)
{
    enum { SLOTS = 64, ROUNDS = 4000 };
    struct device *d = open_cpu(0);
    struct rng_key key = rng_key_of(9, "traffic");
    struct {
        unsigned char *p;
        size_t n;
        unsigned char mark;
    } slot[SLOTS] = {{0}};
    struct memory_stats s;

    (void)state;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        int k = (int)rng_below(key, 3 * i, SLOTS);

        if (slot[k].p) {
            for (size_t j = 0; j < slot[k].n; j += 97) assert_int_equal(slot[k].p[j], slot[k].mark);
            device_free(d, slot[k].p);
            slot[k].p = NULL;
        } else {
            slot[k].n = 1 + (size_t)rng_below(key, 3 * i + 1, i % 5 ? 5000 : 1 << 20);
            slot[k].mark = (unsigned char)i;
            slot[k].p = take(d, slot[k].n);
            memset(slot[k].p, slot[k].mark, slot[k].n);
        }
    }
    for (int k = 0; k < SLOTS; k++) device_free(d, slot[k].p);
    allocator_trim(d->allocator);
    device_memory_stats(d, &s);
    assert_int_equal(s.reserved_bytes, 0);
    assert_int_equal(s.active_bytes, 0);
    device_close(d);
}

static void test_retry_after_trim(void **state)
{
    struct device *d = open_cpu(8 << 20);
    struct memory_stats s;
    void *a = take(d, 3 << 20), *b = take(d, 4 << 20), *c;

    (void)state;
    device_free(d, a);
    c = take(d, 7 << 19); /* 3.5 MiB: fits only after the cached 3 MiB were given back */
    device_memory_stats(d, &s);
    assert_int_equal(s.alloc_retries, 1);
    assert_int_equal(s.ooms, 0);
    device_free(d, b);
    device_free(d, c);
    device_close(d);
}

static void test_out_of_memory_says_who(void **state)
{
    struct device *d = open_cpu(8 << 20);
    struct memory_stats s;
    struct error e = {0};
    void *a = take(d, 5 << 20), *b;

    (void)state;
    assert_int_equal(device_alloc(d, 4 << 20, MEMORY_GRADIENTS, "layers.3", NULL, &b, &e), ERR_MEMORY);
    assert_null(b);
    assert_non_null(strstr(e.message, "layers.3"));
    assert_non_null(strstr(e.message, "stash"));
    assert_non_null(strstr(e.message, "5.0 MiB"));
    device_memory_stats(d, &s);
    assert_int_equal(s.ooms, 1);
    assert_int_equal(s.active_bytes, 5 << 20);
    device_free(d, a);
    device_close(d);
}

static void test_unknown_kind(void **state)
{
    struct device_options options = {.kind = "tpu", .local_size = 1};
    struct device *d;
    struct error e = {0};

    (void)state;
    assert_int_equal(device_open(&d, &options, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "device.kind=tpu"));
    assert_true(sensor_resident_bytes() > 0);
    assert_true(sensor_resident_peak_bytes() >= sensor_resident_bytes());
    assert_true(sensor_memory_limit_bytes() > 0);
}

/* A host without memory for records is no device without memory: no table of the device's, no advice about the model,
 * nothing counted. */
static void test_host_without_memory(void **state)
{
    struct device_properties like = {.name = "plan"};
    struct memory_stats s;
    struct device *d;
    struct error e = {0};
    void *p;

    (void)state;
    assert_int_equal(device_dry_open(&d, &like, 0, &e), ERR_NONE);
    for (int n = 0; n < 2; n++) {
        mem_fault_arm(n);
        assert_int_equal(device_alloc(d, 1 << 20, MEMORY_STASH, "layers.0", NULL, &p, &e), ERR_MEMORY);
        mem_fault_arm(-1);
        assert_null(p);
        assert_non_null(strstr(e.message, "on the host"));
        assert_non_null(strstr(e.message, "layers.0"));
        assert_null(strstr(e.message, "local_batch_size"));
    }
    device_memory_stats(d, &s);
    assert_int_equal(s.ooms, 0);
    device_close(d);
}

/* What a plan may ask for by mistake: refused by name, and counted without overflow. */
static void test_absurd_sizes(void **state)
{
    const size_t sizes[] = {ALLOCATOR_MAX_BYTES + 1, SIZE_MAX / 2, SIZE_MAX - 1, SIZE_MAX};
    struct device_properties like = {.name = "plan"};
    struct memory_stats s;
    struct device *d;
    struct error e = {0};
    void *p[16];
    int n = 0;

    (void)state;
    for (int limit = 0; limit < 2; limit++) {
        assert_int_equal(device_dry_open(&d, &like, limit ? 1 << 30 : 0, &e), ERR_NONE);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            assert_int_equal(device_alloc(d, sizes[i], MEMORY_STASH, "layers.0", NULL, &p[0], &e), ERR_MEMORY);
            assert_non_null(strstr(e.message, "layers.0"));
            assert_null(p[0]);
        }
        device_close(d);
    }
    assert_int_equal(device_dry_open(&d, &like, 0, &e), ERR_NONE);
    while (n < 16 && !device_alloc(d, ALLOCATOR_MAX_BYTES, MEMORY_STASH, "layers.0", NULL, &p[n], &e)) n++;
    assert_in_range(n, 1, 8);
    device_memory_stats(d, &s);
    assert_true(s.active_bytes == (int64_t)ALLOCATOR_MAX_BYTES * n && s.reserved_bytes == s.active_bytes);
    while (n) device_free(d, p[--n]);
    device_close(d);
}

/* Where streams order the work, what one stream frees only that stream gets again; when memory runs out the pools of
 * all are given back. Where calls are done when they return there is one pool. */
static void test_a_pool_for_each_stream(void **state)
{
    struct device_properties like = {.name = "plan"};
    struct memory_stats s;
    struct error e = {0};

    (void)state;
    for (int is_immediate = 0; is_immediate < 2; is_immediate++) {
        struct stream *other;
        struct device *d;
        void *a, *b, *c;

        like.is_immediate = is_immediate;
        assert_int_equal(device_dry_open(&d, &like, 8 << 20, &e), ERR_NONE);
        assert_int_equal(d->ops->stream_create(d, &other, &e), ERR_NONE);
        a = take(d, 3 << 20);
        device_free_after(d, a, other);
        assert_int_equal(device_alloc(d, 3 << 20, MEMORY_STASH, "b", other, &b, &e), ERR_NONE);
        assert_int_equal(a == b, is_immediate);
        c = take(d, 3 << 20);
        assert_int_equal(a == c, !is_immediate);
        device_memory_stats(d, &s);
        assert_int_equal(s.reserved_bytes, 6 << 20);
        device_free(d, c);
        device_free(d, b);
        a = take(d, 6 << 20); /* as much as both pools have together */
        device_memory_stats(d, &s);
        assert_int_equal(s.reserved_bytes, 6 << 20);
        assert_int_equal(s.alloc_retries, 1);
        device_free(d, a);
        d->ops->stream_destroy(d, other);
        device_close(d);
    }
}

/* Rows of a matrix within larger ones, and what goes through the host. */
static void test_copies(void **state)
{
    struct device *d = open_cpu(0);
    char *p = take(d, 64), host[64];
    struct error e = {0};

    (void)state;
    for (int i = 0; i < 64; i++) host[i] = (char)i;
    assert_int_equal(device_write(d, p, host, 64, &e), ERR_NONE);
    memset(host, 99, sizeof host);
    assert_int_equal(device_copy_2d(d, host, 5, p + 8, 16, 3, 3, NULL, &e), ERR_NONE);
    for (int row = 0; row < 3; row++)
        for (int i = 0; i < 5; i++) assert_int_equal(host[5 * row + i], i < 3 ? 8 + 16 * row + i : 99);
    assert_int_equal(device_read(d, host, p, 64, &e), ERR_NONE);
    for (int i = 0; i < 64; i++) assert_int_equal(host[i], i);
    device_free(d, p);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reuse_and_statistics),   cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_random_traffic),         cmocka_unit_test(test_retry_after_trim),
        cmocka_unit_test(test_host_without_memory),    cmocka_unit_test(test_absurd_sizes),
        cmocka_unit_test(test_out_of_memory_says_who), cmocka_unit_test(test_unknown_kind),
        cmocka_unit_test(test_a_pool_for_each_stream), cmocka_unit_test(test_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
