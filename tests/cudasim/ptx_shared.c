/* SPDX-License-Identifier: MIT */
/*
 * Shared memory: bounds, initialisation, and races.
 *
 * Every synchronisation (a barrier, __syncwarp) moves the block's time. A cell remembers when and by whom a word was
 * written and read last; each warp knows up to which time it has heard of each other warp (known), each lane of its
 * warp's other lanes (lanes_known, lane_known). What was done later than that, by others, races with an access now:
 * also inside a warp, whose lanes promise no order. shfl and its like order no memory.
 *
 * Words that are used by bytes or halves have a cell for each byte instead (is_split).
 */
#include "ptx.h"

#include <stdio.h>
#include <string.h>

enum { PENDING = 4 /* shadow: a cp.async will write it */ };

void ptx_shared_block(struct ptx_block *b)
{
    const struct ptx_program *p = b->program;
    if (b->shared_bytes) memset(b->shared, 0xff, b->shared_bytes);
    memset(b->shared_shadow, SIM_UNMAPPED, b->shared_bytes);
    for (int k = 0; k < p->n_shared; k++)
        if (!p->shared[k].is_extern)
            memset(b->shared_shadow + (p->shared[k].address - PTX_SHARED_FIRST), SIM_UNINITIALISED, p->shared[k].bytes);
    memset(b->shared_shadow + p->shared_bytes, SIM_UNINITIALISED, b->launch->dynamic_shared);
    b->start_time = b->time++;
    for (uint32_t k = 0; k < b->n_warps; k++) {
        struct ptx_warp *w = &b->warps[k];
        for (int v = 0; v < PTX_WARPS; v++) w->known[v] = b->start_time;
        w->known_least = w->lanes_known = b->start_time;
        if (w->lane_known) memset(w->lane_known, 0, sizeof(uint32_t[PTX_LANES][PTX_LANES]));
    }
}

/* ---- what is known ---- */

void ptx_sync_warp(struct ptx_warp *w, uint32_t mask)
{
    uint32_t now = w->block->time++;
    if ((mask & w->live) == w->live) {
        w->lanes_known = now;
        return;
    }
    if (!w->lane_known) w->lane_known = sim_alloc(sizeof(uint32_t[PTX_LANES][PTX_LANES]));
    for (unsigned of = 0; of < PTX_LANES; of++) {
        uint32_t most = mask >> of & 1 ? now : 0;
        PTX_EACH(by, mask) most = w->lane_known[of][by] > most ? w->lane_known[of][by] : most;
        PTX_EACH(by, mask) w->lane_known[of][by] = most;
    }
}

void ptx_sync_block(struct ptx_block *b, uint32_t warps)
{
    uint32_t now = b->time++, joined[PTX_WARPS];
    for (unsigned v = 0; v < b->n_warps; v++) {
        joined[v] = warps >> v & 1 ? now : 0;
        PTX_EACH(p, warps) joined[v] = b->warps[p].known[v] > joined[v] ? b->warps[p].known[v] : joined[v];
    }
    PTX_EACH(p, warps)
    {
        struct ptx_warp *w = &b->warps[p];
        w->lanes_known = w->known_least = now;
        for (unsigned v = 0; v < b->n_warps; v++) {
            w->known[v] = joined[v];
            if (joined[v] < w->known_least) w->known_least = joined[v];
        }
    }
}

/* lane, other: PTX_LANES for several. */
static inline bool is_known(const struct ptx_warp *w, unsigned lane, uint32_t time, unsigned warp, unsigned other)
{
    if (time <= w->block->start_time) return true;
    if (warp != w->id) return time <= w->known[warp];
    if ((other == lane && lane < PTX_LANES) || time <= w->lanes_known) return true;
    if (!w->lane_known || lane == PTX_LANES) return false;
    if (other < PTX_LANES) return time <= w->lane_known[other][lane];
    for (unsigned k = 0; k < PTX_LANES; k++)
        if (k != lane && time > w->lane_known[k][lane]) return false;
    return true;
}

static bool reads_are_known(const struct ptx_warp *w, unsigned lane, const struct ptx_cell *c)
{
    if (c->read_time <= w->block->start_time) return true;
    if (c->read_warps == 1u << w->id) return is_known(w, lane, c->read_time, w->id, c->read_lane);
    if (c->read_time <= w->known_least && c->read_time <= w->lanes_known) return true;
    PTX_EACH(v, c->read_warps)
    if (!is_known(w, lane, c->read_time, v, PTX_LANES)) return false;
    return true;
}

/* ---- races ---- */

static void race(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, int how,
                 const struct ptx_cell *c, bool other_wrote)
{
    unsigned other_lane = other_wrote ? c->write_lane : c->read_lane;
    unsigned other_warp = other_wrote ? c->write_warp : c->read_warps ? (unsigned)__builtin_ctz(c->read_warps) : 0;
    struct sim_words line = ptx_line(w->program, other_wrote ? c->write_pc : c->read_pc);
    bool same_warp = other_wrote ? other_warp == w->id : c->read_warps == 1u << w->id;
    char who[48] = "several threads";
    if (other_lane < PTX_LANES)
        snprintf(who, sizeof who, "thread %u of the block", other_warp * PTX_LANES + other_lane);
    ptx_report(w, i, lane, PTX_R_RACE,
               "race: a %s of shared memory at offset %llu, which %s %s at %s; no %s between them",
               how & PTX_ATOMIC   ? "atomic operation"
               : how & PTX_WRITES ? "write"
                                  : "read",
               (unsigned long long)(address - PTX_SHARED_FIRST), who, other_wrote ? "wrote" : "read", line.text,
               same_warp ? "__syncwarp (the lanes of a warp promise no order)" : "barrier");
}

static inline void touch(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address,
                         struct ptx_cell *c, int how)
{
    uint32_t now = w->block->time, pc = (uint32_t)(i - w->program->code), start = w->block->start_time;
    bool is_atomic = how & PTX_ATOMIC, are_both_atomic = is_atomic && c->is_atomic;
    if (how & PTX_TOGETHER) lane = PTX_LANES;
    bool is_same_store = how & PTX_WRITES && c->write_pc == pc && c->write_warp == w->id && c->write_time == now;
    if (!are_both_atomic && !is_same_store && !is_known(w, lane, c->write_time, c->write_warp, c->write_lane))
        race(w, i, lane, address, how, c, true);
    if (how & PTX_WRITES) {
        if (c->read_warps && !reads_are_known(w, lane, c)) race(w, i, lane, address, how, c, false);
        c->write_time = now;
        c->write_warp = (uint8_t)w->id;
        c->write_lane = (uint8_t)lane;
        c->write_pc = pc;
        c->is_atomic = is_atomic;
        c->read_warps = 0;
        return;
    }
    uint32_t me = 1u << w->id;
    if (!c->read_warps || c->read_time <= start || (c->read_time <= w->known_least && c->read_time <= w->lanes_known)) {
        c->read_warps = me;
        c->read_lane = (uint8_t)lane;
    } else if (c->read_warps != me || c->read_lane != lane || lane == PTX_LANES) {
        c->read_warps |= me;
        c->read_lane = PTX_LANES;
    }
    c->read_time = now;
    c->read_pc = pc;
}

static inline void touch_all(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address,
                             unsigned bytes, int how)
{
    struct ptx_block *b = w->block;
    uint64_t offset = address - PTX_SHARED_FIRST;
    for (uint64_t word = offset / 4; word <= (offset + bytes - 1) / 4; word++) {
        struct ptx_cell *c = &b->words[word];
        if (bytes >= 4 && !(c->is_split && c->split_time > b->start_time)) {
            c->is_split = 0;
            touch(w, i, lane, address, c, how);
            continue;
        }
        if (!(c->is_split && c->split_time > b->start_time)) {
            for (int k = 0; k < 4; k++) b->bytes[4 * word + (unsigned)k] = *c;
            c->is_split = 1;
            c->split_time = b->time;
        }
        uint64_t from = bytes >= 4 ? 4 * word : offset, to = bytes >= 4 ? 4 * word + 4 : offset + bytes;
        for (uint64_t k = from; k < to; k++) touch(w, i, lane, PTX_SHARED_FIRST + k, &b->bytes[k], how);
    }
}

/* ---- accesses ---- */

static uint8_t *check_bounds(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address,
                             unsigned bytes, const char *what)
{
    struct ptx_block *b = w->block;
    uint64_t offset = address - PTX_SHARED_FIRST;
    if (address & (bytes - 1))
        ptx_die(w, i, lane, "misaligned: %u bytes of shared memory at offset %lld", bytes, (long long)offset);
    if (offset >= b->shared_bytes || offset + bytes > b->shared_bytes)
        ptx_die(w, i, lane, "%s of %u bytes outside of shared memory: at offset %lld of %u bytes", what, bytes,
                (long long)offset, b->shared_bytes);
    for (unsigned k = 0; k < bytes; k++)
        if (b->shared_shadow[offset + k] == SIM_UNMAPPED)
            ptx_die(w, i, lane, "%s of %u bytes outside of shared memory: behind a variable, at offset %lld", what,
                    bytes, (long long)offset);
    return b->shared_shadow + offset;
}

uint8_t *ptx_shared_one(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned bytes,
                        int how)
{
    struct ptx_block *b = w->block;
    uint64_t from = address - PTX_SHARED_FIRST;
    uint32_t state = 0;
    if (bytes == 4 && !(address & 3) && from < b->shared_bytes) memcpy(&state, b->shared_shadow + from, sizeof state);
    if (state == 0x01010101u * SIM_INITIALISED) { /* the usual case */
        touch_all(w, i, lane, address, 4, how);
        return b->shared + from;
    }
    uint8_t *shadow = check_bounds(w, i, lane, address, bytes, how & PTX_WRITES ? "write" : "read");
    for (unsigned k = 0; k < bytes; k++) {
        if (shadow[k] == SIM_INITIALISED) continue;
        if (shadow[k] == PENDING)
            ptx_report(
                w, i, lane, PTX_R_ASYNC,
                "%s of shared memory at offset %llu, which a cp.async still writes: there was no cp.async.wait for it",
                how & PTX_WRITES ? "a write" : "a read", (unsigned long long)(address - PTX_SHARED_FIRST));
        else if (how & PTX_READS)
            ptx_report(w, i, lane, PTX_R_UNINITIALISED, "read of uninitialised shared memory at offset %llu",
                       (unsigned long long)(address - PTX_SHARED_FIRST));
        memset(shadow + k, SIM_INITIALISED, bytes - k);
        break;
    }
    touch_all(w, i, lane, address, bytes, how);
    return b->shared + (address - PTX_SHARED_FIRST);
}

void ptx_shared_pend(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned bytes)
{
    uint8_t *shadow = check_bounds(w, i, lane, address, bytes, "cp.async");
    touch_all(w, i, lane, address, bytes, PTX_WRITES);
    memset(shadow, PENDING, bytes);
}

uint8_t *ptx_shared_arrive(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address,
                           unsigned bytes)
{
    struct ptx_block *b = w->block;
    uint64_t offset = address - PTX_SHARED_FIRST;
    memset(b->shared_shadow + offset, SIM_INITIALISED, bytes);
    touch_all(w, i, lane, address, bytes, PTX_WRITES);
    return b->shared + offset;
}

void ptx_shared_check_store(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask, const uint64_t *addresses)
{
    /* rows in a row are the usual case, and need no look at pairs */
    uint64_t size = (uint64_t)i->bytes * i->count;
    unsigned first = (unsigned)__builtin_ctz(mask);
    bool is_rising = true;
    uint64_t last = addresses[first] - size;
    PTX_EACH(lane, mask)
    {
        is_rising &= addresses[lane] >= last + size;
        last = addresses[lane];
    }
    if (is_rising) return;
    PTX_EACH(lane, mask)
    for (unsigned other = 0; other < lane; other++) {
        if (!(mask >> other & 1) || addresses[other] != addresses[lane]) continue;
        for (int k = 0; k < i->count; k++)
            if (ptx_get(w, i->list[k], i->width[0], lane) != ptx_get(w, i->list[k], i->width[0], other)) {
                ptx_report(w, i, lane, PTX_R_RACE,
                           "race: thread %u writes another value to the same place of shared memory in the same "
                           "instruction, offset %llu",
                           w->id * PTX_LANES + other, (unsigned long long)(addresses[lane] - PTX_SHARED_FIRST));
                return;
            }
    }
}
