/* SPDX-License-Identifier: MIT */
/* What lanes of a warp do together, and barriers of the block: shfl, vote, match, redux, elect, bar. */
#include "ptx.h"

#include <string.h>

/* No segments: the last operand of shfl is 31 for each lane. */
static bool is_whole_warp(const ptx_u32 *clamp)
{
    uint32_t wrong = 0;
    for (unsigned lane = 0; lane < PTX_LANES; lane++) wrong |= clamp[lane] ^ 31;
    return !wrong;
}

/* slot 0: destination, 1: value, 2: lane, 3: mask; list: clamp, predicate; mode: i u d b. */
static void run_shfl(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint32_t source[PTX_LANES], in_range = 0;
    const ptx_u32 *b = PTX_SLOT(w, i, 2), *c = (const void *)(w->registers + i->list[0]);
    ptx_u32 *to = i->slot[0] == PTX_NONE ? NULL : PTX_SLOT(w, i, 0);
    memcpy(source, PTX_SLOT(w, i, 1), sizeof source);
    if (mask == PTX_ALL && i->mode == 'b' && to && is_whole_warp(c)) { /* what reductions do */
        for (unsigned lane = 0; lane < PTX_LANES; lane++) to[lane] = source[(lane ^ b[lane]) & 31];
        if (i->list[1] != PTX_NONE) *(ptx_u32 *)(w->registers + i->list[1]) = PTX_ALL;
        return;
    }
    PTX_EACH(lane, mask)
    {
        unsigned segment = c[lane] >> 8 & 31, clamp = c[lane] & 31, step = b[lane] & 31;
        unsigned least = lane & segment, most = least | (clamp & ~segment);
        int from;
        bool is_inside;
        if (i->mode == 'b') {
            from = (int)(lane ^ step);
            is_inside = from <= (int)most;
        } else if (i->mode == 'd') {
            from = (int)(lane + step);
            is_inside = from <= (int)most;
        } else if (i->mode == 'u') {
            from = (int)lane - (int)step;
            is_inside = from >= (int)most;
        } else {
            from = (int)(least | (step & ~segment));
            is_inside = from <= (int)most;
        }
        if (!is_inside) from = (int)lane;
        if (!(mask >> from & 1))
            ptx_report(w, i, lane, PTX_R_MASK, "shfl reads lane %d, which is not among the lanes here: 0x%08x", from,
                       mask);
        if (to) to[lane] = source[from & 31];
        in_range |= (uint32_t)is_inside << lane;
    }
    if (i->list[1] != PTX_NONE) {
        ptx_u32 *p = (void *)(w->registers + i->list[1]);
        *p = (*p & ~mask) | in_range;
    }
}

static void put_predicate(struct ptx_warp *w, uint32_t slot, uint32_t mask, bool value)
{
    ptx_u32 *p = (void *)(w->registers + slot);
    *p = value ? *p | mask : *p & ~mask;
}

/* slot 0: destination, 1: predicate; mode: a(ll), A(ny), u(niform), b(allot). */
static void run_vote(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint32_t votes = *(ptx_u32 *)PTX_SLOT(w, i, 1) & mask;
    if (i->mode == 'b') {
        PTX_EACH(lane, mask)((ptx_u32 *)PTX_SLOT(w, i, 0))[lane] = votes;
        return;
    }
    put_predicate(w, i->slot[0], mask,
                  i->mode == 'a'   ? votes == mask
                  : i->mode == 'A' ? votes
                                   : votes == mask || !votes);
}

static void run_match(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint32_t equal[PTX_LANES] = {0}, first = (uint32_t)__builtin_ctz(mask);
    PTX_EACH(lane, mask)
    {
        for (unsigned other = 0; other < PTX_LANES; other++)
            if (mask >> other & 1 && ptx_get(w, i->slot[1], i->bytes, lane) == ptx_get(w, i->slot[1], i->bytes, other))
                equal[lane] |= 1u << other;
    }
    bool is_all = equal[first] == mask;
    PTX_EACH(to, mask)((ptx_u32 *)PTX_SLOT(w, i, 0))[to] = i->mode == 'l' ? (is_all ? mask : 0) : equal[to];
    if (i->slot[2] != PTX_NONE) put_predicate(w, i->slot[2], mask, is_all);
}

/* mode: + m(in) M(ax) & | ^; flags: with sign. */
static void run_redux(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    const ptx_u32 *a = PTX_SLOT(w, i, 1);
    uint32_t r = a[__builtin_ctz(mask)];
    PTX_EACH(lane, mask & (mask - 1))
    {
        uint32_t x = a[lane];
        bool is_less = i->flags ? (int32_t)x < (int32_t)r : x < r;
        switch (i->mode) {
        case '+': r += x; break;
        case 'm': r = is_less ? x : r; break;
        case 'M': r = is_less ? r : x; break;
        case '&': r &= x; break;
        case '|': r |= x; break;
        default: r ^= x; break;
        }
    }
    PTX_EACH(to, mask)((ptx_u32 *)PTX_SLOT(w, i, 0))[to] = r;
}

static void run_activemask(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    PTX_EACH(lane, mask)((ptx_u32 *)PTX_SLOT(w, i, 0))[lane] = mask;
}

static void run_elect(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint32_t chosen = (uint32_t)__builtin_ctz(mask);
    if (i->slot[0] != PTX_NONE) PTX_EACH(lane, mask)((ptx_u32 *)PTX_SLOT(w, i, 0))[lane] = chosen;
    put_predicate(w, i->slot[1], mask, false);
    put_predicate(w, i->slot[1], 1u << chosen, true);
}

/* ---- decoding ---- */

/* "d|p" of which either may be _ or missing. */
static bool destination(struct ptx_decoder *d, const struct ptx_operand *o, uint32_t *first, unsigned bytes,
                        uint32_t *second)
{
    struct ptx_operand one = *o;
    one.second.n = 0;
    if (o->kind != PTX_O_WORD) return false;
    if (!ptx_word_is(o->word, "_") && !ptx_slots(d, &one, bytes, 'i', first, 1)) return false;
    return !o->second.n || ptx_word_is(o->second, "_") || ptx_source(d, o->second, 0, 'p', second);
}

static bool decode_shfl(struct ptx_decoder *d, const struct ptx_statement *s, struct ptx_insn *i)
{
    uint32_t *list = ptx_alloc(d->module, 2 * sizeof *list);
    i->mode = ptx_has(s, "idx")    ? 'i'
              : ptx_has(s, "up")   ? 'u'
              : ptx_has(s, "down") ? 'd'
              : ptx_has(s, "bfly") ? 'b'
                                   : 0;
    list[1] = PTX_NONE;
    if (!i->mode || s->n != 5 || !destination(d, &s->o[0], &i->slot[0], 4, &list[1])) return false;
    if (!ptx_slots(d, &s->o[1], 4, 'i', &i->slot[1], 1) || !ptx_slots(d, &s->o[2], 4, 'i', &i->slot[2], 1) ||
        !ptx_slots(d, &s->o[3], 4, 'i', &list[0], 1) || !ptx_slots(d, &s->o[4], 4, 'i', &i->slot[3], 1))
        return false;
    i->list = list;
    i->run = run_shfl;
    return true;
}

static bool decode_vote(struct ptx_decoder *d, const struct ptx_statement *s, struct ptx_insn *i)
{
    i->mode = ptx_has(s, "all")      ? 'a'
              : ptx_has(s, "any")    ? 'A'
              : ptx_has(s, "uni")    ? 'u'
              : ptx_has(s, "ballot") ? 'b'
                                     : 0;
    i->run = run_vote;
    return i->mode && s->n == 3 && ptx_slots(d, &s->o[0], i->mode == 'b' ? 4 : 0, 'i', &i->slot[0], 1) &&
           ptx_slots(d, &s->o[1], 0, 'p', &i->slot[1], 1) && ptx_slots(d, &s->o[2], 4, 'i', &i->slot[3], 1);
}

static bool decode_match(struct ptx_decoder *d, const struct ptx_statement *s, struct ptx_insn *i)
{
    i->mode = ptx_has(s, "all") ? 'l' : ptx_has(s, "any") ? 'n' : 0;
    i->bytes = (uint8_t)ptx_type_bytes(ptx_last(s));
    i->run = run_match;
    return i->mode && s->n == 3 && i->bytes >= 4 && i->bytes <= 8 &&
           destination(d, &s->o[0], &i->slot[0], 4, &i->slot[2]) && i->slot[0] != PTX_NONE &&
           ptx_slots(d, &s->o[1], i->bytes, 'i', &i->slot[1], 1) && ptx_slots(d, &s->o[2], 4, 'i', &i->slot[3], 1);
}

static bool decode_redux(struct ptx_decoder *d, const struct ptx_statement *s, struct ptx_insn *i)
{
    static const struct {
        const char *name;
        char mode;
    } modes[] = {{"add", '+'}, {"min", 'm'}, {"max", 'M'}, {"and", '&'}, {"or", '|'}, {"xor", '^'}};
    for (size_t k = 0; k < sizeof modes / sizeof *modes; k++)
        if (ptx_has(s, modes[k].name)) i->mode = (uint8_t)modes[k].mode;
    i->flags = ptx_has(s, "s32");
    i->run = run_redux;
    bool is_whole = ptx_has(s, "s32") || ptx_has(s, "u32") || ptx_has(s, "b32");
    return i->mode && is_whole && s->n == 3 && ptx_slots(d, &s->o[0], 4, 'i', &i->slot[0], 1) &&
           ptx_slots(d, &s->o[1], 4, 'i', &i->slot[1], 1) && ptx_slots(d, &s->o[2], 4, 'i', &i->slot[3], 1);
}

/* bar and barrier: slot 1: which, 2: for how many threads, 3: predicate of red; mode: s(ync), a(rrive), r(ed). */
static bool decode_barrier(struct ptx_decoder *d, const struct ptx_statement *s, struct ptx_insn *i)
{
    int at = 0;
    i->kind = PTX_BARRIER;
    i->mode = ptx_has(s, "sync") ? 's' : ptx_has(s, "arrive") ? 'a' : ptx_has(s, "red") ? 'r' : 0;
    if (!i->mode || ptx_has(s, "cluster")) return false;
    if (i->mode == 'r') {
        i->flags = ptx_has(s, "popc") ? 'p' : ptx_has(s, "and") ? 'a' : ptx_has(s, "or") ? 'o' : 0;
        if (!i->flags || s->n < 3 || !ptx_slots(d, &s->o[0], i->flags == 'p' ? 4 : 0, 'i', &i->slot[0], 1) ||
            !ptx_slots(d, &s->o[s->n - 1], 0, 'p', &i->slot[3], 1))
            return false;
        at = 1;
    }
    int n = s->n - at - (i->mode == 'r');
    if (n < 1 || n > 2 || !ptx_slots(d, &s->o[at], 4, 'i', &i->slot[1], 1)) return false;
    return n == 1 || ptx_slots(d, &s->o[at + 1], 4, 'i', &i->slot[2], 1);
}

bool ptx_decode_warp(struct ptx_decoder *d, const struct ptx_statement *s)
{
    struct ptx_insn i = PTX_BLANK;
    struct ptx_word op = s->parts[0];
    bool is_known, is_sync = ptx_has(s, "sync");
    i.kind = PTX_CONVERGE;
    if (ptx_word_is(op, "shfl") && is_sync)
        is_known = decode_shfl(d, s, &i);
    else if (ptx_word_is(op, "vote") && is_sync)
        is_known = decode_vote(d, s, &i);
    else if (ptx_word_is(op, "match") && is_sync)
        is_known = decode_match(d, s, &i);
    else if (ptx_word_is(op, "redux") && is_sync)
        is_known = decode_redux(d, s, &i);
    else if (ptx_word_is(op, "bar") && ptx_has(s, "warp")) {
        i.run = ptx_run_warp_sync;
        is_known = is_sync && s->n == 1 && ptx_slots(d, &s->o[0], 4, 'i', &i.slot[3], 1);
    } else if (ptx_word_is(op, "bar") || ptx_word_is(op, "barrier"))
        is_known = decode_barrier(d, s, &i);
    else if (ptx_word_is(op, "activemask")) {
        i.kind = PTX_PLAIN;
        i.run = run_activemask;
        is_known = s->n == 1 && ptx_slots(d, &s->o[0], 4, 'i', &i.slot[0], 1);
    } else if (ptx_word_is(op, "elect") && is_sync) {
        i.run = run_elect;
        is_known = s->n == 2 && destination(d, &s->o[0], &i.slot[0], 4, &i.slot[1]) && i.slot[1] != PTX_NONE &&
                   ptx_slots(d, &s->o[1], 4, 'i', &i.slot[3], 1);
    } else
        return false;
    if (is_known) *ptx_emit(d, s->text) = i;
    return is_known;
}
