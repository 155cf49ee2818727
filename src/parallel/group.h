/* SPDX-License-Identifier: MIT */
/*
 * The storage of a group of parameters that are gathered, freed and reduced together.
 *
 * Shard layout (this rank): each parameter's chunk of ceil(dim0 / n) rows, one after the other, padded to 64 bytes; the
 * same size on every rank. Rows that a rank does not have (uneven dim 0) are zero and never read by norm, optimizer or
 * checkpoint. Whole layout (gathered): each parameter's n chunks in rank order, hence its rows in order. With one shard
 * the whole is the shard: nothing is copied.
 *
 * Shards and all gradients are of the wide type, whole values of the compute type. Where these are two types, a gather
 * begins with a rounded copy of the shard; with one shard that is all of it.
 *
 * Gathers and reductions run on comm_stream, what computes with the parameters on the main stream. Whole values belong
 * to comm_stream, which makes them, whole gradients to the main stream; each is given back with device_free_after the
 * other one's use. Shards are written on the main stream (set-up, the optimizer) between two steps: the caller orders
 * the streams there (executor.h).
 */
#ifndef PARALLEL_GROUP_H
#define PARALLEL_GROUP_H

#include <stdbool.h>

#include "base/dtype.h"
#include "comm/comm.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "tensor/parameter.h"

struct parameter_group {
    char name[48];                 /* "layers.3", in reports */
    struct parameter **parameters; /* [n], borrowed array owned by the group */
    int n;
    int64_t *offset; /* [n] of each chunk in the shard layout, in elements */
    int64_t shard_elements;
    int n_shards, n_replicas;
    struct device *device; /* borrowed, like the rest below */
    const struct kernels *k;
    struct kernel_context *kernel; /* on comm_stream */
    enum dtype type, wide_type;    /* the compute type, and that of shards and gradients */
    bool is_copied;                /* the whole values are a copy: of several shards, or in another type */
    struct comm *shard_comm, *replicate_comm;
    struct stream *comm_stream;

    void *shard, *shard_gradient; /* [shard_elements], wide, kept for the whole run */
    void *whole, *whole_gradient; /* [n_shards * shard_elements], or NULL; the values of the compute type */
    struct event *ready;          /* the gather is done */
    bool is_awaited;              /* the main stream waits for it already */
};

struct group_context {
    struct device *device;
    const struct kernels *k;
    struct kernel_context *kernel;
    enum dtype type;                          /* the compute type */
    struct comm *shard_comm, *replicate_comm; /* for memory of the device */
    struct stream *comm_stream;
};

/* Takes `parameters` [n] (an array from mem_*), sets their shards for this rank and points them at new, zeroed storage.
 */
err_t group_open(struct parameter_group *g, const char *name, struct parameter **parameters, int n,
                 const struct group_context *context, struct error *e) MUST_CHECK;
void group_close(struct parameter_group *g);

err_t group_initialise(struct parameter_group *g, uint64_t seed, struct error *e) MUST_CHECK; /* this rank's rows */

err_t group_gather(struct parameter_group *g, struct error *e) MUST_CHECK; /* starts on comm_stream, records `ready` */
err_t group_await(struct parameter_group *g, struct error *e) MUST_CHECK; /* the main stream may use the whole values */
void group_free(struct parameter_group *g);                               /* the whole values, where they are a copy */
err_t group_gradient_begin(struct parameter_group *g,
                           struct error *e) MUST_CHECK; /* whole gradients: zeroed room, once a microbatch */
err_t group_reduce(struct parameter_group *g,
                   struct error *e) MUST_CHECK; /* adds them, summed over ranks, to the shard's; frees them */
err_t group_replicate(struct parameter_group *g, struct error *e) MUST_CHECK; /* sums the shard's over the replicas */
void group_abandon(struct parameter_group *g); /* after a failure: whole values and gradients are dropped */
err_t group_gradient_zero(struct parameter_group *g,
                          struct error *e) MUST_CHECK; /* the shard's, at the start of a step */

#endif
