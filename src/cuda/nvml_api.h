/* SPDX-License-Identifier: MIT */
/*
 * What is used of NVML, declared here: its header is in few toolkits. tests/cuda/test_nvml_header.c compares with the
 * real one where there is one.
 */
#ifndef CUDA_NVML_API_H
#define CUDA_NVML_API_H

/* Codes of success and failure; 0 is success, nvmlErrorString tells the others. */
enum { NVML_OK = 0, NVML_NOT_SUPPORTED = 3 };
enum { NVML_DIE = 0 };                      /* sensors of temperature */
enum { NVML_SM = 1, NVML_MEMORY = 2 };      /* clocks */
enum {                                      /* why clocks are lower than they could be; bits */
       NVML_SLOWED_BY_POWER_CAP = 0x4,      /* software, at the power limit */
       NVML_SLOWED_BY_HARDWARE = 0x8,       /* any of the two below */
       NVML_SLOWED_BY_HEAT = 0x20,          /* software, at the temperature limit */
       NVML_SLOWED_BY_HARDWARE_HEAT = 0x40, /* hardware, too hot */
       NVML_SLOWED_BY_POWER_BRAKE = 0x80,   /* hardware, by the power supply */
};

struct nvml_device; /* a handle, never looked into */

struct nvml_utilization {
    unsigned gpu, memory; /* percent */
};

struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};

/* Functions, with int for their enumerations. */
struct nvml_api {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int code);
    int (*by_pci_bus_id)(const char *id, struct nvml_device **device);
    int (*energy)(struct nvml_device *device, unsigned long long *millijoules); /* since the driver was loaded */
    int (*power)(struct nvml_device *device, unsigned *milliwatts);
    int (*utilization)(struct nvml_device *device, struct nvml_utilization *utilization);
    int (*memory)(struct nvml_device *device, struct nvml_memory *memory);
    int (*temperature)(struct nvml_device *device, int sensor, unsigned *degrees);
    int (*clock)(struct nvml_device *device, int clock, unsigned *megahertz);
    int (*slowdown)(struct nvml_device *device, unsigned long long *reasons);
};

/* member, the library's name; the first ones must be there */
#define NVML_FUNCTIONS(X)                                                                                              \
    X(init, nvmlInit_v2)                                                                                               \
    X(shutdown, nvmlShutdown)                                                                                          \
    X(error_string, nvmlErrorString)                                                                                   \
    X(by_pci_bus_id, nvmlDeviceGetHandleByPciBusId_v2)
#define NVML_SENSORS(X)                                                                                                \
    X(energy, nvmlDeviceGetTotalEnergyConsumption)                                                                     \
    X(power, nvmlDeviceGetPowerUsage)                                                                                  \
    X(utilization, nvmlDeviceGetUtilizationRates)                                                                      \
    X(memory, nvmlDeviceGetMemoryInfo)                                                                                 \
    X(temperature, nvmlDeviceGetTemperature)                                                                           \
    X(clock, nvmlDeviceGetClockInfo)                                                                                   \
    X(slowdown, nvmlDeviceGetCurrentClocksThrottleReasons) /* new libraries have this old name too */

#endif
