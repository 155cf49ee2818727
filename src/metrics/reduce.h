/* SPDX-License-Identifier: MIT */
/*
 * Combines the ranks' rows by the reducers of metrics.def with two collectives: one sum, one maximum. Private
 * to metrics/.
 *
 * "Which rank has the largest" rides in the maximum: the value, rounded down to a unit, in the high 33 bits
 * of an integer below 2^53 (exact in a double), and 2^20 - 1 - rank in the low 20; among equals the lowest
 * rank.
 */
#ifndef METRICS_REDUCE_H
#define METRICS_REDUCE_H

#include "metrics/metrics.h"

/* Beside the row: this rank's values in, the world's out. */
struct reduction {
    double loss_sum, n_valid; /* sums */
    double seconds;           /* mean */
    double energy_j;          /* sum; NAN where a rank does not know its own */
    double work_s;            /* in only: own work per step */
    double reserved_bytes;    /* in only */

    int world_size;        /* out */
    int slowest_rank;      /* out: most work; units of a microsecond */
    int memory_rank;       /* out: most reserved bytes; units of a KiB */
    double spread_percent; /* out: 100 * (most - least work) / most */
};

/* Collective. A metric that some rank has is in out on every rank; a NaN of any rank makes its maximum NaN.
 */
err_t reduce_rows(struct comm *world, const char *name, const struct metric_row *own, struct metric_row *out,
                  struct reduction *r, struct error *e) MUST_CHECK;

/* The integer described above. unit: of value, e.g. 1e-6 for seconds counted in microseconds. */
double reduce_key(double value, double unit, int rank);
int reduce_key_rank(double key);

#endif
