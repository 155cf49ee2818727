/* SPDX-License-Identifier: MIT */
/* Rows for tests of sinks. */
#ifndef SUPPORT_ROWS_H
#define SUPPORT_ROWS_H

#include "metrics/metrics.h"

struct metric_row row_at(int64_t step);   /* of the run "abcd1234", without values */
struct metric_row row_full(int64_t step); /* every metric but the validation's: value = step + 0.25 * id */

#endif
