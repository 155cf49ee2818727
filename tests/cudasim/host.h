/* SPDX-License-Identifier: MIT */
/*
 * Pinned memory of the host. A block from cudaHostAlloc lies on pages of its own, filled with 0xff, with an
 * unreadable page behind it; a freed one stays unreadable. A copy that is still to run knows what its host side
 * looked like when it was issued: a change before it ran is a report.
 */
#ifndef CUDASIM_HOST_H
#define CUDASIM_HOST_H

#include "sim.h"

void *host_allocate(uint64_t bytes);         /* NULL: none left */
bool host_release(void *p);                  /* false: not the start of such a block */
bool host_register(void *p, uint64_t bytes); /* false: overlaps a known range */
bool host_unregister(void *p);
bool host_is_pinned(const void *p, uint64_t bytes);         /* all of it */
bool host_where(uint64_t address, struct sim_words *words); /* false: not near such a block */
uint64_t host_bytes(const void *p);                         /* of the block that begins at p; 0: none */
void host_leaks(void);
/* How often the device wrote into the block that holds p; says that it did once more. */
uint64_t host_device_writes(const void *p);
void host_device_wrote(const void *p);
/* Of memory of any kind, to see whether it changed; before: the hash of what lies before, 0 at first. */
uint64_t host_hash(uint64_t before, const void *p, uint64_t bytes);

#endif
