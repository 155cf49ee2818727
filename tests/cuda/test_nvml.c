/* SPDX-License-Identifier: MIT */
/* Sensors by NVML, over the simulator's: units, what is missing, and GPUs that it does not know. */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cuda/nvml.h"
#include "cuda/nvml_api.h"

#define BUS_ID "0000:65:00.0"

static const struct device_sensors unknown = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0};

/* The loader then finds it by its name, before a real one. */
static int load_simulated(void **state)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);

    (void)state;
    assert_true(n > 0);
    path[n] = '\0';
    strcpy(strstr(path, "/tests/cuda/"), "/cudasim/libnvidia-ml.so.1");
    if (!dlopen(path, RTLD_NOW)) fail_msg("%s", dlerror());
    return 0;
}

static struct nvml *open_gpu(void)
{
    struct error e = {0};
    struct nvml *n;

    if (nvml_open(&n, BUS_ID, &e)) fail_msg("%s", e.message);
    return n;
}

static void assert_about(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) fail_msg("got %.17g, want %.17g", got, want);
}

static void test_units(void **state)
{
    struct device_sensors s = unknown, later = unknown;
    struct nvml *n = open_gpu();

    (void)state;
    nvml_read(n, &s);
    nvml_read(n, &later);
    assert_about(s.utilization_percent, 98);
    assert_about(s.power_w, 431.5);
    assert_about(later.energy_j - s.energy_j, 2.5);
    assert_about(s.temperature_c, 61);
    assert_about(s.clock_mhz, 1980);
    assert_about(s.memory_clock_mhz, 3201);
    assert_about(s.memory_used_bytes, 5e10);
    assert_int_equal(s.slowdown, SLOWED_BY_POWER);
    nvml_close(n);
}

/* What a GPU does not tell stays unknown, and hides nothing else. */
static void test_missing_sensors(void **state)
{
    struct device_sensors s = unknown;
    struct nvml *n = open_gpu();

    (void)state;
    setenv("CUDASIM_NVML", "energy,utilization,slowdown", 1);
    nvml_read(n, &s);
    assert_true(isnan(s.energy_j) && isnan(s.utilization_percent));
    assert_int_equal(s.slowdown, 0);
    assert_about(s.power_w, 431.5);
    s = unknown;
    setenv("CUDASIM_NVML", "power,memory,temperature,clock", 1);
    nvml_read(n, &s);
    assert_true(isnan(s.power_w) && isnan(s.memory_used_bytes) && isnan(s.temperature_c) && isnan(s.clock_mhz) &&
                isnan(s.memory_clock_mhz));
    assert_false(isnan(s.energy_j));
    unsetenv("CUDASIM_NVML");
    nvml_close(n);
}

static void test_no_gpu(void **state)
{
    struct error e = {0};
    struct nvml *n;

    (void)state;
    setenv("CUDASIM_NVML", "init", 1);
    assert_int_equal(nvml_open(&n, BUS_ID, &e), ERR_UNSUPPORTED);
    assert_null(n);
    assert_non_null(strstr(e.message, "Driver Not Loaded"));
    setenv("CUDASIM_NVML", "bus", 1);
    assert_int_equal(nvml_open(&n, BUS_ID, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, BUS_ID));
    unsetenv("CUDASIM_NVML");
    nvml_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_missing_sensors),
        cmocka_unit_test(test_no_gpu),
    };
    return cmocka_run_group_tests(tests, load_simulated, NULL);
}
