/* SPDX-License-Identifier: MIT */
/* Libraries that the plugin opens when it needs them: NCCL, cuDNN, NVML. Who trains on one GPU needs none of them. */
#ifndef CUDA_LIBRARY_H
#define CUDA_LIBRARY_H

#include "base/error.h"

/*
 * Opens a shared library: where the loader looks first (LD_LIBRARY_PATH, ld.so.conf, the toolkit's folder), then in
 * Python environments, where pip puts them: nvidia/<package>/lib and nvidia/cu13/lib below the site-packages of
 * $VIRTUAL_ENV, $CONDA_PREFIX, the first python3 of $PATH, and ~/.local. purpose says what for ("communication between
 * GPUs"), package what to install ("nccl"; NULL: it comes with the driver). It stays open until the process ends.
 * ERR_UNSUPPORTED: it is not there, or does not load; the message says what was tried and what to do.
 */
err_t cuda_library_open(const char *file, const char *package, const char *purpose, void **out,
                        struct error *e) MUST_CHECK;

/* The address of a function; ERR_UNSUPPORTED names it and the library's file when it is missing. */
err_t cuda_library_symbol(void *library, const char *file, const char *name, void **out, struct error *e) MUST_CHECK;

#endif
