/* SPDX-License-Identifier: MIT */
/* Launches: blocks one after the other, the warps of a block in turns; barriers of the block. */
#include "ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUANTUM = 1 << 14, STATIC_SHARED_MOST = 48 * 1024 };

/* What a launch needs; kept for the next one, larger if need be. */
static struct {
    uint8_t *registers, *shared, *shared_shadow, *local, *local_shadow, *local_template;
    size_t register_bytes, shared_bytes, local_bytes;
    struct ptx_cell *words, *bytes;
    uint32_t *order;
    uint32_t order_capacity, time;
    uint64_t budget;
} room;
static struct ptx_warp warps[PTX_WARPS];

/* ---- special registers ---- */
enum special {
    TID_X,
    TID_Y,
    TID_Z,
    NTID_X,
    NTID_Y,
    NTID_Z,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    NCTAID_X,
    NCTAID_Y,
    NCTAID_Z,
    LANEID,
    WARPID,
    NWARPID,
    SMID,
    NSMID,
    GRIDID,
    MASK_EQ,
    MASK_LE,
    MASK_LT,
    MASK_GE,
    MASK_GT,
    DYNAMIC_SHARED,
    TOTAL_SHARED,
    CLUSTER_ONE,
    CLUSTER_ZERO,
    SPECIALS
};
static const struct {
    const char *name;
    uint8_t which, bytes;
} specials[] = {{"%tid.x", TID_X, 4},
                {"%tid.y", TID_Y, 4},
                {"%tid.z", TID_Z, 4},
                {"%ntid.x", NTID_X, 4},
                {"%ntid.y", NTID_Y, 4},
                {"%ntid.z", NTID_Z, 4},
                {"%ctaid.x", CTAID_X, 4},
                {"%ctaid.y", CTAID_Y, 4},
                {"%ctaid.z", CTAID_Z, 4},
                {"%nctaid.x", NCTAID_X, 4},
                {"%nctaid.y", NCTAID_Y, 4},
                {"%nctaid.z", NCTAID_Z, 4},
                {"%laneid", LANEID, 4},
                {"%warpid", WARPID, 4},
                {"%nwarpid", NWARPID, 4},
                {"%smid", SMID, 4},
                {"%nsmid", NSMID, 4},
                {"%gridid", GRIDID, 8},
                {"%lanemask_eq", MASK_EQ, 4},
                {"%lanemask_le", MASK_LE, 4},
                {"%lanemask_lt", MASK_LT, 4},
                {"%lanemask_ge", MASK_GE, 4},
                {"%lanemask_gt", MASK_GT, 4},
                {"%dynamic_smem_size", DYNAMIC_SHARED, 4},
                {"%total_smem_size", TOTAL_SHARED, 4},
                {"%cluster_nctarank", CLUSTER_ONE, 4},
                {"%cluster_nctaid.x", CLUSTER_ONE, 4},
                {"%cluster_ctarank", CLUSTER_ZERO, 4},
                {"%cluster_ctaid.x", CLUSTER_ZERO, 4}};

int ptx_special_find(struct ptx_word name)
{
    if (!name.n || *name.at != '%') return -1;
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        if (ptx_word_is(name, specials[i].name)) return (int)i;
    return -1;
}

unsigned ptx_special_bytes(int which) { return specials[which].bytes; }

static uint64_t special_value(const struct ptx_warp *w, unsigned lane, enum special which)
{
    const struct ptx_block *b = w->block;
    const struct ptx_launch *l = b->launch;
    unsigned thread = w->id * PTX_LANES + lane;
    switch (which) {
    case TID_X: return thread % l->block.x;
    case TID_Y: return thread / l->block.x % l->block.y;
    case TID_Z: return thread / l->block.x / l->block.y;
    case NTID_X: return l->block.x;
    case NTID_Y: return l->block.y;
    case NTID_Z: return l->block.z;
    case CTAID_X: return b->index.x;
    case CTAID_Y: return b->index.y;
    case CTAID_Z: return b->index.z;
    case NCTAID_X: return l->grid.x;
    case NCTAID_Y: return l->grid.y;
    case NCTAID_Z: return l->grid.z;
    case LANEID: return lane;
    case WARPID: return w->id;
    case NWARPID: return b->n_warps;
    case SMID: return b->number % 132;
    case NSMID: return 132;
    case MASK_EQ: return 1u << lane;
    case MASK_LE: return (2u << lane) - 1;
    case MASK_LT: return (1u << lane) - 1;
    case MASK_GE: return ~((1u << lane) - 1);
    case MASK_GT: return ~((2u << lane) - 1);
    case DYNAMIC_SHARED: return l->dynamic_shared;
    case TOTAL_SHARED: return w->program->shared_static_bytes + l->dynamic_shared;
    case CLUSTER_ONE: return 1;
    default: return 0;
    }
}

void ptx_special_fill(struct ptx_warp *w, const struct ptx_special *s)
{
    for (unsigned lane = 0; lane < PTX_LANES; lane++)
        ptx_put(w, s->slot, specials[s->which].bytes, lane, special_value(w, lane, specials[s->which].which));
}

/* ---- barriers ---- */

/* The warp waits at the barrier that the instruction names, or (bar.arrive) only counts there. */
void ptx_barrier_arrive(struct ptx_warp *w, const struct ptx_insn *i)
{
    struct ptx_block *b = w->block;
    unsigned lane = (unsigned)__builtin_ctz(w->groups[0].mask);
    uint32_t id = ((ptx_u32 *)PTX_SLOT(w, i, 1))[lane], pc = (uint32_t)(i - w->program->code);
    uint32_t count = i->slot[2] == PTX_NONE ? 0 : ((ptx_u32 *)PTX_SLOT(w, i, 2))[lane];
    if (id >= PTX_BARRIERS) ptx_die(w, i, lane, "there is no barrier %u: 0 to 15", id);
    if (count % PTX_LANES) ptx_die(w, i, lane, "a barrier for %u threads, which is not a multiple of 32", count);
    struct ptx_barrier *bar = &b->barriers[id];
    if ((bar->warps || bar->threads) && bar->count != count)
        ptx_report(w, i, lane, PTX_R_BARRIER, "divergent barrier: %u threads are to meet here, others wait for %u",
                   count, bar->count);
    if (bar->warps && !id && !count && bar->pc != pc) {
        struct sim_words here = ptx_line(w->program, pc), there = ptx_line(w->program, bar->pc);
        if (strcmp(here.text, there.text) != 0)
            ptx_report(w, i, lane, PTX_R_BARRIER, "divergent barrier: other warps of the block wait at %s", there.text);
    }
    bar->count = count;
    bar->pc = pc;
    bar->threads += PTX_LANES;
    bar->warps |= 1u << w->id;
    if (i->mode == 'a') {
        ptx_warp_release(w);
        return;
    }
    for (int k = 0; k < w->n_groups; k++) {
        const struct ptx_insn *g = &w->program->code[w->groups[k].pc];
        if (g->mode != 'r') continue;
        uint32_t votes = *(ptx_u32 *)PTX_SLOT(w, g, 3) & w->groups[k].mask;
        bar->votes += (uint32_t)__builtin_popcount(votes);
        bar->voters += (uint32_t)__builtin_popcount(w->groups[k].mask);
    }
    w->is_waiting = true;
    w->barrier = (int)id;
}

/* The result of bar.red, to each lane that waited. */
static void put_votes(struct ptx_warp *w, const struct ptx_barrier *bar)
{
    for (int k = 0; k < w->n_groups; k++) {
        const struct ptx_insn *i = &w->program->code[w->groups[k].pc];
        if (i->mode != 'r') continue;
        uint32_t mask = w->groups[k].mask;
        if (i->flags == 'p') {
            PTX_EACH(lane, mask)((ptx_u32 *)PTX_SLOT(w, i, 0))[lane] = bar->votes;
            continue;
        }
        bool is_true = i->flags == 'a' ? bar->votes == bar->voters : bar->votes > 0;
        ptx_u32 *p = PTX_SLOT(w, i, 0);
        *p = is_true ? *p | mask : *p & ~mask;
    }
}

/* Lets the warps go on if all that are wanted are here. */
static bool complete_barrier(struct ptx_block *b, int id)
{
    struct ptx_barrier *bar = &b->barriers[id];
    uint32_t here = 0, done = 0, all = b->n_warps == 32 ? UINT32_MAX : (1u << b->n_warps) - 1;
    for (uint32_t k = 0; k < b->n_warps; k++) {
        if (b->warps[k].is_done) done |= 1u << k;
        if (b->warps[k].is_waiting && b->warps[k].barrier == id) here |= 1u << k;
    }
    if (!here || (bar->count ? bar->threads < bar->count : (here | done) != all)) return false;
    ptx_sync_block(b, bar->warps | (bar->count ? 0 : done));
    PTX_EACH(k, here)
    {
        put_votes(&b->warps[k], bar);
        ptx_warp_release(&b->warps[k]);
    }
    *bar = (struct ptx_barrier){0};
    return true;
}

/* No warp can run: says who waits where. */
static void deadlock(struct ptx_block *b)
{
    struct ptx_warp *first = NULL;
    char others[200] = "";
    size_t n = 0;
    for (uint32_t k = 0; k < b->n_warps; k++) {
        struct ptx_warp *w = &b->warps[k];
        if (w->is_done) continue;
        if (!first)
            first = w;
        else if (n < sizeof others - 80)
            n += (size_t)snprintf(others + n, sizeof others - n, "%s warp %u at barrier %d (%.40s)",
                                  n ? "," : "; beside it", k, w->barrier, ptx_line(w->program, w->groups[0].pc).text);
    }
    ptx_die(first, &first->program->code[first->groups[0].pc], (unsigned)__builtin_ctz(first->groups[0].mask),
            "deadlock: the warp waits at barrier %d, and who is to come cannot%s", first->barrier, others);
}

/* ---- a block ---- */

static void start_warps(struct ptx_block *b)
{
    const struct ptx_program *p = b->program;
    for (uint32_t k = 0; k < b->n_warps; k++) {
        struct ptx_warp *w = &b->warps[k];
        uint32_t lanes = b->n_threads - k * PTX_LANES;
        w->live = w->started = w->active = lanes >= PTX_LANES ? PTX_ALL : (1u << lanes) - 1;
        w->pc = 0;
        w->others_pc = PTX_NONE;
        w->n_groups = w->n_copies = 0;
        w->is_waiting = w->is_done = w->wants_turn = false;
        w->instructions = 0;
        memset(w->commits, 0, sizeof w->commits);
        for (int s = 0; s < p->n_specials; s++) {
            enum special which = specials[p->specials[s].which].which;
            if (b->n_begun == 1 || (which >= CTAID_X && which <= CTAID_Z) || which == SMID) /* else as before */
                ptx_special_fill(w, &p->specials[s]);
        }
    }
    memset(b->barriers, 0, sizeof b->barriers);
    for (uint32_t t = 0; p->local_bytes && t < b->n_threads; t++)
        memcpy(b->local_shadow + (size_t)t * p->local_bytes, room.local_template, p->local_bytes);
}

static void run_block(struct ptx_block *b, uint64_t *random)
{
    uint32_t order[PTX_WARPS];
    for (uint32_t k = 0; k < b->n_warps; k++) order[k] = k;
    start_warps(b);
    ptx_shared_block(b);
    ptx_global_block(b);
    for (;;) {
        bool has_run = false, all_done = true;
        for (uint32_t k = b->n_warps; *random && k > 1; k--) {
            uint32_t other = (uint32_t)(sim_random(random) % k), swapped = order[other];
            order[other] = order[k - 1];
            order[k - 1] = swapped;
        }
        for (uint32_t k = 0; k < b->n_warps; k++) {
            struct ptx_warp *w = &b->warps[order[k]];
            if (w->is_done || w->is_waiting) continue;
            has_run = true;
            ptx_warp_run(w, QUANTUM);
            if (w->is_waiting) complete_barrier(b, w->barrier);
        }
        for (int id = 0; id < PTX_BARRIERS; id++) has_run |= complete_barrier(b, id);
        for (uint32_t k = 0; k < b->n_warps; k++) all_done &= b->warps[k].is_done;
        if (all_done) break;
        if (!has_run) deadlock(b);
    }
    for (uint32_t k = 0; k < b->n_warps; k++) b->counters->warp_instructions += b->warps[k].instructions;
    b->counters->threads += b->n_threads;
}

/* ---- a launch ---- */

static void *at_least(void *old, size_t *have, size_t bytes)
{
    if (*have >= bytes && old) return old;
    free(old);
    *have = bytes;
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (!p) sim_die("the simulator itself is out of memory");
    return p;
}

static void make_room(struct ptx_block *b, const struct ptx_program *p)
{
    size_t registers = (p->register_bytes + 63) / 64 * 64, have;
    room.registers = at_least(room.registers, &room.register_bytes, registers * b->n_warps);
    if (!room.words) {
        have = 0;
        room.shared = at_least(NULL, &have, PTX_SHARED_MOST + (1 << 16));
        have = 0;
        room.shared_shadow = at_least(NULL, &have, PTX_SHARED_MOST + (1 << 16));
        room.words = sim_alloc((PTX_SHARED_MOST + (1 << 16)) / 4 * sizeof *room.words);
        room.bytes = sim_alloc((PTX_SHARED_MOST + (1 << 16)) * sizeof *room.bytes);
        const char *budget = getenv("CUDASIM_BUDGET");
        room.budget = budget && *budget ? strtoull(budget, NULL, 10) : UINT64_C(1) << 27;
    }
    if (room.time > UINT32_MAX / 2) {
        memset(room.words, 0, (PTX_SHARED_MOST + (1 << 16)) / 4 * sizeof *room.words);
        memset(room.bytes, 0, (PTX_SHARED_MOST + (1 << 16)) * sizeof *room.bytes);
        room.time = 0;
    }
    if (p->local_bytes) {
        size_t bytes = (size_t)p->local_bytes * b->n_warps * PTX_LANES;
        have = room.local_bytes;
        room.local = at_least(room.local, &have, bytes);
        have = room.local_bytes;
        room.local_shadow = at_least(room.local_shadow, &have, bytes);
        room.local_bytes = have;
        free(room.local_template);
        room.local_template = sim_alloc(p->local_bytes);
        for (int k = 0; k < p->n_local; k++)
            memset(room.local_template + p->local[k].address, SIM_UNINITIALISED, p->local[k].bytes);
        memset(room.local, 0xff, bytes);
    }
    for (uint32_t k = 0; k < b->n_warps; k++)
        warps[k] = (struct ptx_warp){
            .registers = room.registers + k * registers, .block = b, .program = p, .id = k, .budget = room.budget};
}

/* Constants, of which some are addresses that were not known when the kernel was decoded. */
static void fill_constants(struct ptx_block *b, const struct ptx_program *p)
{
    const struct ptx_module *m = p->function->module;
    for (int c = 0; c < p->n_constants; c++) {
        const struct ptx_constant *k = &p->constants[c];
        uint64_t value = k->value;
        if (k->variable == PTX_DYNAMIC)
            value += PTX_SHARED_FIRST + p->shared_bytes;
        else if (k->variable != PTX_PLAIN_VALUE) {
            const struct ptx_variable *v = &m->variables[k->variable];
            if (!v->address)
                sim_die("kernel %s: the variable %.*s has no place in device memory", p->function->shown,
                        (int)v->name.n, v->name.at);
            value += v->address;
        }
        for (uint32_t w = 0; w < b->n_warps; w++)
            if (k->bytes)
                for (unsigned lane = 0; lane < PTX_LANES; lane++) ptx_put(&warps[w], k->slot, k->bytes, lane, value);
            else /* a predicate */
                *(ptx_u32 *)(warps[w].registers + k->slot) = (uint32_t)value;
    }
}

static void check_launch(const struct ptx_launch *l, const struct ptx_program *p)
{
    const struct ptx_function *f = l->function;
    uint64_t threads = (uint64_t)l->block.x * l->block.y * l->block.z,
             blocks = (uint64_t)l->grid.x * l->grid.y * l->grid.z;
    if (!threads || threads > PTX_WARPS * PTX_LANES || l->block.z > 64)
        sim_die("kernel %s: a block of (%u,%u,%u) threads", f->shown, l->block.x, l->block.y, l->block.z);
    if (!blocks || l->grid.x > INT32_MAX || l->grid.y > 65535 || l->grid.z > 65535)
        sim_die("kernel %s: a grid of (%u,%u,%u) blocks", f->shown, l->grid.x, l->grid.y, l->grid.z);
    if (blocks > 1 << 24)
        sim_die("kernel %s: %llu blocks are too many to simulate", f->shown, (unsigned long long)blocks);
    if (f->most_threads && threads > f->most_threads)
        sim_die("kernel %s: a block of %llu threads, where __launch_bounds__ allows %u", f->shown,
                (unsigned long long)threads, f->most_threads);
    if (p->shared_static_bytes > STATIC_SHARED_MOST || p->shared_static_bytes + l->dynamic_shared > PTX_SHARED_MOST)
        sim_die("kernel %s: %u bytes of static and %zu of dynamic shared memory are more than a block can have",
                f->shown, p->shared_static_bytes, l->dynamic_shared);
}

static void order_blocks(uint32_t n, uint64_t *random)
{
    if (n > room.order_capacity) {
        room.order = sim_grow(room.order, n * sizeof *room.order);
        room.order_capacity = n;
    }
    for (uint32_t k = 0; k < n; k++) room.order[k] = k;
    for (uint32_t k = n; *random && k > 1; k--) {
        uint32_t other = (uint32_t)(sim_random(random) % k), swapped = room.order[other];
        room.order[other] = room.order[k - 1];
        room.order[k - 1] = swapped;
    }
}

void ptx_run(const struct ptx_launch *launch, struct sim_access *access, struct ptx_counters *counters)
{
    struct ptx_function *f = launch->function;
    if (!f->program) ptx_decode(f);
    const struct ptx_program *p = f->program;
    check_launch(launch, p);
    struct ptx_counters unused = {0};
    uint32_t blocks = launch->grid.x * launch->grid.y * launch->grid.z;
    struct ptx_block b = {
        .launch = launch, .program = p, .access = access, .counters = counters ? counters : &unused, .warps = warps};
    uint64_t random = launch->seed;
    b.n_threads = launch->block.x * launch->block.y * launch->block.z;
    b.n_warps = (b.n_threads + PTX_LANES - 1) / PTX_LANES;
    b.shared_bytes = (uint32_t)(p->shared_bytes + launch->dynamic_shared);
    make_room(&b, p);
    b.shared = room.shared;
    b.shared_shadow = room.shared_shadow;
    b.words = room.words;
    b.bytes = room.bytes;
    b.local = room.local;
    b.local_shadow = room.local_shadow;
    b.time = room.time + 1;
    fill_constants(&b, p);
    order_blocks(blocks, &random);
    b.begun = room.order;
    ptx_global_start(&b);
    for (uint32_t k = 0; k < blocks; k++) {
        b.number = room.order[k];
        b.n_begun = k + 1;
        b.index = (struct sim_dim){b.number % launch->grid.x, b.number / launch->grid.x % launch->grid.y,
                                   b.number / launch->grid.x / launch->grid.y};
        run_block(&b, &random);
    }
    room.time = b.time;
    for (uint32_t k = 0; k < b.n_warps; k++) {
        free(warps[k].copies);
        free(warps[k].lane_known);
    }
}
