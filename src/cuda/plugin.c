/* SPDX-License-Identifier: MIT */
/* The table that the plugin exports, and its kernels: see device/plugin.h. */
#include "device/plugin.h"

#include "cuda/attention.h"
#include "cuda/cuda.h"
#include "cuda/nccl.h"

enum { WORKSPACE_BYTES = 32 << 20, CHUNK_TOKENS = 2048 };

/* The launchers of kernels/cuda and src/cuda, weak: one that is not there is named when a table is asked for. */
#define KERNEL(name, family, arguments, help)                                                                          \
    void name##_bfloat16_cuda arguments __attribute__((weak, visibility("hidden")));                                   \
    void name##_float32_cuda arguments __attribute__((weak, visibility("hidden")));                                    \
    void name##_float64_cuda arguments __attribute__((weak, visibility("hidden")));
#include "kernels/kernels.def"
#undef KERNEL

/* Left out where NCCL's header is not installed. */
extern __typeof__(nccl_comm_open) nccl_comm_open __attribute__((weak));

#define TABLE(type_id)                                                                                                 \
    .device = "cuda", .level = "cuda", .type = (type_id), .workspace_bytes = WORKSPACE_BYTES,                          \
    .chunk_tokens = CHUNK_TOKENS

#define KERNEL(name, family, arguments, help) .name = name##_bfloat16_cuda,
static const struct kernels kernels_bfloat16 = {
    TABLE(DTYPE_BFLOAT16),
#include "kernels/kernels.def"
};
#undef KERNEL
#define KERNEL(name, family, arguments, help) .name = name##_float32_cuda,
static const struct kernels kernels_float32 = {
    TABLE(DTYPE_FLOAT32),
#include "kernels/kernels.def"
};
#undef KERNEL
#define KERNEL(name, family, arguments, help) .name = name##_float64_cuda,
static const struct kernels kernels_float64 = {
    TABLE(DTYPE_FLOAT64),
#include "kernels/kernels.def"
};
#undef KERNEL

/* The first kernel that a table lacks; NULL: none. */
static const char *missing(const struct kernels *k)
{
#define KERNEL(name, family, arguments, help)                                                                          \
    if (!k->name) return #name;
#include "kernels/kernels.def"
#undef KERNEL
    return NULL;
}

static err_t cuda_kernels(const struct kernels **out, const struct device *d, enum dtype compute, struct error *e)
{
    static const struct kernels *const tables[] = {&kernels_bfloat16, &kernels_float32, &kernels_float64};

    *out = NULL;
    for (int i = 0; i < 3; i++) {
        const char *lacks;

        if (tables[i]->type != compute) continue;
        lacks = missing(tables[i]);
        if (lacks)
            return FAIL(e, ERR_UNSUPPORTED, "the GPU has no kernel %s for %s: use device.kind=cpu", lacks,
                        dtype_name(compute));
        *out = compute == DTYPE_BFLOAT16 ? cuda_attention_table((struct device *)d, tables[i]) : tables[i];
        return ERR_NONE;
    }
    return FAIL(e, ERR_UNSUPPORTED, "the GPU has no kernels for %s: use bfloat16 or float32", dtype_name(compute));
}

__attribute__((visibility("default"))) extern const struct device_plugin ctitan_device_plugin;
const struct device_plugin ctitan_device_plugin = {
    .abi = DEVICE_PLUGIN_ABI,
    .version = CTITAN_VERSION,
    .open = cuda_device_create,
    .kernels = cuda_kernels,
    .comm_open = nccl_comm_open,
};
