/* SPDX-License-Identifier: MIT */
/* Gathering and reducing a group of parameters; see group.h. */
#include "parallel/group.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { CHUNK_ALIGN_ELEMENTS = 16 };

/* Of a shard in a type. */
static size_t bytes_in(const struct parameter_group *g, enum dtype type)
{
    return (size_t)g->shard_elements * dtype_bytes(type);
}

static size_t shard_bytes(const struct parameter_group *g) { return bytes_in(g, g->wide_type); }

static void *at(enum dtype type, const void *base, int64_t elements)
{
    return (void *)((uintptr_t)base + (size_t)elements * dtype_bytes(type));
}

/* Elements of one rank's chunk of parameter i, padding rows included. */
static int64_t chunk_elements(const struct parameter_group *g, int i)
{
    return parameter_chunk_rows(g->parameters[i], g->n_shards) * parameter_row_elements(g->parameters[i]);
}

/* Points the parameters at (part of) a buffer, or at nothing. In the whole layout parameter i starts at n_shards *
 * offset[i]. */
static void point_values(struct parameter_group *g, void *whole)
{
    for (int i = 0; i < g->n; i++)
        g->parameters[i]->value = whole ? at(g->type, whole, g->n_shards * g->offset[i]) : NULL;
}

static void point_gradients(struct parameter_group *g, void *whole)
{
    for (int i = 0; i < g->n; i++)
        g->parameters[i]->gradient = whole ? at(g->wide_type, whole, g->n_shards * g->offset[i]) : NULL;
}

err_t group_open(struct parameter_group *g, const char *name, struct parameter **parameters, int n,
                 const struct group_context *context, struct error *e)
{
    err_t rc = ERR_NONE;

    *g = (struct parameter_group){.parameters = parameters,
                                  .n = n,
                                  .n_shards = context->shard_comm->size,
                                  .n_replicas = context->replicate_comm->size,
                                  .device = context->device,
                                  .k = context->k,
                                  .kernel = context->kernel,
                                  .type = context->type,
                                  .wide_type = dtype_wide(context->type),
                                  .shard_comm = context->shard_comm,
                                  .replicate_comm = context->replicate_comm,
                                  .comm_stream = context->comm_stream};
    g->is_copied = g->n_shards > 1 || g->type != g->wide_type;
    snprintf(g->name, sizeof g->name, "%s", name);
    g->offset = mem_zalloc((size_t)n, sizeof *g->offset);
    if (!g->offset) return FAIL(e, ERR_MEMORY, "out of memory for the parameters of %s", name);
    for (int i = 0; i < n; i++) {
        parameter_shard(parameters[i], g->shard_comm->rank, g->n_shards);
        g->offset[i] = g->shard_elements;
        g->shard_elements +=
            (chunk_elements(g, i) + CHUNK_ALIGN_ELEMENTS - 1) / CHUNK_ALIGN_ELEMENTS * CHUNK_ALIGN_ELEMENTS;
    }
    rc = device_alloc_zeros(g->device, shard_bytes(g), MEMORY_PARAMETERS, g->name, NULL, &g->shard, e);
    if (!rc) rc = device_alloc_zeros(g->device, shard_bytes(g), MEMORY_GRADIENTS, g->name, NULL, &g->shard_gradient, e);
    if (!rc) rc = g->device->ops->event_create(g->device, &g->ready, e);
    if (rc) return rc;
    for (int i = 0; i < n; i++) {
        parameters[i]->shard = at(g->wide_type, g->shard, g->offset[i]);
        parameters[i]->shard_gradient = at(g->wide_type, g->shard_gradient, g->offset[i]);
    }
    if (!g->is_copied) point_values(g, g->whole = g->shard);
    if (g->n_shards == 1) point_gradients(g, g->whole_gradient = g->shard_gradient);
    return ERR_NONE;
}

void group_close(struct parameter_group *g)
{
    if (!g->device) return;
    if (g->is_copied) device_free(g->device, g->whole);
    if (g->n_shards > 1) device_free(g->device, g->whole_gradient);
    device_free(g->device, g->shard);
    device_free(g->device, g->shard_gradient);
    if (g->ready) g->device->ops->event_destroy(g->device, g->ready);
    mem_free(g->offset);
    mem_free(g->parameters);
    *g = (struct parameter_group){0};
}

err_t group_initialise(struct parameter_group *g, uint64_t seed, struct error *e)
{
    void *host = mem_zalloc(1, shard_bytes(g));
    err_t rc;

    if (!host) return FAIL(e, ERR_MEMORY, "out of memory for the initial values of %s", g->name);
    for (int i = 0; i < g->n; i++)
        parameter_initialise(g->parameters[i], seed, g->wide_type, at(g->wide_type, host, g->offset[i]));
    rc = device_write(g->device, g->shard, host, shard_bytes(g), e);
    mem_free(host);
    return rc;
}

/* Copies between the exchange layout [n_shards][shard layout] and the whole layout: rank r's chunk of each parameter.
 */
static err_t rearrange(struct parameter_group *g, enum dtype type, void *whole, void *exchange, bool to_whole,
                       struct error *e)
{
    err_t rc = ERR_NONE;

    for (int i = 0; i < g->n && !rc; i++) {
        size_t bytes = (size_t)chunk_elements(g, i) * dtype_bytes(type), pitch = bytes_in(g, type);
        void *in_whole = at(type, whole, g->n_shards * g->offset[i]), *in_exchange = at(type, exchange, g->offset[i]);

        if (to_whole)
            rc = device_copy_2d(g->device, in_whole, bytes, in_exchange, pitch, bytes, (size_t)g->n_shards,
                                g->comm_stream, e);
        else
            rc = device_copy_2d(g->device, in_exchange, pitch, in_whole, bytes, bytes, (size_t)g->n_shards,
                                g->comm_stream, e);
    }
    return rc;
}

/* Collects the shards of all ranks, `mine` being this one's in the compute type, in g->whole. */
static err_t collect(struct parameter_group *g, const void *mine, struct error *e)
{
    void *exchange = NULL;
    err_t rc = device_alloc(g->device, (size_t)g->n_shards * bytes_in(g, g->type), MEMORY_GATHERED, g->name,
                            g->comm_stream, &exchange, e);

    if (!rc)
        rc = comm_all_gather(g->shard_comm, g->name, mine, exchange, (size_t)g->shard_elements, g->type, g->comm_stream,
                             e);
    if (!rc) rc = rearrange(g, g->type, g->whole, exchange, true, e);
    device_free(g->device, exchange);
    return rc;
}

/* The same from the wide shard, rounded first. */
static err_t collect_rounded(struct parameter_group *g, struct error *e)
{
    void *mine = NULL;
    err_t rc;

    if (g->n_shards == 1) {
        g->k->narrow(g->kernel, g->shard_elements, g->shard, g->whole);
        return kernel_context_check(g->kernel, e);
    }
    rc = device_alloc(g->device, bytes_in(g, g->type), MEMORY_GATHERED, g->name, g->comm_stream, &mine, e);
    if (!rc) g->k->narrow(g->kernel, g->shard_elements, g->shard, mine);
    if (!rc) rc = kernel_context_check(g->kernel, e);
    if (!rc) rc = collect(g, mine, e);
    device_free(g->device, mine);
    return rc;
}

err_t group_gather(struct parameter_group *g, struct error *e)
{
    size_t bytes = (size_t)g->n_shards * bytes_in(g, g->type);
    err_t rc = device_alloc(g->device, bytes, MEMORY_GATHERED, g->name, g->comm_stream, &g->whole, e);

    if (!rc) rc = g->type == g->wide_type ? collect(g, g->shard, e) : collect_rounded(g, e);
    if (!rc) rc = g->device->ops->event_record(g->device, g->ready, g->comm_stream, e);
    g->is_awaited = false;
    if (!rc) point_values(g, g->whole);
    return rc;
}

err_t group_await(struct parameter_group *g, struct error *e)
{
    if (!g->is_copied || g->is_awaited) return ERR_NONE;
    g->is_awaited = true;
    return g->device->ops->stream_wait(g->device, NULL, g->ready, e);
}

void group_free(struct parameter_group *g)
{
    point_values(g, NULL);
    device_free_after(g->device, g->whole, NULL);
    g->whole = NULL;
}

err_t group_gradient_begin(struct parameter_group *g, struct error *e)
{
    size_t bytes = (size_t)g->n_shards * shard_bytes(g);
    err_t rc;

    if (g->whole_gradient) return ERR_NONE;
    rc = device_alloc(g->device, bytes, MEMORY_GRADIENTS, g->name, NULL, &g->whole_gradient, e);
    if (!rc) rc = device_zero(g->device, g->whole_gradient, bytes, NULL, e);
    if (!rc) point_gradients(g, g->whole_gradient);
    return rc;
}

static void drop_gradients(struct parameter_group *g)
{
    point_gradients(g, NULL);
    device_free_after(g->device, g->whole_gradient, g->comm_stream);
    g->whole_gradient = NULL;
}

err_t group_reduce(struct parameter_group *g, struct error *e)
{
    size_t bytes = (size_t)g->n_shards * shard_bytes(g);
    void *exchange = NULL, *sum = NULL;
    err_t rc = device_alloc(g->device, bytes, MEMORY_GRADIENTS, g->name, g->comm_stream, &exchange, e);

    /* the padding between chunks is exchanged too: it must hold numbers */
    if (!rc) rc = device_zero(g->device, exchange, bytes, g->comm_stream, e);
    if (!rc) rc = rearrange(g, g->wide_type, g->whole_gradient, exchange, false, e);
    drop_gradients(g); /* now: the main stream waits for the copy alone, not for the other ranks */
    if (!rc) rc = device_alloc(g->device, shard_bytes(g), MEMORY_GRADIENTS, g->name, g->comm_stream, &sum, e);
    if (!rc)
        rc = comm_reduce_scatter(g->shard_comm, g->name, exchange, sum, (size_t)g->shard_elements, g->wide_type,
                                 COMM_SUM, g->comm_stream, e);
    if (!rc) g->k->accumulate(g->kernel, g->shard_elements, sum, g->shard_gradient);
    if (!rc) rc = kernel_context_check(g->kernel, e);
    device_free(g->device, exchange);
    device_free(g->device, sum);
    return rc;
}

void group_abandon(struct parameter_group *g)
{
    if (g->is_copied) group_free(g);
    if (g->n_shards == 1) return;
    drop_gradients(g);
}

err_t group_replicate(struct parameter_group *g, struct error *e)
{
    return comm_all_reduce(g->replicate_comm, g->name, g->shard_gradient, (size_t)g->shard_elements, g->wide_type,
                           COMM_SUM, g->comm_stream, e);
}

err_t group_gradient_zero(struct parameter_group *g, struct error *e)
{
    return device_zero(g->device, g->shard_gradient, shard_bytes(g), NULL, e);
}
