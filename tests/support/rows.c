/* SPDX-License-Identifier: MIT */
/* Rows for tests of sinks; see rows.h. */
#include "tests/support/rows.h"

struct metric_row row_at(int64_t step)
{
    return (struct metric_row){.run = "abcd1234", .step = step, .wall_s = 1767225600.125 + (double)step};
}

struct metric_row row_full(int64_t step)
{
    struct metric_row row = row_at(step);

    for (int i = 0; i < METRIC_VALIDATION_LOSS; i++) metric_row_set(&row, i, (double)step + 0.25 * i);
    return row;
}
