/* SPDX-License-Identifier: MIT */
/*
 * The kernel table of one device and compute type, filled from kernels.def.
 *
 * Kernels return nothing: what can go wrong is decided before (shapes by the plan, memory by the allocator); an
 * asynchronous failure of a device is kept in the context and looked at after each action of the executor
 * (kernel_context_check). Results do not depend on the number of threads. Accumulation is in float32 or better for
 * every storage type.
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/label.h"
#include "device/device.h"

/* Where kernels run: a stream, and what they need beside their arguments. */
struct kernel_context {
    struct device *device; /* borrowed */
    struct stream *stream; /* borrowed; NULL: the main stream */
    void *workspace;       /* owned; device memory of kernels_workspace_bytes(), of that stream */
    size_t workspace_bytes;
    /* While a plan is made with kernels_dry: whose needs are asked for, NULL outside; and the largest workspace that
     * was asked for. */
    const struct kernels *planned; /* borrowed */
    size_t wanted_bytes;
    err_t failed; /* sticky, set by kernels */
    struct error error;
};

enum {
    ATTENTION_MAX_D = 1024, /* d_qk and d_v at most */
};

/* Shapes of scaled dot product attention. q is [sequences*length, heads, d_qk] with row strides in elements, and so on.
 */
struct attention {
    int64_t sequences, length; /* tokens = sequences * length */
    int64_t heads, kv_heads;   /* heads % kv_heads == 0 (grouped queries, Ainslie et al. 2023) */
    int64_t d_qk, d_v;
    int64_t ld_q, ld_k, ld_v, ld_out; /* elements from one token to the next, also of the gradients */
    double scale;                     /* usually 1/sqrt(d_qk) */
    bool causal;                      /* key j <= query i */
    int64_t window;                   /* 0 = all; else keys j > i - window */
    const int32_t *document_start;    /* [tokens], or NULL: keys j >= document_start[i] (index within the sequence) */
    /* A query that may see no key gets out = 0, lse = -inf and no gradient. */
};

struct adamw_step {
    double lr, beta1, beta2, eps, weight_decay;
    double bias_correction1, bias_correction2; /* 1 - beta^step */
};

/* `wide *` is data of the table's wide type, `void *` of its compute type. */
typedef void wide;

struct kernels {
    const char *device;     /* "cpu", "cuda" */
    const char *level;      /* "reference", "avx2", "avx512"; of a GPU "cuda" */
    enum dtype type;        /* the compute type */
    size_t workspace_bytes; /* of a GPU's; 0: the CPU's depends on the threads */
    int64_t chunk_tokens;   /* of which the head makes the logits at a time; 0: HEAD_CHUNK_TOKENS */
    /* optional: makes ready for attention of this shape, at set-up, and says what workspace it wants in all. Of
     * document_start only whether it is NULL. */
    err_t (*prepare_attention)(void *owner, const struct attention *a, bool is_backward, size_t *workspace_bytes,
                               struct error *e);
    void *owner; /* borrowed: its first argument */
#define KERNEL(name, family, arguments, help) void(*name) arguments;
#include "kernels.def"
#undef KERNEL
};

/* The table for a device and compute type. level: "auto" (the best this machine has), or one level by name; the
 * reference fills what a level lacks on the CPU, where it is a version of the same code; on other devices a missing
 * kernel is an error that names it. */
err_t kernels_for(const struct kernels **out, const struct device *d, enum dtype type, const char *level,
                  struct error *e) MUST_CHECK;

/* A table like another, of the same level and needs, whose kernels do nothing: for plans. Only attention is made ready
 * where the context has `planned`, the table that will run; a failure stays in the context. */
struct kernels kernels_dry(const struct kernels *like);

/* Workspace that a context needs for these kernels with this many threads. */
size_t kernels_workspace_bytes(const struct kernels *k, int threads);

/* with_products: for all kernels; else for those that go over elements one by one or sum them, which on the CPU need no
 * workspace. The context owns its workspace; close takes a zeroed one too. */
err_t kernel_context_open(struct kernel_context *c, struct device *d, const struct kernels *k, struct stream *s,
                          bool with_products, struct error *e) MUST_CHECK;
/* A workspace of at least so much, as a plan wants it; of a context that has not run anything. */
err_t kernel_context_grow(struct kernel_context *c, size_t wanted_bytes, struct error *e) MUST_CHECK;
void kernel_context_close(struct kernel_context *c);
err_t kernel_context_check(struct kernel_context *c, struct error *e) MUST_CHECK;

#endif
