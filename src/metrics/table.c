/* SPDX-License-Identifier: MIT */
/* metrics.def as an array; see metrics.h. */
#include "metrics/metrics.h"

#define SUM METRIC_SUM
#define MEAN METRIC_MEAN
#define MAX METRIC_MAX
#define MIN METRIC_MIN
#define LAST METRIC_LAST
#define DERIVED METRIC_DERIVED
#define PUBLIC METRIC_PUBLIC
#define INTERNAL METRIC_INTERNAL
#define REAL METRIC_REAL
#define INTEGER METRIC_INTEGER

const struct metric_info metric_table[METRIC_COUNT] = {
#define METRIC(id, tag, unit, reducer, sensitivity, number, format, help)                                              \
    [id] = {tag, unit, reducer, sensitivity, number, format, help},
#include "metrics/metrics.def"
#undef METRIC
};
