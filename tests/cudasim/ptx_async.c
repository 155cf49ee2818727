/* SPDX-License-Identifier: MIT */
/*
 * cp.async: a copy happens when its thread waits for it, and no sooner. Until then nobody may touch where it goes to,
 * and what is copied is what is in global memory at the end.
 */
#include "ptx.h"

#include <string.h>

/* slot 0: where to; list: register of the source's address, offset to it; slot 2: how many bytes to read. */
static void run_copy(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    if (w->n_copies == w->copies_capacity) {
        w->copies_capacity = w->copies_capacity ? 2 * w->copies_capacity : 16;
        w->copies = sim_grow(w->copies, (size_t)w->copies_capacity * sizeof *w->copies);
    }
    struct ptx_copy *c = &w->copies[w->n_copies++];
    uint64_t to[PTX_LANES];
    *c = (struct ptx_copy){.mask = mask, .pc = (uint32_t)(i - w->program->code), .bytes = i->bytes};
    memcpy(c->group, w->commits, sizeof c->group);
    ptx_addresses(w, i, 0, to);
    PTX_EACH(lane, mask)
    {
        uint64_t from = ptx_get(w, i->list[0], 8, lane) + (uint64_t)(int64_t)(int32_t)i->list[1];
        uint64_t wanted = i->slot[2] == PTX_NONE ? i->bytes : ((ptx_u32 *)PTX_SLOT(w, i, 2))[lane];
        c->global[lane] = from;
        c->shared[lane] = (uint32_t)to[lane];
        c->read_bytes[lane] = (uint8_t)(wanted < i->bytes ? wanted : i->bytes);
        if (c->read_bytes[lane] == i->bytes)
            ptx_global_one(w, i, lane, from, i->bytes, PTX_READS);
        else
            for (unsigned k = 0; k < c->read_bytes[lane]; k++) ptx_global_one(w, i, lane, from + k, 1, PTX_READS);
        ptx_shared_pend(w, i, lane, to[lane], i->bytes);
    }
}

/* The lanes wait until at most so many of their last groups (of those that were committed) are left. */
void ptx_async_wait(struct ptx_warp *w, uint32_t mask, uint32_t groups_left)
{
    int kept = 0;
    for (int k = 0; k < w->n_copies; k++) {
        struct ptx_copy *c = &w->copies[k];
        const struct ptx_insn *i = &w->program->code[c->pc];
        PTX_EACH(lane, c->mask & mask)
        {
            if (groups_left != PTX_NONE && c->group[lane] + groups_left >= w->commits[lane]) continue;
            uint8_t *to = ptx_shared_arrive(w, i, lane, c->shared[lane], c->bytes);
            memset(to, 0, c->bytes);
            if (c->read_bytes[lane]) memcpy(to, sim_alias + (c->global[lane] - SIM_BASE), c->read_bytes[lane]);
            c->mask &= ~(1u << lane);
        }
        if (c->mask) w->copies[kept++] = *c;
    }
    w->n_copies = kept;
}

static void run_commit(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    (void)i;
    PTX_EACH(lane, mask) w->commits[lane]++;
}

/* count: how many groups may be left; flags: wait_all, which also waits for what was not committed. */
static void run_wait(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    ptx_async_wait(w, mask, i->flags ? PTX_NONE : i->count);
}

static bool decode_copy(struct ptx_decoder *d, const struct ptx_statement *s, struct ptx_insn *i)
{
    uint64_t bytes;
    int n = s->n - ptx_has(s, "L2::cache_hint");
    if (!ptx_has(s, "global") || !(ptx_has(s, "ca") || ptx_has(s, "cg")) || n < 3 || n > 4) return false;
    if (s->o[2].kind != PTX_O_WORD || !ptx_word_number(s->o[2].word, &bytes)) return false;
    if (!(bytes == 16 || (ptx_has(s, "ca") && (bytes == 4 || bytes == 8)))) return false;
    struct ptx_insn source = PTX_BLANK;
    source.space = PTX_GLOBAL;
    i->space = PTX_SHARED;
    i->bytes = (uint8_t)bytes;
    if (!ptx_address(d, &s->o[1], &source, 1) || source.address_bytes != 8 || !ptx_address(d, &s->o[0], i, 0))
        return false;
    if (source.offset != (int32_t)source.offset) return false;
    uint32_t *list = ptx_alloc(d->module, 2 * sizeof *list);
    list[0] = source.slot[1];
    list[1] = (uint32_t)source.offset;
    i->list = list;
    i->run = run_copy;
    return n == 3 || ptx_slots(d, &s->o[3], 4, 'i', &i->slot[2], 1);
}

bool ptx_decode_async(struct ptx_decoder *d, const struct ptx_statement *s)
{
    struct ptx_insn i = PTX_BLANK;
    uint64_t groups;
    if (s->n_parts < 3 || !ptx_word_is(s->parts[0], "cp") || !ptx_word_is(s->parts[1], "async")) return false;
    if (ptx_word_is(s->parts[2], "commit_group"))
        i.run = run_commit;
    else if (ptx_word_is(s->parts[2], "wait_all")) {
        i.run = run_wait;
        i.flags = 1;
    } else if (ptx_word_is(s->parts[2], "wait_group")) {
        if (s->n != 1 || s->o[0].kind != PTX_O_WORD || !ptx_word_number(s->o[0].word, &groups) || groups > 255)
            return false;
        i.run = run_wait;
        i.count = (uint8_t)groups;
    } else if (!decode_copy(d, s, &i))
        return false;
    *ptx_emit(d, s->text) = i;
    return true;
}
