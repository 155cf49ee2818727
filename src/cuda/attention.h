/* SPDX-License-Identifier: MIT */
/*
 * Which attention a GPU runs in bfloat16: cuDNN's where it is installed and takes the shape, else the kernels of
 * kernels/cuda, which take every shape.
 */
#ifndef CUDA_ATTENTION_H
#define CUDA_ATTENTION_H

#include "cuda/cuda.h"

/* The table `plain` with attention chosen for each shape; it is the device's. Its level says what was chosen: "cuda,
 * attention by cuDNN 9.19.0", or why not. Without memory: plain itself. */
const struct kernels *cuda_attention_table(struct device *d, const struct kernels *plain);

void cuda_attention_destroy(struct cuda_attention *a); /* NULL is fine; the device is idle */

#endif
