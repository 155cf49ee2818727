/* SPDX-License-Identifier: MIT */
/*
 * libnvidia-ml.so.1 for the simulated GPU. Its sensors are constant; energy grows by 2.5 J with each look.
 * CUDASIM_NVML=init,bus,energy,power,...: the functions of these names fail.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/cuda/nvml_api.h"

enum { DRIVER_NOT_LOADED = 9, NOT_FOUND = 6, INVALID = 2 };
static unsigned long long energy_mj = 1000000;
static int users; /* init without shutdown */

static bool fails(const char *name)
{
    const char *p = getenv("CUDASIM_NVML");

    while (p && *p) {
        size_t n = strcspn(p, ",");

        if (n == strlen(name) && memcmp(p, name, n) == 0) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

#define EXPORTED __attribute__((visibility("default")))
#define DEVICE ((struct nvml_device *)&energy_mj)

static int look(const struct nvml_device *d, const char *name)
{
    if (users <= 0 || d != DEVICE) return INVALID;
    return fails(name) ? NVML_NOT_SUPPORTED : NVML_OK;
}

EXPORTED int nvmlInit_v2(void);
EXPORTED int nvmlShutdown(void);
EXPORTED const char *nvmlErrorString(int code);
EXPORTED int nvmlDeviceGetHandleByPciBusId_v2(const char *id, struct nvml_device **device);
EXPORTED int nvmlDeviceGetTotalEnergyConsumption(struct nvml_device *d, unsigned long long *millijoules);
EXPORTED int nvmlDeviceGetPowerUsage(struct nvml_device *d, unsigned *milliwatts);
EXPORTED int nvmlDeviceGetUtilizationRates(struct nvml_device *d, struct nvml_utilization *utilization);
EXPORTED int nvmlDeviceGetMemoryInfo(struct nvml_device *d, struct nvml_memory *memory);
EXPORTED int nvmlDeviceGetTemperature(struct nvml_device *d, int sensor, unsigned *degrees);
EXPORTED int nvmlDeviceGetClockInfo(struct nvml_device *d, int clock, unsigned *megahertz);
EXPORTED int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvml_device *d, unsigned long long *reasons);

int nvmlInit_v2(void)
{
    if (fails("init")) return DRIVER_NOT_LOADED;
    users++;
    return NVML_OK;
}

int nvmlShutdown(void) { return users-- > 0 ? NVML_OK : INVALID; }

const char *nvmlErrorString(int code) { return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Not Found"; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, struct nvml_device **device)
{
    if (users <= 0) return INVALID;
    if (fails("bus") || strncmp(id, "0000", 4) != 0) return NOT_FOUND;
    *device = DEVICE;
    return NVML_OK;
}

int nvmlDeviceGetTotalEnergyConsumption(struct nvml_device *d, unsigned long long *millijoules)
{
    *millijoules = energy_mj += 2500;
    return look(d, "energy");
}

int nvmlDeviceGetPowerUsage(struct nvml_device *d, unsigned *milliwatts)
{
    *milliwatts = 431500;
    return look(d, "power");
}

int nvmlDeviceGetUtilizationRates(struct nvml_device *d, struct nvml_utilization *utilization)
{
    *utilization = (struct nvml_utilization){.gpu = 98, .memory = 40};
    return look(d, "utilization");
}

int nvmlDeviceGetMemoryInfo(struct nvml_device *d, struct nvml_memory *memory)
{
    *memory = (struct nvml_memory){.total = 150754820096, .free = 100754820096, .used = 50000000000};
    return look(d, "memory");
}

int nvmlDeviceGetTemperature(struct nvml_device *d, int sensor, unsigned *degrees)
{
    *degrees = 61;
    return sensor == NVML_DIE ? look(d, "temperature") : INVALID;
}

int nvmlDeviceGetClockInfo(struct nvml_device *d, int clock, unsigned *megahertz)
{
    *megahertz = clock == NVML_SM ? 1980 : 3201;
    return clock == NVML_SM || clock == NVML_MEMORY ? look(d, "clock") : INVALID;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvml_device *d, unsigned long long *reasons)
{
    *reasons = NVML_SLOWED_BY_POWER_CAP | 0x1; /* and idle, which is no slowdown */
    return look(d, "slowdown");
}
