/* SPDX-License-Identifier: MIT */
/* Coordinates and communicators of a mesh; see mesh.h. */
#include "mesh/mesh.h"

#include <stdbool.h>

#include "base/mem.h"
#include "device/plugin.h"

const char *axis_name(enum axis axis)
{
    static const char *const names[] = {
#define X(id, name) [id] = name,
        MESH_AXES(X)
#undef X
    };
    return names[axis];
}

int mesh_size(const struct mesh_shape *s)
{
    int n = 1;

    for (int a = 0; a < AXIS_COUNT; a++) n *= s->degree[a];
    return n;
}

void mesh_coordinates(const struct mesh_shape *s, int rank, int coordinate[AXIS_COUNT])
{
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        coordinate[a] = rank % s->degree[a];
        rank /= s->degree[a];
    }
}

void mesh_describe(const struct mesh_shape *s, struct str *out)
{
    const char *between = "";

    for (int a = 0; a < AXIS_COUNT; a++) {
        if (s->degree[a] == 1) continue;
        str_addf(out, "%s%s %d", between, axis_name((enum axis)a), s->degree[a]);
        between = " x ";
    }
    if (!between[0]) str_add(out, "1 rank");
}

/* The group of ranks that agree with this one on every axis outside `varies` (a mask), in the order of their world
 * ranks. */
static err_t open_group(struct mesh *m, unsigned varies, struct comm **out, struct error *e)
{
    int *ranks = mem_zalloc((size_t)m->world->size, sizeof *ranks), n = 0, coordinate[AXIS_COUNT];
    err_t rc;

    if (!ranks) return FAIL(e, ERR_MEMORY, "out of memory for a mesh of %d ranks", m->world->size);
    for (int r = 0; r < m->world->size; r++) {
        bool is_member = true;

        mesh_coordinates(&m->shape, r, coordinate);
        for (int a = 0; a < AXIS_COUNT; a++)
            if (!(varies >> a & 1) && coordinate[a] != m->coordinate[a]) is_member = false;
        if (is_member) ranks[n++] = r;
    }
    rc = comm_split_ranks(m->world, ranks, n, out, e);
    mem_free(ranks);
    return rc;
}

err_t mesh_open(struct mesh *m, const struct mesh_shape *shape, struct comm *world, struct error *e)
{
    struct str text = {0};
    err_t rc = ERR_NONE;

    *m = (struct mesh){.shape = *shape, .world = world};
    if (mesh_size(shape) != world->size) {
        mesh_describe(shape, &text);
        rc = FAIL(e, ERR_CONFIG,
                  "the mesh (%s) has %d ranks, but the job has %d: change NGPU or the parallelism degrees",
                  str_text(&text), mesh_size(shape), world->size);
        str_release(&text);
        return rc;
    }
    mesh_coordinates(shape, world->rank, m->coordinate);
    for (int a = 0; a < AXIS_COUNT && !rc; a++) rc = open_group(m, 1u << a, &m->axis[a], e);
    if (!rc) rc = open_group(m, 1u << AXIS_DP_REPLICATE | 1u << AXIS_DP_SHARD, &m->batch, e);
    for (int a = 0; a < AXIS_COUNT; a++) m->device_axis[a] = m->axis[a];
    return rc;
}

err_t mesh_attach(struct mesh *m, struct device *d, struct error *e)
{
    err_t rc = ERR_NONE;

    if (!d->plugin || (!d->plugin->comm_open && m->world->size == 1)) return ERR_NONE;
    if (!d->plugin->comm_open)
        return FAIL(e, ERR_UNSUPPORTED,
                    "the GPUs of %d ranks need NCCL, and the plugin was built without: install its header (nccl.h) and "
                    "run make again, or use device.kind=cpu",
                    m->world->size);
    for (int a = 0; a < AXIS_COUNT && !rc; a++) {
        struct comm *own = NULL;

        rc = d->plugin->comm_open(d, m->axis[a], &own, e);
        if (!rc) m->device_axis[a] = own;
    }
    return rc;
}

void mesh_detach(struct mesh *m)
{
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        if (m->device_axis[a] != m->axis[a]) comm_destroy(m->device_axis[a]);
        m->device_axis[a] = m->axis[a];
    }
}

void mesh_close(struct mesh *m)
{
    if (!m) return;
    mesh_detach(m);
    comm_destroy(m->batch);
    for (int a = AXIS_COUNT - 1; a >= 0; a--) comm_destroy(m->axis[a]);
    *m = (struct mesh){0};
}
