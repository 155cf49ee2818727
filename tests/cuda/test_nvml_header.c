/* SPDX-License-Identifier: MIT */
/*
 * What src/cuda/nvml_api.h declares is what NVML's own header declares; skipped where that is not installed (it comes
 * with the whole toolkit, or as the Python package nvidia-nvml-dev).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda/nvml_api.h"

#if __has_include(<nvml.h>)
#include <nvml.h>

/* Calls by both declarations pass the same: handles are pointers, enumerations are ints. */
_Static_assert(sizeof(nvmlReturn_t) == sizeof(int), "");
_Static_assert(sizeof(nvmlTemperatureSensors_t) == sizeof(int), "");
_Static_assert(sizeof(nvmlClockType_t) == sizeof(int), "");
_Static_assert(sizeof(nvmlDevice_t) == sizeof(struct nvml_device *), "");

/* Each function takes what nvml_api.h says; nothing of the library is linked. */
#define TAKES(function, ...)                                                                                           \
    _Static_assert(__builtin_types_compatible_p(__typeof__(function), nvmlReturn_t(__VA_ARGS__)), #function)
TAKES(nvmlInit_v2, void);
TAKES(nvmlShutdown, void);
TAKES(nvmlDeviceGetHandleByPciBusId_v2, const char *, nvmlDevice_t *);
TAKES(nvmlDeviceGetTotalEnergyConsumption, nvmlDevice_t, unsigned long long *);
TAKES(nvmlDeviceGetPowerUsage, nvmlDevice_t, unsigned *);
TAKES(nvmlDeviceGetUtilizationRates, nvmlDevice_t, nvmlUtilization_t *);
TAKES(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *);
TAKES(nvmlDeviceGetTemperature, nvmlDevice_t, nvmlTemperatureSensors_t, unsigned *);
TAKES(nvmlDeviceGetClockInfo, nvmlDevice_t, nvmlClockType_t, unsigned *);
TAKES(nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDevice_t, unsigned long long *);
_Static_assert(__builtin_types_compatible_p(__typeof__(nvmlErrorString), const char *(nvmlReturn_t)), "");

static void test_structures(void **state)
{
    (void)state;
    assert_int_equal(sizeof(nvmlUtilization_t), sizeof(struct nvml_utilization));
    assert_int_equal(offsetof(nvmlUtilization_t, gpu), offsetof(struct nvml_utilization, gpu));
    assert_int_equal(sizeof(nvmlMemory_t), sizeof(struct nvml_memory));
    assert_int_equal(offsetof(nvmlMemory_t, total), offsetof(struct nvml_memory, total));
    assert_int_equal(offsetof(nvmlMemory_t, free), offsetof(struct nvml_memory, free));
    assert_int_equal(offsetof(nvmlMemory_t, used), offsetof(struct nvml_memory, used));
}

static void test_numbers(void **state)
{
    (void)state;
    assert_int_equal(NVML_OK, NVML_SUCCESS);
    assert_int_equal(NVML_NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(NVML_DIE, NVML_TEMPERATURE_GPU);
    assert_int_equal(NVML_SM, NVML_CLOCK_SM);
    assert_int_equal(NVML_MEMORY, NVML_CLOCK_MEM);
    assert_int_equal(NVML_SLOWED_BY_POWER_CAP, nvmlClocksThrottleReasonSwPowerCap);
    assert_int_equal(NVML_SLOWED_BY_HARDWARE, nvmlClocksThrottleReasonHwSlowdown);
    assert_int_equal(NVML_SLOWED_BY_HEAT, nvmlClocksThrottleReasonSwThermalSlowdown);
    assert_int_equal(NVML_SLOWED_BY_HARDWARE_HEAT, nvmlClocksThrottleReasonHwThermalSlowdown);
    assert_int_equal(NVML_SLOWED_BY_POWER_BRAKE, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
}
#else
static void test_structures(void **state)
{
    (void)state;
    print_message("skipped: nvml.h is not installed\n");
    skip();
}
static void test_numbers(void **state) { test_structures(state); }
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structures),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
