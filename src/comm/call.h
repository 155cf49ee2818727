/* SPDX-License-Identifier: MIT */
/*
 * What a rank is calling, packed into a few words that can be compared, sent and printed: how ranks notice
 * that they are not making the same call, and how reports say what a rank did last.
 */
#ifndef COMM_CALL_H
#define COMM_CALL_H

#include <stdint.h>

#include "base/str.h"
#include "comm/comm.h"

#define COMM_CALLS(X)                                                                                                  \
    X(CALL_NONE, "nothing")                                                                                            \
    X(CALL_BARRIER, "barrier")                                                                                         \
    X(CALL_ALL_GATHER, "all_gather")                                                                                   \
    X(CALL_REDUCE_SCATTER, "reduce_scatter")                                                                           \
    X(CALL_ALL_REDUCE, "all_reduce")                                                                                   \
    X(CALL_BROADCAST, "broadcast")

enum call_kind {
#define X(id, name) id,
    COMM_CALLS(X)
#undef X
        CALL_KIND_COUNT
};
const char *call_kind_name(enum call_kind kind);

enum { CALL_WORDS = 12, CALL_NAME_BYTES = 64 };

struct call {
    enum call_kind kind;
    enum dtype type; /* where the kind has one */
    enum comm_operator op;
    int root;
    uint64_t count;    /* elements, as in comm.h; bytes of a broadcast */
    uint64_t sequence; /* n-th call on its communicator, from 1 */
    const char *name;  /* cut to CALL_NAME_BYTES - 1 */
};

/* words[0] = kind, type, operator, root; [1] = count; [2] = sequence; [3] = unused; the rest is the name. */
void call_pack(const struct call *call, uint64_t words[CALL_WORDS]);

/* all_reduce "gradient norm" (sum of 10 float32) */
void call_print(struct str *out, const uint64_t words[CALL_WORDS]);

#endif
