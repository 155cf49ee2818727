/* SPDX-License-Identifier: MIT */
/* Plugins for test_plugin.c: one library for each way a plugin can be wrong, chosen by FAKE_*. */
#include "device/cpu.h"
#include "device/plugin.h"

static err_t fake_open(struct device **out, const struct device_options *options, struct error *e)
{
#ifdef FAKE_none
    (void)options;
    *out = NULL;
    return FAIL(e, ERR_UNSUPPORTED, "no NVIDIA driver");
#else
    return cpu_device_create(out, options, e);
#endif
}

static err_t fake_kernels(const struct kernels **out, const struct device *d, enum dtype compute, struct error *e)
{
    (void)d;
    *out = NULL;
    return FAIL(e, ERR_UNSUPPORTED, "no kernel \"gemm\" for %s", dtype_name(compute));
}

#ifdef FAKE_symbol
#define NAME another_name
#else
#define NAME ctitan_device_plugin
#endif
extern const struct device_plugin NAME;
const struct device_plugin NAME = {
#ifdef FAKE_abi
    .abi = DEVICE_PLUGIN_ABI + 1,
#else
    .abi = DEVICE_PLUGIN_ABI,
#endif
#ifdef FAKE_version
    .version = "0.0.0-other",
#else
    .version = CTITAN_VERSION,
#endif
    .open = fake_open,
    .kernels = fake_kernels,
};
