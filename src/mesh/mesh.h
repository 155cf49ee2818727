/* SPDX-License-Identifier: MIT */
/*
 * The mesh of a job: its ranks as points of a five-dimensional box, with a communicator along each axis.
 *
 * Axes from outer to inner: pp, dp_replicate, dp_shard, cp, tp; the world rank is the row-major index of the
 * coordinates (torchtitan's order). "Axis" always means an axis of the mesh, "dim" a dimension of a tensor.
 */
#ifndef MESH_MESH_H
#define MESH_MESH_H

#include "base/error.h"
#include "base/str.h"
#include "comm/comm.h"
#include "device/device.h"

#define MESH_AXES(X)                                                                                                   \
    X(AXIS_PP, "pp")                                                                                                   \
    X(AXIS_DP_REPLICATE, "dp_replicate")                                                                               \
    X(AXIS_DP_SHARD, "dp_shard")                                                                                       \
    X(AXIS_CP, "cp")                                                                                                   \
    X(AXIS_TP, "tp")

enum axis {
#define X(id, name) id,
    MESH_AXES(X)
#undef X
        AXIS_COUNT
};
const char *axis_name(enum axis axis);

struct mesh_shape {
    int degree[AXIS_COUNT]; /* each at least 1 */
};

struct mesh {
    struct mesh_shape shape;
    int coordinate[AXIS_COUNT];    /* of this rank */
    struct comm *world;            /* borrowed */
    struct comm *axis[AXIS_COUNT]; /* owned: the ranks that differ from this one along that axis alone */
    struct comm *batch;            /* owned: ranks that read different data: dp_replicate x dp_shard */
    /* The same groups as `axis`, for memory of devices: those themselves, or since mesh_attach the devices' own. */
    struct comm *device_axis[AXIS_COUNT];
};

int mesh_size(const struct mesh_shape *s);                                               /* product of the degrees */
void mesh_coordinates(const struct mesh_shape *s, int rank, int coordinate[AXIS_COUNT]); /* of a world rank */
void mesh_describe(const struct mesh_shape *s,
                   struct str *out); /* "dp_replicate 2 x dp_shard 4"; "1 rank" when all are 1 */

/* Collective over world. ERR_CONFIG when the degrees' product is not world's size. */
err_t mesh_open(struct mesh *m, const struct mesh_shape *shape, struct comm *world, struct error *e) MUST_CHECK;
void mesh_close(struct mesh *m); /* NULL or zeroed is fine */

/* Gives the axes the communicators of a device whose memory the host's cannot reach (device/plugin.h); for others
 * nothing happens. Collective over the world. mesh_detach goes before the device is closed. */
err_t mesh_attach(struct mesh *m, struct device *d, struct error *e) MUST_CHECK;
void mesh_detach(struct mesh *m);

#endif
