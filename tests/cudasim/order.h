/* SPDX-License-Identifier: MIT */
/*
 * Is the work on the same bytes ordered? Every operation that runs gets a position in its stream and a clock: for each
 * stream, up to which position all is known to be done before it (its own stream, events waited for, what the host had
 * waited for when it issued it). For each granule of device memory the last write and the last two reads are kept; an
 * access that conflicts with one of them which its clock does not cover is a "stream hazard", whatever the values are.
 */
#ifndef CUDASIM_ORDER_H
#define CUDASIM_ORDER_H

#include "sim.h"

struct order_clock {
    uint64_t at[SIM_STREAMS];
};
void order_start(void);
void order_join(struct order_clock *into, const struct order_clock *from);
/* Begins an operation: the clock already counts the operation itself in its own stream. The name is copied. */
struct sim_access order_begin(const char *name, int stream, const struct order_clock *clock);
/* The name of an operation that used the bytes and that the clock does not cover; NULL: none. */
const char *order_user(uint64_t address, uint64_t bytes, const struct order_clock *clock);
void order_forget(uint64_t address, uint64_t bytes); /* the block was freed */

#endif
