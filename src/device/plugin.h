/* SPDX-License-Identifier: MIT */
/*
 * A device in a shared library of its own, opened at run time: the program runs where the library, or what it needs, is
 * not there. The library exports one symbol, a struct device_plugin; it takes the rest of the program's functions from
 * the program.
 */
#ifndef DEVICE_PLUGIN_H
#define DEVICE_PLUGIN_H

#include "base/dtype.h"
#include "device/device.h"

struct comm;
struct kernels;

#define DEVICE_CUDA_PLUGIN_FILE "libctitan_cuda.so"
#define DEVICE_PLUGIN_SYMBOL "ctitan_device_plugin"
enum { DEVICE_PLUGIN_ABI = 1 }; /* grows with each change of a struct that program and plugin share */

struct device_plugin {
    int abi;             /* DEVICE_PLUGIN_ABI it was built with; first, for ever */
    const char *version; /* CTITAN_VERSION it was built with */
    /* Fills ops and properties; the rest of the device is the caller's. ERR_UNSUPPORTED: there is no such device for
     * this rank. The message of a failure says why ("no NVIDIA driver"), not what to do about it. */
    err_t (*open)(struct device **out, const struct device_options *options, struct error *e);
    /* The table of a compute type; ERR_UNSUPPORTED names a kernel that is missing. */
    err_t (*kernels)(const struct kernels **out, const struct device *d, enum dtype compute, struct error *e);
    /* A communicator among the ranks of `host` for memory of their devices; collective over host, which is borrowed and
     * must outlive it. NULL: the plugin was built without what that needs. */
    err_t (*comm_open)(struct device *d, struct comm *host, struct comm **out, struct error *e);
};

/*
 * Opens the plugin's library (base/plugin.h says where it is looked for). It stays loaded.
 * ERR_MISSING: there is no such file: it was not built. ERR_UNSUPPORTED: it cannot be loaded, or it was built for
 * another version of the program. The message is the reason alone.
 */
err_t device_plugin_load(const struct device_plugin **out, const char *file, struct error *e) MUST_CHECK;

#endif
