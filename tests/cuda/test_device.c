/* SPDX-License-Identifier: MIT */
/* The GPU as a device: memory, copies, streams and events, out of memory, and that a failure is kept. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "device/allocator.h"
#include "tests/support/gpu.h"

enum { N = 1 << 16 };

static void *take(struct device *d, size_t bytes, struct stream *s)
{
    struct error e = {0};
    void *p;

    if (device_alloc(d, bytes, MEMORY_STASH, "test", s, &p, &e)) fail_msg("%s", e.message);
    return p;
}

static void ok(err_t rc, const struct error *e)
{
    if (rc) fail_msg("%s", e->message);
}

static void test_properties(void **state)
{
    struct device *d = gpu_open(0);

    (void)state;
    assert_string_equal(d->ops->name, "cuda");
    assert_non_null(d->plugin);
    assert_false(d->properties.is_immediate);
    assert_true(d->properties.memory_bytes > 0);
    assert_true(d->properties.multiprocessors > 0);
    assert_true(d->properties.name[0]);
    assert_non_null(strstr(d->properties.versions, "compute capability"));
    device_close(d);
}

/* A GPU may lack any of them; the simulated one has all. */
static void test_sensors(void **state)
{
    struct device *d = gpu_open(0);
    struct device_sensors s, later;
    bool is_simulated = dlsym(RTLD_DEFAULT, "cudasim_reports");

    (void)state;
    assert_true(device_read_sensors(d, &s));
    assert_true(device_read_sensors(d, &later));
    assert_true(is_simulated ? s.power_w > 0 : !(s.power_w <= 0));
    assert_true(is_simulated ? later.energy_j > s.energy_j : !(later.energy_j < s.energy_j));
    assert_true(is_simulated ? s.utilization_percent > 0 : !(s.utilization_percent < 0 || s.utilization_percent > 100));
    device_close(d);
}

static void test_copies(void **state)
{
    struct device *d = gpu_open(0);
    unsigned char *host = mem_alloc(N), *pinned;
    char *a = take(d, N, NULL), *b = take(d, N, NULL);
    struct error e = {0};

    (void)state;
    for (int i = 0; i < N; i++) host[i] = (unsigned char)(i * 7 + i / 256);
    ok(device_write(d, a, host, N, &e), &e);
    ok(device_copy(d, b, a, N, NULL, &e), &e);
    memset(host, 0, N);
    ok(device_read(d, host, b, N, &e), &e);
    for (int i = 0; i < N; i++) assert_int_equal(host[i], (unsigned char)(i * 7 + i / 256));
    /* 16 rows of 10 bytes out of rows of 100 */
    ok(d->ops->host_alloc(d, 160, (void **)&pinned, &e), &e);
    ok(device_copy_2d(d, pinned, 10, a + 5, 100, 10, 16, NULL, &e), &e);
    ok(d->ops->stream_synchronize(d, NULL, &e), &e);
    for (int row = 0; row < 16; row++)
        for (int i = 0; i < 10; i++) assert_int_equal(pinned[10 * row + i], host[5 + 100 * row + i]);
    ok(device_zero(d, a + 3, 5, NULL, &e), &e);
    ok(device_copy(d, pinned, a, 10, NULL, &e), &e);
    ok(d->ops->stream_synchronize(d, NULL, &e), &e);
    for (int i = 0; i < 10; i++) assert_int_equal(pinned[i], i >= 3 && i < 8 ? 0 : host[i]);
    d->ops->host_free(d, pinned);
    device_free(d, a);
    device_free(d, b);
    device_close(d);
    mem_free(host);
}

/* What one stream wrote the other reads, because an event is between them; and a block goes back only after its last
 * user. */
static void test_streams(void **state)
{
    struct device *d = gpu_open(0);
    struct stream *other;
    struct event *written;
    struct error e = {0};
    char *a = take(d, N, NULL), *b, *c, *pinned;

    (void)state;
    ok(d->ops->stream_create(d, &other, &e), &e);
    ok(d->ops->event_create(d, &written, &e), &e);
    ok(d->ops->host_alloc(d, N, (void **)&pinned, &e), &e);
    memset(pinned, 5, N);
    b = take(d, N, other);
    ok(device_copy(d, a, pinned, N, NULL, &e), &e);
    ok(device_order(d, other, NULL, written, &e), &e);
    ok(device_copy(d, b, a, N, other, &e), &e);
    device_free_after(d, a, other);
    c = take(d, N, NULL);
    assert_ptr_equal(c, a);
    ok(device_zero(d, c, N, NULL, &e), &e); /* after the copy out of it */
    ok(d->ops->event_record(d, written, other, &e), &e);
    ok(d->ops->event_synchronize(d, written, &e), &e);
    assert_true(d->ops->event_is_done(d, written));
    ok(d->ops->synchronize(d, &e), &e);
    ok(device_copy(d, pinned, b, N, other, &e), &e);
    ok(d->ops->stream_synchronize(d, other, &e), &e);
    for (int i = 0; i < N; i++) assert_int_equal(pinned[i], 5);
    device_free(d, b);
    device_free(d, c);
    d->ops->host_free(d, pinned);
    d->ops->event_destroy(d, written);
    d->ops->stream_destroy(d, other);
    device_close(d);
}

/* What the GPU does not have is refused with the table of who holds what, and nothing is broken. */
static void test_out_of_memory(void **state)
{
    struct device *d = gpu_open(0);
    struct error e = {0};
    void *p = take(d, N, NULL), *q;

    (void)state;
    assert_int_equal(device_alloc(d, (size_t)1 << 50, MEMORY_STASH, "layers.0", NULL, &q, &e), ERR_MEMORY);
    assert_non_null(strstr(e.message, "layers.0"));
    assert_non_null(strstr(e.message, "stash"));
    ok(device_zero(d, p, N, NULL, &e), &e);
    ok(d->ops->synchronize(d, &e), &e);
    device_free(d, p);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_properties), cmocka_unit_test(test_sensors),       cmocka_unit_test(test_copies),
        cmocka_unit_test(test_streams),    cmocka_unit_test(test_out_of_memory),
    };
    return gpu_is_here() ? cmocka_run_group_tests(tests, NULL, NULL) : GPU_SKIPPED;
}
