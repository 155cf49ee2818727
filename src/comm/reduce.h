/* SPDX-License-Identifier: MIT */
/*
 * The one place where values of several ranks are combined: in rank order, element by element, in the element
 * type. Every backend calls it, which is why threads, processes and hosts give the same bits.
 */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/comm.h"

bool reduce_has_type(enum dtype type); /* float32, float64, int64 */

/* out[i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) op ... for n >= 1 sources. out may be one of
 * the sources, else they do not overlap. int64 sums wrap around. */
void reduce_in_order(void *out, const void *const *sources, int n, size_t count, enum dtype type,
                     enum comm_operator op);

#endif
