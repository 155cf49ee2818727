/* SPDX-License-Identifier: MIT */
/* For tests that need a GPU, or the simulator of one. */
#ifndef SUPPORT_GPU_H
#define SUPPORT_GPU_H

#include "device/device.h"

enum { GPU_SKIPPED = 77 }; /* the exit code of a program whose tests cannot run here */

/* false: CTITAN_CUDA=real, and there is none; why is printed. On the simulator there always is one: else the program
 * ends with 1. */
bool gpu_is_here(void);

/* Fails the running test when it cannot be opened. */
struct device *gpu_open(int64_t memory_limit_bytes);

#endif
