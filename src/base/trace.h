/* SPDX-License-Identifier: MIT */
/*
 * Where the time of a rank goes. Lower layers measure through this; train/ drains it, reduces it over ranks and
 * publishes it.
 *
 * One struct trace per rank, used by the rank's training thread alone. Phases nest: time inside an inner phase is
 * counted for the inner phase only, so the totals of all phases never count a nanosecond twice.
 */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

#include <stdint.h>

#define TRACE_PHASES(X)                                                                                                \
    X(TRACE_OTHER, "other")                                                                                            \
    X(TRACE_SETUP, "setup")                                                                                            \
    X(TRACE_DATA, "data_loading")                                                                                      \
    X(TRACE_FORWARD, "forward")                                                                                        \
    X(TRACE_BACKWARD, "backward")                                                                                      \
    X(TRACE_COMMUNICATION, "communication_exposed")                                                                    \
    X(TRACE_OPTIMIZER, "optimizer")                                                                                    \
    X(TRACE_CHECKPOINT, "checkpoint")                                                                                  \
    X(TRACE_VALIDATION, "validation")                                                                                  \
    X(TRACE_PROFILE, "profile")                                                                                        \
    X(TRACE_SINKS, "sinks")

enum trace_phase {
#define X(id, name) id,
    TRACE_PHASES(X)
#undef X
        TRACE_PHASE_COUNT
};
const char *trace_phase_name(enum trace_phase phase);

enum { TRACE_MAX_DEPTH = 16 };

struct trace {
    int64_t total_ns[TRACE_PHASE_COUNT]; /* since trace_init or the last trace_drain */
    enum trace_phase stack[TRACE_MAX_DEPTH];
    int depth;        /* stack[depth-1] is running; TRACE_OTHER at the bottom */
    int64_t since_ns; /* when the running phase last started to count */
};

void trace_init(struct trace *t);
void trace_begin(struct trace *t, enum trace_phase phase); /* t NULL: nothing */
void trace_end(struct trace *t);
void trace_drain(struct trace *t,
                 int64_t out_ns[TRACE_PHASE_COUNT]); /* moves the totals out; running phases go on counting */

#endif
