/* SPDX-License-Identifier: MIT */
/* The memory that a rank will need, before it takes any: its own set-up and step, on a device that only counts. */
#include "base/mem.h"
#include "comm/fake.h"
#include "device/dry.h"
#include "train/trainer.h"

static const double MiB = 0x1p20;

static err_t run_dry(struct trainer *dry, struct error *e)
{
    struct microbatch m = {.sequences = dry->cfg->training.local_batch_size, .length = dry->cfg->training.seq_len};
    struct microbatch v = {.sequences = dry->cfg->validation.local_batch_size, .length = dry->cfg->validation.seq_len};
    err_t rc;

    for (int i = 0; i < dry->n_microbatches; i++) dry->microbatches[i] = m;
    rc = executor_train(&dry->executor, dry->microbatches, 1.0, e);
    if (!rc) rc = optimizer_gradient_norm(&dry->optimizer, dry->mesh.device_axis[AXIS_DP_SHARD], 1.0, e);
    if (!rc) rc = optimizer_step(&dry->optimizer, 0.0, e);
    if (!rc && dry->cfg->validation.enable) rc = executor_validate(&dry->executor, &v, e);
    return rc;
}

/* The rows of the table: forecast, and what was measured if that is given. */
static void add_table(struct str *out, const struct memory_stats *forecast, const struct memory_stats *measured)
{
    for (int k = 0; k < MEMORY_KIND_COUNT; k++) {
        if (!forecast->kind_highest_bytes[k]) continue;
        str_addf(out, "\n  %-18s %10.1f", memory_kind_name((enum memory_kind)k),
                 (double)forecast->kind_highest_bytes[k] / MiB);
        if (measured) str_addf(out, " %10.1f", (double)measured->kind_highest_bytes[k] / MiB);
    }
    str_addf(out, "\n  %-18s %10.1f", "together at most", (double)forecast->active_highest_bytes / MiB);
    if (measured) str_addf(out, " %10.1f", (double)measured->active_highest_bytes / MiB);
    str_addf(out, "\n  %-18s %10.1f", "reserved", (double)forecast->reserved_highest_bytes / MiB);
    if (measured) str_addf(out, " %10.1f", (double)measured->reserved_highest_bytes / MiB);
}

/* Refuses what cannot fit, with the table of who needs what. */
static err_t check_limit(struct trainer *t, struct error *e)
{
    int64_t machine = t->device->properties.memory_bytes, wanted = (int64_t)(t->cfg->device.memory_limit_gib * 0x1p30);
    bool is_wanted = wanted > 0 && (machine <= 0 || wanted < machine);
    int64_t limit = is_wanted ? wanted : machine;
    struct str table = {0};

    if (limit <= 0 || t->forecast.active_highest_bytes <= limit) return ERR_NONE;
    add_table(&table, &t->forecast, NULL);
    FAIL(e, ERR_MEMORY,
         "a rank would need %.1f MiB, but has %.1f MiB (%s). In MiB, each at its highest:%s\n"
         "  Use a smaller training.local_batch_size or training.seq_len, or a larger "
         "parallelism.data_parallel_shard_degree",
         (double)t->forecast.active_highest_bytes / MiB, (double)limit / MiB,
         is_wanted ? "device.memory_limit_gib" : "the memory of this machine divided by its ranks", str_text(&table));
    str_release(&table);
    return ERR_MEMORY;
}

err_t trainer_forecast_memory(struct trainer *t, const struct model_spec *model, struct error *e)
{
    struct trainer *dry = mem_zalloc(1, sizeof *dry);
    struct kernels nothing = kernels_dry(t->kernels);
    struct comm *world = NULL;
    err_t rc;

    if (!dry) return FAIL(e, ERR_MEMORY, "out of memory while planning");
    *dry = (struct trainer){
        .spec = t->spec, .cfg = t->cfg, .kernels = &nothing, .type = t->type, .n_microbatches = t->n_microbatches};
    dry->spec.world = NULL;
    trace_init(&dry->trace);
    dry->microbatches = mem_zalloc((size_t)t->n_microbatches, sizeof *dry->microbatches);
    rc = dry->microbatches ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory for %d microbatches", t->n_microbatches);
    if (!rc) rc = comm_dry_create(t->mesh.world->size, t->mesh.world->rank, &world, e);
    dry->spec.world = world;
    if (!rc) rc = trainer_open_mesh(dry, e);
    if (!rc) rc = device_dry_open(&dry->device, &t->device->properties, 0, e);
    if (!rc) rc = trainer_open_model(dry, model, e);
    if (!rc) rc = trainer_open_optimizer(dry, e);
    if (!rc) rc = run_dry(dry, e);
    if (dry->device) device_memory_stats(dry->device, &t->forecast);
    trainer_close(dry);
    comm_destroy(world);
    mem_free(dry);
    return rc ? rc : check_limit(t, e);
}

void trainer_compare_memory(struct trainer *t)
{
    struct memory_stats measured;
    struct str table = {0};

    device_memory_stats(t->device, &measured);
    str_addf(&table, "memory of this rank, MiB: forecast, measured (the process is at most %.1f MiB resident)",
             (double)sensor_resident_peak_bytes() / MiB);
    add_table(&table, &t->forecast, &measured);
    log_info(t->spec.log, "%s", str_text(&table));
    str_release(&table);
}
