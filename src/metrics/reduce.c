/* SPDX-License-Identifier: MIT */
/* One collective per operator; see reduce.h. */
#include "metrics/reduce.h"

#include <math.h>

#include "comm/comm.h"

enum { KEY_RANKS = 1 << 20 };
#define KEY_LARGEST 8589934591.0 /* 2^33 - 1 units */

/* Places behind the metrics' own in the two buffers. */
enum { SUM_LOSS = METRIC_COUNT, SUM_VALID, SUM_SECONDS, SUM_ENERGY, N_SUM };
enum { MAX_WORK_KEY = METRIC_COUNT, MAX_MEMORY_KEY, MAX_WORK, MAX_MINUS_WORK, N_MAX };

double reduce_key(double value, double unit, int rank)
{
    double units = floor(value / unit);

    if (!(units > 0)) units = 0;
    if (units > KEY_LARGEST) units = KEY_LARGEST;
    return units * KEY_RANKS + (KEY_RANKS - 1 - rank % KEY_RANKS);
}

int reduce_key_rank(double key) { return KEY_RANKS - 1 - (int)((int64_t)key % KEY_RANKS); }

static void pack(double sum[N_SUM], double max[N_MAX], const struct metric_row *own, const struct reduction *r,
                 int rank)
{
    for (int i = 0; i < N_SUM; i++) sum[i] = 0;
    for (int i = 0; i < N_MAX; i++) max[i] = -INFINITY;
    for (int i = 0; i < METRIC_COUNT; i++) {
        enum metric_reducer reducer = metric_table[i].reducer;
        double value = own->value[i];

        if (!metric_row_has(own, i)) continue;
        if (reducer == METRIC_SUM || reducer == METRIC_MEAN) sum[i] = value;
        if (reducer == METRIC_MAX) max[i] = value;
        if (reducer == METRIC_MIN) max[i] = -value;
    }
    sum[SUM_LOSS] = r->loss_sum;
    sum[SUM_VALID] = r->n_valid;
    sum[SUM_SECONDS] = r->seconds;
    sum[SUM_ENERGY] = r->energy_j;
    max[MAX_WORK_KEY] = reduce_key(r->work_s, 1e-6, rank);
    max[MAX_MEMORY_KEY] = reduce_key(r->reserved_bytes, 1024, rank);
    max[MAX_WORK] = r->work_s;
    max[MAX_MINUS_WORK] = -r->work_s;
}

static void unpack(const double sum[N_SUM], const double max[N_MAX], struct metric_row *out, struct reduction *r)
{
    for (int i = 0; i < METRIC_COUNT; i++) {
        enum metric_reducer reducer = metric_table[i].reducer;

        if (reducer == METRIC_SUM && metric_row_has(out, i)) out->value[i] = sum[i];
        if (reducer == METRIC_MEAN && metric_row_has(out, i)) out->value[i] = sum[i] / r->world_size;
        if (reducer == METRIC_MAX && max[i] != -INFINITY) metric_row_set(out, i, max[i]);
        if (reducer == METRIC_MIN && max[i] != -INFINITY) metric_row_set(out, i, -max[i]);
    }
    r->loss_sum = sum[SUM_LOSS];
    r->n_valid = sum[SUM_VALID];
    r->seconds = sum[SUM_SECONDS] / r->world_size;
    r->energy_j = sum[SUM_ENERGY];
    r->slowest_rank = reduce_key_rank(max[MAX_WORK_KEY]);
    r->memory_rank = reduce_key_rank(max[MAX_MEMORY_KEY]);
    r->spread_percent = max[MAX_WORK] > 0 ? 100 * (max[MAX_WORK] + max[MAX_MINUS_WORK]) / max[MAX_WORK] : 0;
}

err_t reduce_rows(struct comm *world, const char *name, const struct metric_row *own, struct metric_row *out,
                  struct reduction *r, struct error *e)
{
    double sum[N_SUM], max[N_MAX];
    err_t rc;

    *out = *own;
    pack(sum, max, own, r, world ? world->rank : 0);
    r->world_size = world ? world->size : 1;
    if (world) {
        rc = comm_all_reduce(world, name, sum, N_SUM, DTYPE_FLOAT64, COMM_SUM, NULL, e);
        if (rc) return rc;
        rc = comm_all_reduce(world, name, max, N_MAX, DTYPE_FLOAT64, COMM_MAX, NULL, e);
        if (rc) return rc;
    }
    unpack(sum, max, out, r);
    return ERR_NONE;
}
