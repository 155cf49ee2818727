/* SPDX-License-Identifier: MIT */
/* The sensors of one GPU, by NVML, which comes with the driver. */
#ifndef CUDA_NVML_H
#define CUDA_NVML_H

#include "device/device.h"

struct nvml;

/*
 * pci_bus_id: "0000:65:00.0", as cudaDeviceGetPCIBusId gives it: NVML counts other GPUs than CUDA does.
 * ERR_UNSUPPORTED: there is no NVML, or it does not know the GPU. A GPU works without it.
 */
err_t nvml_open(struct nvml **out, const char *pci_bus_id, struct error *e) MUST_CHECK;
void nvml_close(struct nvml *n); /* NULL is fine */

/* Fills what this GPU tells; the rest is left as it is. */
void nvml_read(struct nvml *n, struct device_sensors *out);

#endif
