/* SPDX-License-Identifier: MIT */
/* Regions; see exec.h. */
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

void exec_init_dry(struct exec *x, const struct kernels *dry, struct kernel_context *kernel, enum dtype type)
{
    struct region counting = {.base = NULL, .bytes = SIZE_MAX / 2};

    *x = (struct exec){.k = dry, .kernel = kernel, .type = type, .stash = counting, .kept = counting, .scratch = counting,
                       .with_gradient = true, .loss_scale = 1.0};
}
