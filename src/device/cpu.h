/* SPDX-License-Identifier: MIT */
/* The embedded CPU device: host memory, a thread pool, and streams and events whose work is done when a call returns.
 */
#ifndef DEVICE_CPU_H
#define DEVICE_CPU_H

#include "device/device.h"

/* All but the threads and the allocator, which device_open adds. */
err_t cpu_device_create(struct device **out, const struct device_options *options, struct error *e) MUST_CHECK;

#endif
