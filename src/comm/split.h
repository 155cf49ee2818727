/* SPDX-License-Identifier: MIT */
/* Who belongs together after a split: the part of it that does not depend on the backend. */
#ifndef COMM_SPLIT_H
#define COMM_SPLIT_H

#include <stdint.h>

struct split_choice { /* what one rank passed to comm_split; two int64 when ranks exchange them */
    int64_t colour, key;
};

/* members: room for size ranks; gets the ranks that chose colour, ordered by (key, rank). Returns how many.
 */
int split_members(const struct split_choice *choices, int size, int64_t colour, int *members);

#endif
