/* SPDX-License-Identifier: MIT */
/* Regions, and the kernel table that does nothing; see exec.h. */
#include "nn/exec.h"

enum { REGION_ALIGN = 64 };

void *region_take(struct region *r, size_t bytes)
{
    size_t at = r->used;

    bytes = (bytes + REGION_ALIGN - 1) & ~(size_t)(REGION_ALIGN - 1);
    if (bytes > r->bytes - at) BUG("a region of %zu bytes is full: %zu used, %zu more asked", r->bytes, at, bytes);
    r->used = at + bytes;
    if (r->used > r->peak) r->peak = r->used;
    return (void *)((uintptr_t)r->base + at);
}

void *exec_stash(struct exec *x, int64_t n) { return region_take(&x->stash, (size_t)n * dtype_bytes(x->type)); }
void *exec_kept(struct exec *x, int64_t n) { return region_take(&x->kept, (size_t)n * dtype_bytes(x->type)); }
void *exec_scratch(struct exec *x, int64_t n) { return region_take(&x->scratch, (size_t)n * dtype_bytes(x->type)); }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define KERNEL(name, family, arguments, help) static void nothing_##name arguments {}
#include "kernels/kernels.def"
#undef KERNEL
#pragma GCC diagnostic pop

static const struct kernels kernels_nothing = {
    .device = "none",
    .level = "none",
#define KERNEL(name, family, arguments, help) .name = nothing_##name,
#include "kernels/kernels.def"
#undef KERNEL
};

void exec_init_dry(struct exec *x, struct kernel_context *kernel, enum dtype type)
{
    struct region counting = {.base = NULL, .bytes = SIZE_MAX / 2};

    *x = (struct exec){.k = &kernels_nothing, .kernel = kernel, .type = type, .stash = counting, .kept = counting, .scratch = counting,
                       .with_gradient = true, .loss_scale = 1.0};
}
