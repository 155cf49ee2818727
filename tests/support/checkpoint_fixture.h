/* SPDX-License-Identifier: MIT */
/* A small "model" with every awkward shape a checkpoint must carry, whose values follow from (version,
 * tensor, element): so a rank of any mesh knows what its rows must be. */
#ifndef SUPPORT_CHECKPOINT_FIXTURE_H
#define SUPPORT_CHECKPOINT_FIXTURE_H

#include <stdbool.h>

#include "checkpoint/load.h"
#include "checkpoint/save.h"

enum { FIXTURE_TENSORS = 9, FIXTURE_BYTES = 4096 };

struct fixture {
    struct checkpoint_tensor tensors[FIXTURE_TENSORS];
    _Alignas(16) unsigned char data[FIXTURE_TENSORS][FIXTURE_BYTES];
};

/* The rows of shard `index` of n, with the values of `version`; version < 0: filled with 0xee. */
void fixture_make(struct fixture *f, int index, int n, int version);
bool fixture_equals(const struct fixture *f, int version);

/* A spec that saves f as step `step` of run "aaaa1111" into folder. */
struct checkpoint_spec fixture_spec(const struct fixture *f, const char *folder, int64_t step);
struct checkpoint_state fixture_state(int64_t step);

#endif
