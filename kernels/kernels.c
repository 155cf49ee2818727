/* SPDX-License-Identifier: MIT */
/* The CPU's kernel tables and the choice among them; see kernels.h. */
#include "kernels/kernels.h"

#include <string.h>

#include "kernels/cpu/cpu.h"

#define KERNEL(name, family, arguments, help) .name = name##_float32,
static const struct kernels reference_float32 = {
    .device = "cpu", .level = "reference", .type = DTYPE_FLOAT32,
#include "kernels.def"
};
#undef KERNEL
#define KERNEL(name, family, arguments, help) .name = name##_float64,
static const struct kernels reference_float64 = {
    .device = "cpu", .level = "reference", .type = DTYPE_FLOAT64,
#include "kernels.def"
};
#undef KERNEL

/* From the best to the slowest. */
static const struct kernels *const tables[] = {&reference_float32, &reference_float64};
enum { TABLES = sizeof tables / sizeof tables[0] };

static bool runs_here(const struct kernels *k)
{
    (void)k;
    return true;
}

static bool is_level(const char *name)
{
    static const char *const names[] = {"auto", "avx512", "avx2", "reference"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

err_t kernels_for(const struct kernels **out, const struct device *d, enum dtype type, const char *level, struct error *e)
{
    *out = NULL;
    if (strcmp(d->ops->name, "cpu") != 0)
        return FAIL(e, ERR_UNSUPPORTED, "no kernels for the device \"%s\" in this build: use cpu", d->ops->name);
    if (!is_level(level))
        return FAIL(e, ERR_CONFIG, "unknown kernel level \"%s\": use auto, avx512, avx2 or reference", level);
    if (type != DTYPE_FLOAT32 && type != DTYPE_FLOAT64)
        return FAIL(e, ERR_UNSUPPORTED, "the cpu has no kernels for %s: use float32 or float64", dtype_name(type));
    for (int i = 0; i < TABLES; i++) {
        if (tables[i]->type != type || !runs_here(tables[i])) continue;
        if (strcmp(level, "auto") != 0 && strcmp(level, tables[i]->level) != 0) continue;
        *out = tables[i];
        return ERR_NONE;
    }
    return FAIL(e, ERR_UNSUPPORTED, "this CPU lacks the instructions of the kernel level \"%s\": use auto", level);
}

size_t kernels_workspace_bytes(const struct kernels *k, int threads)
{
    (void)k;
    (void)threads;
    return 0;
}

err_t kernel_context_check(struct kernel_context *c, struct error *e)
{
    if (c->failed && e) *e = c->error;
    return c->failed;
}
