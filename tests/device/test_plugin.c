/* SPDX-License-Identifier: MIT */
/* A device from a plugin: found, refused with the reason when it is not one of this program's, and what "auto" does
 * then. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "device/plugin.h"
#include "kernels/kernels.h"

/* The folder of fake plugin `name`, beside this program; "" for a folder where none is. */
static void use_plugin(const char *name)
{
    char path[PATH_MAX] = "", folder[PATH_MAX + 64];

    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) fail_msg("where is this program?");
    snprintf(folder, sizeof folder, "%s_fakes/%s", path, name);
    setenv("CTITAN_PLUGIN_PATH", folder, 1);
}

static err_t open_device(struct device **out, const char *kind, struct error *e)
{
    struct device_options options = {.kind = kind, .local_size = 1, .threads = 1};

    *e = (struct error){0};
    return device_open(out, &options, e);
}

/* kind=cuda ends with the reason and what to do; kind=auto takes the CPU and keeps the reason. */
static void check_refusal(const char *name, const char *reason)
{
    struct device *d;
    struct error e;

    use_plugin(name);
    assert_int_not_equal(open_device(&d, "cuda", &e), ERR_NONE);
    assert_null(d);
    if (!strstr(e.message, reason) || !strstr(e.message, "device.kind=cpu")) fail_msg("%s: %s", name, e.message);
    assert_int_equal(open_device(&d, "auto", &e), ERR_NONE);
    assert_string_equal(d->ops->name, "cpu");
    assert_null(d->plugin);
    if (!strstr(d->note, reason)) fail_msg("%s: the note is \"%s\"", name, d->note);
    device_close(d);
}

static void test_refusals(void **state)
{
    (void)state;
    check_refusal("abi", "run make again");
    check_refusal("version", "0.0.0-other");
    check_refusal("symbol", DEVICE_PLUGIN_SYMBOL);
    check_refusal("none", "no NVIDIA driver");
}

/* What was cut off by a full disk, or is not a library at all. */
static void test_no_library(void **state)
{
    char folder[] = "/tmp/ctitan-test-XXXXXX", file[128];
    struct error e;
    struct device *d;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/" DEVICE_CUDA_PLUGIN_FILE, folder);
    f = fopen(file, "w");
    assert_non_null(f);
    fputs("\x7f"
          "ELF",
          f);
    fclose(f);
    setenv("CTITAN_PLUGIN_PATH", folder, 1);
    assert_int_equal(open_device(&d, "cuda", &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, file));
    assert_int_equal(open_device(&d, "auto", &e), ERR_NONE);
    assert_non_null(strstr(d->note, file));
    device_close(d);
    unlink(file);
    /* none there: nothing to tell, but who asked for a GPU is told where it was looked for */
    assert_int_equal(open_device(&d, "auto", &e), ERR_NONE);
    assert_string_equal(d->note, "");
    device_close(d);
    assert_int_equal(open_device(&d, "cuda", &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, folder));
    rmdir(folder);
}

static void test_a_plugin_is_used(void **state)
{
    const char *const kinds[] = {"auto", "cuda"};
    const struct kernels *k;
    struct device *d;
    struct error e;
    void *p;

    (void)state;
    use_plugin("good");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(open_device(&d, kinds[i], &e), ERR_NONE);
        assert_non_null(d->plugin);
        assert_int_equal(d->properties.threads, 1);
        assert_int_equal(device_alloc(d, 100, MEMORY_STASH, "test", NULL, &p, &e), ERR_NONE);
        device_free(d, p);
        assert_int_equal(kernels_for(&k, d, DTYPE_FLOAT32, "auto", &e), ERR_UNSUPPORTED);
        assert_non_null(strstr(e.message, "gemm"));
        assert_int_equal(kernels_for(&k, d, DTYPE_FLOAT32, "avx2", &e), ERR_CONFIG);
        device_close(d);
    }
    assert_int_equal(open_device(&d, "cpu", &e), ERR_NONE);
    assert_null(d->plugin);
    device_close(d);
    assert_int_equal(open_device(&d, "tpu", &e), ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_library),
        cmocka_unit_test(test_a_plugin_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
