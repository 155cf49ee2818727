/* SPDX-License-Identifier: MIT */
/* The CPU's kernel tables and the choice among them; see kernels.h. */
#include "kernels/kernels.h"

#include <string.h>

#include "device/plugin.h"
#include "kernels/cpu/cpu.h"

/* Which families have a fast twin of float64: the others use the reference at every level. */
#define FLOAT64_attention(twin, reference) reference
#define FLOAT64_cross_entropy(twin, reference) reference
#define FLOAT64_elementwise(twin, reference) reference
#define FLOAT64_embedding(twin, reference) reference
#define FLOAT64_gemm(twin, reference) twin
#define FLOAT64_optimizer(twin, reference) reference
#define FLOAT64_reduce(twin, reference) reference
#define FLOAT64_rmsnorm(twin, reference) reference
#define FLOAT64_rope(twin, reference) reference
#define FLOAT64_swiglu(twin, reference) reference

#define KERNEL(name, family, arguments, help) .name = name##_float32,
static const struct kernels reference_float32 = {
    .device = "cpu",
    .level = "reference",
    .type = DTYPE_FLOAT32,
#include "kernels.def"
};
#undef KERNEL
#define KERNEL(name, family, arguments, help) .name = name##_float64,
static const struct kernels reference_float64 = {
    .device = "cpu",
    .level = "reference",
    .type = DTYPE_FLOAT64,
#include "kernels.def"
};
#undef KERNEL
#define KERNEL(name, family, arguments, help) .name = name##_bfloat16,
static const struct kernels reference_bfloat16 = {
    .device = "cpu",
    .level = "reference",
    .type = DTYPE_BFLOAT16,
#include "kernels.def"
};
#undef KERNEL

#if defined(__x86_64__)
#define KERNEL(name, family, arguments, help) .name = name##_float32_avx2,
static const struct kernels avx2_float32 = {
    .device = "cpu",
    .level = "avx2",
    .type = DTYPE_FLOAT32,
#include "kernels.def"
};
#undef KERNEL
#define KERNEL(name, family, arguments, help) .name = FLOAT64_##family(name##_float64_avx2, name##_float64),
static const struct kernels avx2_float64 = {
    .device = "cpu",
    .level = "avx2",
    .type = DTYPE_FLOAT64,
#include "kernels.def"
};
#undef KERNEL
#define KERNEL(name, family, arguments, help) .name = name##_bfloat16_avx2,
static const struct kernels avx2_bfloat16 = {
    .device = "cpu",
    .level = "avx2",
    .type = DTYPE_BFLOAT16,
#include "kernels.def"
};
#undef KERNEL
#define KERNEL(name, family, arguments, help) .name = name##_float32_avx512,
static const struct kernels avx512_float32 = {
    .device = "cpu",
    .level = "avx512",
    .type = DTYPE_FLOAT32,
#include "kernels.def"
};
#undef KERNEL
#define KERNEL(name, family, arguments, help) .name = FLOAT64_##family(name##_float64_avx512, name##_float64),
static const struct kernels avx512_float64 = {
    .device = "cpu",
    .level = "avx512",
    .type = DTYPE_FLOAT64,
#include "kernels.def"
};
#undef KERNEL
#define KERNEL(name, family, arguments, help) .name = name##_bfloat16_avx512,
static const struct kernels avx512_bfloat16 = {
    .device = "cpu",
    .level = "avx512",
    .type = DTYPE_BFLOAT16,
#include "kernels.def"
};
#undef KERNEL
#endif

static bool runs_anywhere(void) { return true; }
static size_t no_workspace(int threads) { return (void)threads, (size_t)0; }

#if defined(__x86_64__)
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t workspace_float32_avx2(int threads)
{
    return larger(gemm_workspace_float32_avx2(threads), attention_workspace_float32_avx2(threads));
}

static size_t workspace_bfloat16_avx2(int threads)
{
    return larger(gemm_workspace_bfloat16_avx2(threads), attention_workspace_bfloat16_avx2(threads));
}

static size_t workspace_float32_avx512(int threads)
{
    return larger(gemm_workspace_float32_avx512(threads), attention_workspace_float32_avx512(threads));
}

static size_t workspace_bfloat16_avx512(int threads)
{
    return larger(gemm_workspace_bfloat16_avx512(threads), attention_workspace_bfloat16_avx512(threads));
}

static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

/* From the best to the slowest. */
static const struct row {
    const struct kernels *kernels;
    bool (*runs_here)(void);
    size_t (*workspace_bytes)(int threads);
} rows[] = {
#if defined(__x86_64__)
    {&avx512_float32, has_avx512, workspace_float32_avx512},
    {&avx512_float64, has_avx512, gemm_workspace_float64_avx512},
    {&avx512_bfloat16, has_avx512, workspace_bfloat16_avx512},
    {&avx2_float32, has_avx2, workspace_float32_avx2},
    {&avx2_float64, has_avx2, gemm_workspace_float64_avx2},
    {&avx2_bfloat16, has_avx2, workspace_bfloat16_avx2},
#endif
    {&reference_float32, runs_anywhere, no_workspace},
    {&reference_float64, runs_anywhere, no_workspace},
    {&reference_bfloat16, runs_anywhere, no_workspace},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static bool is_level(const char *name)
{
    static const char *const names[] = {"auto", "avx512", "avx2", "reference"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

err_t kernels_for(const struct kernels **out, const struct device *d, enum dtype type, const char *level,
                  struct error *e)
{
    *out = NULL;
    if (d->plugin && strcmp(level, "auto") != 0)
        return FAIL(e, ERR_CONFIG, "device.kernels=%s is of the CPU: use auto with the device %s", level, d->ops->name);
    if (d->plugin) return d->plugin->kernels(out, d, type, e);
    if (strcmp(d->ops->name, "cpu") != 0)
        return FAIL(e, ERR_UNSUPPORTED, "no kernels for the device \"%s\" in this build: use cpu", d->ops->name);
    if (!is_level(level))
        return FAIL(e, ERR_CONFIG, "unknown kernel level \"%s\": use auto, avx512, avx2 or reference", level);
    if (type != DTYPE_FLOAT32 && type != DTYPE_FLOAT64 && type != DTYPE_BFLOAT16)
        return FAIL(e, ERR_UNSUPPORTED, "the cpu has no kernels for %s: use float32, float64 or bfloat16",
                    dtype_name(type));
    for (int i = 0; i < ROWS; i++) {
        const struct kernels *k = rows[i].kernels;

        if (k->type != type || (strcmp(level, "auto") != 0 && strcmp(level, k->level) != 0) || !rows[i].runs_here())
            continue;
        *out = k;
        return ERR_NONE;
    }
    return FAIL(e, ERR_UNSUPPORTED, "this CPU lacks the instructions of the kernel level \"%s\": use auto", level);
}

size_t kernels_workspace_bytes(const struct kernels *k, int threads)
{
    if (k->workspace_bytes) return k->workspace_bytes;
    for (int i = 0; i < ROWS; i++)
        if (rows[i].kernels->type == k->type && strcmp(rows[i].kernels->level, k->level) == 0)
            return rows[i].workspace_bytes(threads);
    return 0;
}

err_t kernel_context_open(struct kernel_context *c, struct device *d, const struct kernels *k, struct stream *s,
                          bool with_products, struct error *e)
{
    *c = (struct kernel_context){.device = d, .stream = s};
    c->workspace_bytes = with_products ? kernels_workspace_bytes(k, d->properties.threads) : k->workspace_bytes;
    return device_alloc(d, c->workspace_bytes, MEMORY_SCRATCH, "kernel workspace", s, &c->workspace, e);
}

err_t kernel_context_grow(struct kernel_context *c, size_t wanted_bytes, struct error *e)
{
    if (c->workspace_bytes >= wanted_bytes) return ERR_NONE;
    device_free(c->device, c->workspace);
    c->workspace = NULL;
    c->workspace_bytes = wanted_bytes;
    return device_alloc(c->device, c->workspace_bytes, MEMORY_SCRATCH, "kernel workspace", c->stream, &c->workspace, e);
}

void kernel_context_close(struct kernel_context *c)
{
    if (c->device) device_free(c->device, c->workspace);
    *c = (struct kernel_context){0};
}

err_t kernel_context_check(struct kernel_context *c, struct error *e)
{
    if (c->failed && e) *e = c->error;
    return c->failed;
}
