/* SPDX-License-Identifier: MIT */
/*
 * The caching allocator of a device: segments are taken from the device and cut into blocks; freed blocks are merged
 * with free neighbours and kept for the next request. One rank's training thread uses it alone; it does no locking.
 *
 * A request is rounded up to ALLOCATOR_ALIGN; small requests share segments of ALLOCATOR_SMALL_SEGMENT, large ones get
 * the best fitting free block, which is split when the rest is worth keeping, or a segment of their own size.
 *
 * Where streams order the work there is a pool of segments for each stream: a block freed by the host may still be used
 * by work given before, so only later work of the same stream may have it. When the device has no more memory the host
 * waits for all work and gives the free segments of all pools back.
 */
#ifndef DEVICE_ALLOCATOR_H
#define DEVICE_ALLOCATOR_H

#include "device/device.h"

#define ALLOCATOR_MAX_BYTES                                                                                            \
    ((size_t)1 << 60) /* of a request: more than any device has, and sums of it are still numbers */

enum {
    ALLOCATOR_ALIGN = 256,
    ALLOCATOR_SMALL = 1 << 18, /* requests up to this share segments */
    ALLOCATOR_SMALL_SEGMENT = 2 << 20,
    ALLOCATOR_SPLIT_REST = 1 << 18, /* a large block is split when at least this much would be left */
};

/* limit_bytes: reserved memory may not exceed it; 0 = no limit but the device's own. */
err_t allocator_create(struct allocator **out, struct device *d, int64_t limit_bytes, struct error *e) MUST_CHECK;
void allocator_destroy(struct allocator *a);

/* is_zero: the block is known to hold zeros, because the device gave it so and nobody had it since. */
err_t allocator_alloc(struct allocator *a, size_t bytes, enum memory_kind kind, const char *label, struct stream *s,
                      void **out, bool *is_zero, struct error *e) MUST_CHECK;
void allocator_free(struct allocator *a, void *p);
struct stream *allocator_owner(struct allocator *a, const void *p); /* of a block handed out; NULL: the main stream */
void allocator_stats(const struct allocator *a, struct memory_stats *out);
void allocator_reset_peaks(struct allocator *a);

/* Tests only: the n-th block asked for from now (0 = the next) is refused, as if the device had no memory left, once.
 * Negative disarms. */
void allocator_fault_arm(struct allocator *a, long n);
bool allocator_fault_fired(const struct allocator *a);

/* Gives every wholly free segment back to the device; returns the bytes given back. All work that used them is done. */
int64_t allocator_trim(struct allocator *a);

#endif
