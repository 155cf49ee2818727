/* SPDX-License-Identifier: MIT */
/*
 * A device that does nothing at once: the CPU, behind streams that keep what they are given until somebody waits for
 * it, in an order that is as bad as the events allow. What is right only by luck on a GPU is wrong here: a missing
 * event shows as wrong numbers, or as ranks whose collectives do not match.
 *
 * All of a stream's work is done in its order. What the host waits for is done at least; what else is done before it
 * depends on the order that was asked for, which is the same on every rank.
 */
#ifndef SUPPORT_LAZY_H
#define SUPPORT_LAZY_H

#include "comm/comm.h"
#include "device/device.h"
#include "kernels/kernels.h"

#define LAZY_ORDERS(X)                                                                                                 \
    X(LAZY_LATE, "as late as possible")         /* only what must be done before that */                               \
    X(LAZY_OTHERS_FIRST, "other streams first") /* all that other streams can do comes first */                        \
    X(LAZY_RANDOM, "random")

enum lazy_order {
#define X(id, name) id,
    LAZY_ORDERS(X)
#undef X
        LAZY_ORDER_COUNT
};

/* Blocks hold NaNs when the device gives them. Closed by device_close. */
err_t lazy_device_open(struct device **out, enum lazy_order order, uint64_t seed, struct error *e) MUST_CHECK;

/* The CPU's kernels `real`, given to the streams; borrowed. */
const struct kernels *lazy_kernels(struct device *lazy, const struct kernels *real);

/* Collectives of `inner` (borrowed) given to the streams. comm_destroy leaves inner alone. */
err_t lazy_comm_create(struct comm **out, struct device *lazy, struct comm *inner, struct error *e) MUST_CHECK;

/* For lazy_kernels.c: keeps a copy of the arguments for run(c, arguments), on the context's stream. */
typedef void (*lazy_kernel)(struct kernel_context *c, const struct kernels *real, void *arguments);
void lazy_defer_kernel(struct kernel_context *c, lazy_kernel run, const void *arguments, size_t bytes);
extern const struct kernels lazy_kernel_table; /* all functions; type and names are filled by lazy_kernels */

#endif
