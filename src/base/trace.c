/* SPDX-License-Identifier: MIT */
/* Phase accounting; see trace.h. */
#include "base/trace.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"

const char *trace_phase_name(enum trace_phase phase)
{
    static const char *const names[] = {
#define X(id, name) [id] = name,
        TRACE_PHASES(X)
#undef X
    };
    return names[phase];
}

void trace_init(struct trace *t)
{
    *t = (struct trace){.depth = 1, .since_ns = clock_ns()};
    t->stack[0] = TRACE_OTHER;
}

static void settle(struct trace *t)
{
    int64_t now = clock_ns();

    t->total_ns[t->stack[t->depth - 1]] += now - t->since_ns;
    t->since_ns = now;
}

void trace_begin(struct trace *t, enum trace_phase phase)
{
    if (!t) return;
    BUG_ON(t->depth >= TRACE_MAX_DEPTH);
    settle(t);
    t->stack[t->depth++] = phase;
}

void trace_end(struct trace *t)
{
    if (!t) return;
    BUG_ON(t->depth <= 1);
    settle(t);
    t->depth--;
}

void trace_drain(struct trace *t, int64_t out_ns[TRACE_PHASE_COUNT])
{
    settle(t);
    memcpy(out_ns, t->total_ns, sizeof t->total_ns);
    memset(t->total_ns, 0, sizeof t->total_ns);
}
