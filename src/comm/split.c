/* SPDX-License-Identifier: MIT */
/* Sorting by insertion: groups come nearly sorted, because callers number them in rank order. */
#include "comm/split.h"

int split_members(const struct split_choice *choices, int size, int64_t colour, int *members)
{
    int n = 0;

    for (int rank = 0; rank < size; rank++) {
        int at = n;

        if (choices[rank].colour != colour) continue;
        for (; at > 0 && choices[members[at - 1]].key > choices[rank].key; at--) members[at] = members[at - 1];
        members[at] = rank;
        n++;
    }
    return n;
}
