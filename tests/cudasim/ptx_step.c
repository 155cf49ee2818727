/* SPDX-License-Identifier: MIT */
/*
 * One warp: instruction after instruction, until it waits or is done.
 *
 * Lanes that go different ways become groups, each with its place in the code. The group with the lowest place runs;
 * it takes in another one when it comes to its place, which makes structured code meet again where its ways join. Now
 * and then another group gets a turn, for lanes that wait for each other.
 */
#include "ptx.h"

#include <stdio.h>
#include <string.h>

static void park(struct ptx_warp *w, int state)
{
    w->groups[w->n_groups++] = (struct ptx_group){w->pc, w->active, state};
    w->active = 0;
}

static void drop_group(struct ptx_warp *w, int k) { w->groups[k] = w->groups[--w->n_groups]; }

/* The group that is to run next: that of the lowest place, or (is_turn) another one than that, undisturbed. */
static void pick(struct ptx_warp *w, bool is_turn)
{
    uint32_t lowest = PTX_NONE, other = PTX_NONE;
    for (int k = 0; k < w->n_groups; k++)
        if (w->groups[k].state == PTX_READY && w->groups[k].pc < lowest) lowest = w->groups[k].pc;
    for (int k = 0; is_turn && k < w->n_groups; k++)
        if (w->groups[k].state == PTX_READY && w->groups[k].pc != w->pc) other = w->groups[k].pc;
    uint32_t pc = other != PTX_NONE ? other : lowest;
    w->active = 0;
    w->others_pc = PTX_NONE;
    for (int k = 0; k < w->n_groups;) {
        struct ptx_group *g = &w->groups[k];
        if (g->state == PTX_READY && g->pc == pc) {
            w->pc = pc;
            w->active |= g->mask;
            drop_group(w, k);
            continue;
        }
        if (g->state == PTX_READY && other == PTX_NONE && g->pc < w->others_pc) w->others_pc = g->pc;
        k++;
    }
}

/* Takes in the groups that wait where this one is. */
static void absorb(struct ptx_warp *w)
{
    for (int k = 0; k < w->n_groups;) {
        if (w->groups[k].pc == w->pc) {
            w->active |= w->groups[k].mask;
            drop_group(w, k);
        } else
            k++;
    }
}

/* ---- instructions that a set of lanes does together ---- */

/* The lanes of the group that give the same mask as its lane; PTX_NONE as slot: all live ones. */
static uint32_t mask_of(const struct ptx_warp *w, const struct ptx_insn *i, uint32_t lanes, unsigned lane,
                        uint32_t *same)
{
    if (i->slot[3] == PTX_NONE) {
        *same = lanes;
        return w->live;
    }
    const ptx_u32 *masks = PTX_SLOT(w, i, 3);
    uint32_t equal = 0;
    for (unsigned k = 0; k < PTX_LANES; k++) equal |= (uint32_t)(masks[k] == masks[lane]) << k;
    *same = equal & lanes;
    return masks[lane];
}

static bool is_complete(const struct ptx_warp *w, const struct ptx_insn *i, uint32_t lanes)
{
    for (uint32_t left = lanes, same; left; left &= ~same)
        if (mask_of(w, i, left, (unsigned)__builtin_ctz(left), &same) & w->live & ~lanes) return false;
    return true;
}

/* True: done. */
static bool converge(struct ptx_warp *w, const struct ptx_insn *i)
{
    absorb(w);
    if (!is_complete(w, i, w->active)) return false;
    for (uint32_t left = w->active, same; left; left &= ~same) {
        unsigned lane = (unsigned)__builtin_ctz(left);
        uint32_t mask = mask_of(w, i, left, lane, &same);
        if (same & ~mask)
            ptx_report(w, i, (unsigned)__builtin_ctz(same & ~mask), PTX_R_MASK,
                       "the mask 0x%08x does not name the thread itself", mask);
        if (mask & w->started & ~w->live)
            ptx_report(w, i, lane, PTX_R_MASK, "the mask 0x%08x names lanes that have exited: 0x%08x", mask,
                       mask & w->started & ~w->live);
        i->run(w, i, same);
    }
    return true;
}

void ptx_run_warp_sync(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint32_t same;
    ptx_sync_warp(w, mask_of(w, i, mask, (unsigned)__builtin_ctz(mask), &same) & mask);
}

/* __syncwarp need not be the same one for all lanes: those of one mask meet wherever they are. */
static bool meet_apart(struct ptx_warp *w)
{
    const struct ptx_insn *code = w->program->code;
    for (int k = 0; k < w->n_groups; k++) {
        const struct ptx_group *g = &w->groups[k];
        uint32_t same, all = 0;
        if (g->state != PTX_AT_CONVERGE || code[g->pc].run != ptx_run_warp_sync) continue;
        uint32_t mask = mask_of(w, &code[g->pc], g->mask, (unsigned)__builtin_ctz(g->mask), &same);
        bool is_one[PTX_LANES] = {false};
        for (int j = 0; j < w->n_groups; j++) {
            const struct ptx_group *o = &w->groups[j];
            if (o->state != PTX_AT_CONVERGE || code[o->pc].run != ptx_run_warp_sync) continue;
            if (mask_of(w, &code[o->pc], o->mask, (unsigned)__builtin_ctz(o->mask), &same) != mask || same != o->mask)
                continue;
            is_one[j] = true;
            all |= o->mask;
        }
        if (mask & w->live & ~all) continue;
        ptx_sync_warp(w, all);
        for (int j = 0; j < w->n_groups; j++)
            if (is_one[j]) {
                w->groups[j].state = PTX_READY;
                w->groups[j].pc++;
            }
        return true;
    }
    return false;
}

/* ---- when no group can run ---- */

static void stuck(struct ptx_warp *w)
{
    const struct ptx_group *g = &w->groups[0], *o = &w->groups[w->n_groups > 1];
    struct sim_words line = ptx_line(w->program, o->pc);
    const struct ptx_insn *i = &w->program->code[g->pc];
    uint32_t same,
        mask = g->state == PTX_AT_CONVERGE ? mask_of(w, i, g->mask, (unsigned)__builtin_ctz(g->mask), &same) : w->live;
    ptx_die(w, i, (unsigned)__builtin_ctz(g->mask),
            "deadlock in a warp: lanes 0x%08x wait here for lanes 0x%08x, of which 0x%08x wait at %s", g->mask,
            mask & w->live & ~g->mask, o == g ? 0 : o->mask, line.text);
}

/* All groups wait. Returns true when the warp waits at a barrier of the block as a whole, false when one can go on. */
static bool settle(struct ptx_warp *w)
{
    const struct ptx_insn *code = w->program->code;
    bool all_at_barrier = true;
    for (int k = 0; k < w->n_groups; k++) {
        struct ptx_group *g = &w->groups[k];
        all_at_barrier &= g->state == PTX_AT_BARRIER;
        if (g->state == PTX_AT_CONVERGE && is_complete(w, &code[g->pc], g->mask)) {
            g->state = PTX_READY; /* who was missing has exited */
            return false;
        }
    }
    if (meet_apart(w)) return false;
    if (!all_at_barrier) stuck(w);
    const struct ptx_group *g = &w->groups[0];
    for (int k = 1; k < w->n_groups; k++) {
        struct sim_words line = ptx_line(w->program, w->groups[k].pc);
        ptx_report(w, &code[g->pc], (unsigned)__builtin_ctz(g->mask), PTX_R_BARRIER,
                   "divergent barrier: lanes 0x%08x of the warp wait here, lanes 0x%08x at %s", g->mask,
                   w->groups[k].mask, line.text);
    }
    ptx_barrier_arrive(w, &code[g->pc]);
    return true;
}

void ptx_warp_release(struct ptx_warp *w)
{
    w->is_waiting = false;
    for (int k = 0; k < w->n_groups; k++) {
        w->groups[k].state = PTX_READY;
        w->groups[k].pc++;
    }
}

/* ---- the loop ---- */

static void branch(struct ptx_warp *w, uint32_t taken, uint32_t target)
{
    uint32_t not_taken = w->active & ~taken;
    if (!not_taken)
        w->pc = target;
    else if (!taken)
        w->pc++;
    else {
        w->groups[w->n_groups++] = (struct ptx_group){target, taken, PTX_READY};
        w->pc++;
        w->active = not_taken;
        park(w, PTX_READY);
        pick(w, false);
    }
}

/* Each lane goes back to where it was called from. */
static void go_back(struct ptx_warp *w, const struct ptx_insn *i, uint32_t lanes)
{
    const ptx_u32 *targets = PTX_SLOT(w, i, 0);
    uint32_t rest = w->active & ~lanes;
    w->pc++;
    w->active = rest;
    if (rest) park(w, PTX_READY);
    while (lanes) {
        uint32_t target = targets[__builtin_ctz(lanes)], same = 0;
        PTX_EACH(lane, lanes) same |= (uint32_t)(targets[lane] == target) << lane;
        w->groups[w->n_groups++] = (struct ptx_group){target, same, PTX_READY};
        lanes &= ~same;
    }
    pick(w, false);
}

/* Some lanes only (the guard): the others are behind the instruction already. */
static void split_guarded(struct ptx_warp *w, uint32_t lanes)
{
    if (lanes == w->active) return;
    w->groups[w->n_groups++] = (struct ptx_group){w->pc + 1, w->active & ~lanes, PTX_READY};
    if (w->pc + 1 < w->others_pc) w->others_pc = w->pc + 1;
    w->active = lanes;
}

/* False: the warp waits as a whole. */
static bool wait_for_lanes(struct ptx_warp *w, int state)
{
    park(w, state);
    pick(w, false);
    while (!w->active && w->n_groups) {
        if (settle(w)) return false;
        pick(w, false);
    }
    return true;
}

/* What is not plain. False: the warp waits, or is done. */
static bool step(struct ptx_warp *w, const struct ptx_insn *i, uint32_t lanes)
{
    if (i->kind == PTX_BRANCH) {
        branch(w, lanes, i->target);
        return true;
    }
    if (!lanes) {
        w->pc++;
        return true;
    }
    switch (i->kind) {
    case PTX_RETURN: go_back(w, i, lanes); break;
    case PTX_EXIT:
        w->live &= ~lanes;
        w->active &= ~lanes;
        w->pc++;
        if (!w->active) pick(w, false);
        while (!w->active && w->n_groups) {
            if (settle(w)) return false;
            pick(w, false);
        }
        break;
    case PTX_BARRIER:
        split_guarded(w, lanes);
        absorb(w);
        return wait_for_lanes(w, PTX_AT_BARRIER);
    default:
        split_guarded(w, lanes);
        if (!converge(w, i)) return wait_for_lanes(w, PTX_AT_CONVERGE);
        w->pc++;
        break;
    }
    return w->active;
}

/* The lanes that the predicate before an instruction lets pass. */
static inline uint32_t guarded(const struct ptx_warp *w, const struct ptx_insn *i)
{
    if (i->guard == PTX_NONE) return PTX_ALL;
    uint32_t p = *(const ptx_u32 *)(w->registers + i->guard);
    return i->guard_is_negated ? ~p : p;
}

void ptx_warp_run(struct ptx_warp *w, uint64_t quantum)
{
    const struct ptx_insn *code = w->program->code;
    uint64_t end = w->instructions + quantum, n = w->instructions;
    if (w->active && w->n_groups) park(w, PTX_READY);
    if (w->n_groups) pick(w, w->wants_turn);
    w->wants_turn = false;
    while (w->active) {
        uint32_t pc = w->pc, active = w->active, others_pc = w->others_pc;
        const struct ptx_insn *i = &code[pc];
        for (; pc < others_pc && n < end && i->kind == PTX_PLAIN; pc++, n++, i++) {
            uint32_t lanes = active & guarded(w, i);
            if (lanes) i->run(w, i, lanes);
        }
        w->pc = pc;
        if (pc >= others_pc) {
            park(w, PTX_READY);
            pick(w, false);
        } else if (n >= end) {
            w->wants_turn = w->n_groups > 0;
            break;
        } else {
            n++;
            if (!step(w, i, active & guarded(w, i))) break;
        }
    }
    w->instructions = n;
    w->is_done = !w->live;
    if (n > w->budget)
        ptx_die(w, &code[w->pc], w->active ? (unsigned)__builtin_ctz(w->active) : 0,
                "endless loop? The warp ran %llu instructions, more than CUDASIM_BUDGET", (unsigned long long)n);
}
