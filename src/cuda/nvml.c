/* SPDX-License-Identifier: MIT */
/* Reading a GPU's sensors; see nvml.h. A sensor that the library or the GPU lacks is left out. */
#include "cuda/nvml.h"

#include "base/mem.h"
#include "cuda/library.h"
#include "cuda/nvml_api.h"

struct nvml {
    struct nvml_api api;
    struct nvml_device *device;
};

#define FILE_NAME "libnvidia-ml.so.1"

static err_t load(struct nvml_api *api, struct error *e)
{
    void *library;
    err_t rc = cuda_library_open(FILE_NAME, NULL, "reading the GPU's sensors", &library, e);

#define X(member, function)                                                                                            \
    if (!rc) rc = cuda_library_symbol(library, FILE_NAME, #function, (void **)&api->member, e);
    NVML_FUNCTIONS(X)
#undef X
    if (rc) return rc;
#define X(member, function)                                                                                            \
    if (cuda_library_symbol(library, FILE_NAME, #function, (void **)&api->member, NULL)) api->member = NULL;
    NVML_SENSORS(X)
#undef X
    return ERR_NONE;
}

err_t nvml_open(struct nvml **out, const char *pci_bus_id, struct error *e)
{
    struct nvml *n = mem_zalloc(1, sizeof *n);
    int code;
    err_t rc;

    *out = NULL;
    if (!n) return FAIL(e, ERR_MEMORY, "out of memory while opening NVML");
    rc = load(&n->api, e);
    if (rc) goto failed;
    code = n->api.init();
    if (code != NVML_OK) {
        rc = FAIL(e, ERR_UNSUPPORTED, "NVML: %s", n->api.error_string(code));
        goto failed;
    }
    code = n->api.by_pci_bus_id(pci_bus_id, &n->device);
    if (code == NVML_OK) {
        *out = n;
        return ERR_NONE;
    }
    rc = FAIL(e, ERR_UNSUPPORTED, "NVML has no GPU %s: %s", pci_bus_id, n->api.error_string(code));
    n->api.shutdown();
failed:
    mem_free(n);
    return rc;
}

void nvml_close(struct nvml *n)
{
    if (!n) return;
    n->api.shutdown();
    mem_free(n);
}

static void read_slowdown(struct nvml *n, struct device_sensors *out)
{
    unsigned long long reasons;

    if (!n->api.slowdown || n->api.slowdown(n->device, &reasons) != NVML_OK) return;
    out->slowdown = 0;
    if (reasons & (NVML_SLOWED_BY_POWER_CAP | NVML_SLOWED_BY_POWER_BRAKE)) out->slowdown |= SLOWED_BY_POWER;
    if (reasons & (NVML_SLOWED_BY_HEAT | NVML_SLOWED_BY_HARDWARE_HEAT)) out->slowdown |= SLOWED_BY_HEAT;
    if (reasons & (NVML_SLOWED_BY_HARDWARE | NVML_SLOWED_BY_HARDWARE_HEAT | NVML_SLOWED_BY_POWER_BRAKE))
        out->slowdown |= SLOWED_BY_HARDWARE;
}

void nvml_read(struct nvml *n, struct device_sensors *out)
{
    const struct nvml_api *api = &n->api;
    struct nvml_utilization utilization;
    struct nvml_memory memory;
    unsigned long long millijoules;
    unsigned value;

    if (api->energy && api->energy(n->device, &millijoules) == NVML_OK) out->energy_j = (double)millijoules / 1e3;
    if (api->power && api->power(n->device, &value) == NVML_OK) out->power_w = value / 1e3;
    if (api->utilization && api->utilization(n->device, &utilization) == NVML_OK)
        out->utilization_percent = utilization.gpu;
    if (api->memory && api->memory(n->device, &memory) == NVML_OK) out->memory_used_bytes = (double)memory.used;
    if (api->temperature && api->temperature(n->device, NVML_DIE, &value) == NVML_OK) out->temperature_c = value;
    if (api->clock && api->clock(n->device, NVML_SM, &value) == NVML_OK) out->clock_mhz = value;
    if (api->clock && api->clock(n->device, NVML_MEMORY, &value) == NVML_OK) out->memory_clock_mhz = value;
    read_slowdown(n, out);
}
