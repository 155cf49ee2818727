/* SPDX-License-Identifier: MIT */
/* Regions; see exec.h. */
#include "nn/exec.h"

enum { REGION_ALIGN = 64 };

void *region_take(struct region *r, size_t bytes)
{
    size_t at = r->used, rounded = (bytes + REGION_ALIGN - 1) & ~(size_t)(REGION_ALIGN - 1);

    if (rounded < bytes || rounded > r->bytes - at) {
        if (r->bytes != REGION_COUNTING)
            BUG("a region of %zu bytes is full: %zu used, %zu more asked", r->bytes, at, bytes);
        rounded = r->bytes - at;
    }
    r->used = at + rounded;
    if (r->used > r->peak) r->peak = r->used;
    return (void *)((uintptr_t)r->base + at);
}

static size_t bytes_of(enum dtype type, int64_t n)
{
    size_t bytes;

    return __builtin_mul_overflow((size_t)n, dtype_bytes(type), &bytes) ? SIZE_MAX : bytes;
}

void *exec_stash(struct exec *x, int64_t n) { return region_take(&x->stash, bytes_of(x->type, n)); }
void *exec_stash_wide(struct exec *x, int64_t n) { return region_take(&x->stash, bytes_of(dtype_wide(x->type), n)); }
void *exec_kept(struct exec *x, int64_t n) { return region_take(&x->kept, bytes_of(x->type, n)); }
void *exec_scratch(struct exec *x, int64_t n) { return region_take(&x->scratch, bytes_of(x->type, n)); }

void exec_init_dry(struct exec *x, const struct kernels *dry, struct kernel_context *kernel, enum dtype type)
{
    struct region counting = {.base = NULL, .bytes = REGION_COUNTING};

    *x = (struct exec){.k = dry,
                       .kernel = kernel,
                       .type = type,
                       .stash = counting,
                       .kept = counting,
                       .scratch = counting,
                       .with_gradient = true,
                       .loss_scale = 1.0};
}
