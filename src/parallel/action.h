/* SPDX-License-Identifier: MIT */
/*
 * Schedules as data: what one rank does in a step (or a validation batch) is a list of actions, made by pure functions
 * and run by one executor. Pipeline schedules, FSDP and recomputation are all either makers of such lists or passes
 * over them.
 */
#ifndef PARALLEL_ACTION_H
#define PARALLEL_ACTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

/* Compute actions name a unit, communication actions a group of parameters. */
#define ACTION_KINDS(X)                                                                                                \
    X(ACTION_FORWARD, "F")                                                                                             \
    X(ACTION_BACKWARD_INPUT, "I")                                                                                      \
    X(ACTION_BACKWARD_WEIGHT, "W")                                                                                     \
    X(ACTION_GATHER, "gather")       /* start to collect the whole parameters of a group, in the compute type */       \
    X(ACTION_FREE, "free")           /* keep only this rank's rows */                                                  \
    X(ACTION_REDUCE, "reduce")       /* reduce-scatter the gradients of a microbatch over dp_shard */                  \
    X(ACTION_REPLICATE, "replicate") /* all-reduce the sharded gradients of the step over dp_replicate */

enum action_kind {
#define X(id, name) id,
    ACTION_KINDS(X)
#undef X
};

struct action {
    enum action_kind kind;
    int index; /* of the unit or the group */
    int microbatch;
};

struct action_list {
    struct action *items; /* owned */
    int n, capacity;
};

err_t action_list_add(struct action_list *l, enum action_kind kind, int index, int microbatch,
                      struct error *e) MUST_CHECK;
void action_list_release(struct action_list *l);
void action_list_print(const struct action_list *l, struct str *out); /* "gather0 gather1 F0.0 ..." */

/* ---- schedules: compute actions of one rank ---- */
/* One stage: every microbatch goes forward through all units and at once back (gradient accumulation). */
err_t schedule_sequential(struct action_list *out, int n_units, int n_microbatches, struct error *e) MUST_CHECK;
/* Forward only, for validation and sampling. */
err_t schedule_forward(struct action_list *out, int n_units, int n_microbatches, struct error *e) MUST_CHECK;

/* ---- passes ---- */
enum reshard_policy { RESHARD_DEFAULT, RESHARD_ALWAYS, RESHARD_NEVER };

struct fsdp_facts {
    const int *group_of_unit; /* [n_units] */
    int n_units, n_groups;
    int n_shards, n_replicas;
    bool casts; /* whole parameters are of another type than shards */
    enum reshard_policy reshard;
};

/*
 * Inserts the communication of fully sharded data parallelism (Rajbhandari et al. 2020, stage 3; FSDP2's rules) into
 * compute actions:
 *   gather     before the first use of a group, one unit ahead of it;
 *   free       after forward, by policy (default: all but the last unit's group, whose backward follows at once;
 *              always; never), and after the backward pass of a microbatch; under no policy when the group would be
 *              gathered again before anything else runs;
 *   reduce     after the last weight gradient of a group in each microbatch;
 *   replicate  after the last reduce of the step.
 * With one shard there is nothing to reduce, and nothing to gather and free unless parameters are cast; with one
 * replica nothing to replicate.
 */
err_t fsdp_pass(struct action_list *out, const struct action_list *compute, const struct fsdp_facts *facts,
                struct error *e) MUST_CHECK;

#endif
