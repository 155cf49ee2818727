/* SPDX-License-Identifier: MIT */
/* ld, st, and what goes with them: prefetches, fences. Registers of a vector are in list; width[0] is theirs. */
#include "ptx.h"

#include <string.h>

enum { IS_SIGNED = 1, IS_STRONG = 2 /* volatile, relaxed, acquire, release */, IS_NONCOHERENT = 4 };

void ptx_addresses(const struct ptx_warp *w, const struct ptx_insn *i, int slot, uint64_t *addresses)
{
    const uint8_t *p = w->registers + i->slot[slot];
    if (i->address_bytes == 8)
        for (unsigned lane = 0; lane < PTX_LANES; lane++)
            addresses[lane] = ((const ptx_u64 *)p)[lane] + (uint64_t)i->offset;
    else /* shared and local addresses of 32 bits */
        for (unsigned lane = 0; lane < PTX_LANES; lane++)
            addresses[lane] = (uint32_t)(((const ptx_u32 *)p)[lane] + (uint32_t)i->offset);
}

static uint8_t *local_one(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned bytes,
                          int how)
{
    struct ptx_block *b = w->block;
    uint32_t size = w->program->local_bytes;
    size_t frame = (size_t)(w->id * PTX_LANES + lane) * size;
    const char *what = how & PTX_WRITES ? "write" : "read";
    if (address & (bytes - 1))
        ptx_die(w, i, lane, "misaligned: %u bytes of local memory at %lld", bytes, (long long)address);
    if (address >= size || address + bytes > size)
        ptx_die(w, i, lane, "%s of %u bytes outside of the thread's local memory", what, bytes);
    uint8_t *shadow = b->local_shadow + frame + address;
    for (unsigned k = 0; k < bytes; k++) {
        if (shadow[k] == SIM_UNMAPPED)
            ptx_die(w, i, lane, "%s of %u bytes outside of the thread's local memory: before or behind an array", what,
                    bytes);
        if (shadow[k] == SIM_UNINITIALISED && how & PTX_READS)
            ptx_report(w, i, lane, PTX_R_UNINITIALISED, "read of uninitialised local memory");
    }
    memset(shadow, SIM_INITIALISED, bytes);
    return b->local + frame + address;
}

static uint8_t *parameter_one(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address,
                              unsigned bytes)
{
    size_t size = w->program->function->parameter_bytes;
    if (address + bytes > size || address >= size)
        ptx_die(w, i, lane, "read of %u bytes outside of the kernel's parameters", bytes);
    return (uint8_t *)w->block->launch->parameters + address;
}

uint8_t *ptx_memory_one(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned bytes,
                        int space, int how)
{
    if (space == PTX_GENERIC) {
        if (address - SIM_SHARED_BASE < 1 << 24)
            return ptx_shared_one(w, i, lane, address - SIM_SHARED_BASE, bytes, how);
        if (address - SIM_LOCAL_BASE < 1 << 24) return local_one(w, i, lane, address - SIM_LOCAL_BASE, bytes, how);
        if (address - PTX_PARAMETER_BASE < 1 << 16)
            return parameter_one(w, i, lane, address - PTX_PARAMETER_BASE, bytes);
    }
    if (space == PTX_SHARED) return ptx_shared_one(w, i, lane, address, bytes, how);
    if (space == PTX_LOCAL) return local_one(w, i, lane, address, bytes, how);
    if (space == PTX_PARAMETER) return parameter_one(w, i, lane, address, bytes);
    if (how & PTX_ATOMIC) ptx_global_atomic(w->block, address);
    return ptx_global_one(w, i, lane, address, bytes, how);
}

/* Do the lanes touch one run of bytes, in their order? The first of them is *first. */
static bool is_contiguous(const uint64_t *addresses, uint32_t mask, unsigned size, unsigned *first, unsigned *n)
{
    *first = (unsigned)__builtin_ctz(mask);
    *n = (unsigned)__builtin_popcount(mask);
    uint32_t run = mask >> *first;
    if (run & (run + 1)) return false;
    uint64_t base = addresses[*first], wrong = 0;
    const uint64_t *a = addresses + *first;
    if (*n == PTX_LANES)
        for (unsigned k = 0; k < PTX_LANES; k++) wrong |= a[k] ^ (base + k * size);
    else
        for (unsigned k = 0; k < *n; k++) wrong |= a[k] ^ (base + k * size);
    unsigned align = size < 4 ? 4 : size;
    return !wrong && !(base & (align - 1)) && !(*n * size & 3);
}

static bool is_one_address(const uint64_t *addresses, uint32_t mask)
{
    uint64_t base = addresses[__builtin_ctz(mask)], wrong = 0;
    if (mask == PTX_ALL)
        for (unsigned k = 0; k < PTX_LANES; k++) wrong |= addresses[k] ^ base;
    else
        PTX_EACH(lane, mask) wrong |= addresses[lane] ^ base;
    return !wrong;
}

static inline uint64_t read_element(const uint8_t *p, unsigned bytes, bool is_signed)
{
    uint64_t value = 0;
    switch (bytes) {
    case 1: value = *p; break;
    case 2: memcpy(&value, p, 2); break;
    case 4: memcpy(&value, p, 4); break;
    default: memcpy(&value, p, 8); break;
    }
    unsigned unused = 64 - 8 * bytes;
    return is_signed ? (uint64_t)((int64_t)(value << unused) >> unused) : value;
}

static void put_elements(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, const uint8_t *p)
{
    for (unsigned k = 0; k < i->count; k++)
        if (i->list[k] != PTX_NONE)
            ptx_put(w, i->list[k], i->width[0], lane, read_element(p + k * i->bytes, i->bytes, i->flags & IS_SIGNED));
}

/* The same for all lanes. */
static void put_to_all(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask, const uint8_t *p)
{
    for (unsigned k = 0; k < i->count; k++) {
        if (i->list[k] == PTX_NONE) continue;
        uint64_t value = read_element(p + k * i->bytes, i->bytes, i->flags & IS_SIGNED);
        void *slot = w->registers + i->list[k];
        if (mask != PTX_ALL)
            PTX_EACH(lane, mask) ptx_put(w, i->list[k], i->width[0], lane, value);
        else if (i->width[0] == 2)
            for (unsigned lane = 0; lane < PTX_LANES; lane++) ((ptx_u16 *)slot)[lane] = (uint16_t)value;
        else if (i->width[0] == 4)
            for (unsigned lane = 0; lane < PTX_LANES; lane++) ((ptx_u32 *)slot)[lane] = (uint32_t)value;
        else
            for (unsigned lane = 0; lane < PTX_LANES; lane++) ((ptx_u64 *)slot)[lane] = value;
    }
}

static const uint8_t *device_byte(uint64_t address) { return sim_alias + (address - SIM_BASE); }

/* From where each lane says, in device memory. */
static void put_gathered(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask, const uint64_t *addresses)
{
    void *slot = w->registers + i->list[0];
    if (i->count != 1 || i->bytes != i->width[0])
        PTX_EACH(lane, mask) put_elements(w, i, lane, device_byte(addresses[lane]));
    else if (i->bytes == 2)
        PTX_EACH(lane, mask)((ptx_u16 *)slot)[lane] = *(const ptx_u16 *)device_byte(addresses[lane]);
    else if (i->bytes == 4)
        PTX_EACH(lane, mask)((ptx_u32 *)slot)[lane] = *(const ptx_u32 *)device_byte(addresses[lane]);
    else
        PTX_EACH(lane, mask)((ptx_u64 *)slot)[lane] = *(const ptx_u64 *)device_byte(addresses[lane]);
}

static void put_run(struct ptx_warp *w, const struct ptx_insn *i, unsigned first, unsigned n, const uint8_t *p)
{
    if (i->count == 1 && i->bytes == i->width[0]) {
        memcpy(w->registers + i->list[0] + first * i->bytes, p, n * i->bytes);
        return;
    }
    if (i->bytes == 4 && i->width[0] == 4) {
        for (unsigned k = 0; k < i->count; k++) {
            if (i->list[k] == PTX_NONE) continue;
            ptx_u32 *to = (void *)(w->registers + i->list[k]);
            for (unsigned l = 0; l < n; l++) to[first + l] = ((const ptx_u32 *)p)[l * i->count + k];
        }
        return;
    }
    for (unsigned l = 0; l < n; l++) put_elements(w, i, first + l, p + l * i->count * i->bytes);
}

static void run_load_parameter(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint64_t addresses[PTX_LANES];
    ptx_addresses(w, i, 1, addresses);
    if (is_one_address(addresses, mask)) {
        unsigned first = (unsigned)__builtin_ctz(mask);
        put_to_all(w, i, mask, parameter_one(w, i, first, addresses[first], i->bytes * i->count));
        return;
    }
    PTX_EACH(lane, mask) put_elements(w, i, lane, parameter_one(w, i, lane, addresses[lane], i->bytes * i->count));
}

/* Device memory, by ld without .volatile and the like. False: some lanes mean something else. */
static bool load_global(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask, const uint64_t *addresses, int how)
{
    unsigned size = i->bytes * i->count, first = (unsigned)__builtin_ctz(mask), n;
    if (i->space == PTX_GENERIC) PTX_EACH(lane, mask)
    if (!sim_is_device(addresses[lane])) return false;
    if (is_contiguous(addresses, mask, size, &first, &n)) {
        const uint8_t *p = ptx_global_range(w, addresses[first], n * size, how);
        if (p) {
            put_run(w, i, first, n, p);
            return true;
        }
    }
    uint32_t unknown = ptx_global_unknown(w, mask, addresses, size);
    PTX_EACH(lane, unknown) ptx_global_one(w, i, lane, addresses[lane], size, how);
    put_gathered(w, i, mask, addresses);
    return true;
}

static void run_load(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint64_t addresses[PTX_LANES];
    unsigned size = i->bytes * i->count, first = (unsigned)__builtin_ctz(mask);
    int how = PTX_READS | (i->flags & IS_STRONG ? PTX_ATOMIC : 0) | (i->flags & IS_NONCOHERENT ? PTX_NONCOHERENT : 0);
    ptx_addresses(w, i, 1, addresses);
    bool is_global = i->space == PTX_GLOBAL || i->space == PTX_GENERIC || i->space == PTX_CONSTANT;
    bool is_one = mask & (mask - 1) && is_one_address(addresses, mask);
    if (is_global && !(how & PTX_ATOMIC) && load_global(w, i, is_one ? 1u << first : mask, addresses, how)) {
        if (is_one) put_to_all(w, i, mask, sim_alias + (addresses[first] - SIM_BASE));
        return;
    }
    if (is_one && i->space == PTX_SHARED && !w->lane_known) {
        put_to_all(w, i, mask, ptx_shared_one(w, i, first, addresses[first], size, how | PTX_TOGETHER));
        return;
    }
    PTX_EACH(lane, mask)
    put_elements(w, i, lane, ptx_memory_one(w, i, lane, addresses[lane], size, i->space, how));
}

static void take_elements(const struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint8_t *p)
{
    for (unsigned k = 0; k < i->count; k++) {
        uint64_t value = ptx_get(w, i->list[k], i->width[0], lane);
        if (i->bytes == 4)
            memcpy(p + k * 4, &value, 4);
        else
            memcpy(p + k * i->bytes, &value, i->bytes);
    }
}

static void run_store(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint64_t addresses[PTX_LANES];
    unsigned size = i->bytes * i->count, first, n;
    int how = PTX_WRITES | (i->flags & IS_STRONG ? PTX_ATOMIC : 0);
    ptx_addresses(w, i, 0, addresses);
    if ((i->space == PTX_GLOBAL || i->space == PTX_GENERIC) && !(how & PTX_ATOMIC) &&
        is_contiguous(addresses, mask, size, &first, &n)) {
        uint8_t *p = ptx_global_range(w, addresses[first], n * size, how);
        if (p && i->count == 1 && i->bytes == i->width[0])
            memcpy(p, w->registers + i->list[0] + first * i->bytes, n * i->bytes);
        else if (p)
            for (unsigned l = 0; l < n; l++) take_elements(w, i, first + l, p + l * size);
        if (p) return;
    }
    if (i->space == PTX_SHARED) ptx_shared_check_store(w, i, mask, addresses);
    PTX_EACH(lane, mask) take_elements(w, i, lane, ptx_memory_one(w, i, lane, addresses[lane], size, i->space, how));
}

static void run_fence(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    (void)mask;
    if (i->flags) ptx_global_fence(w->block);
}

static void run_nothing(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask) { (void)w, (void)i, (void)mask; }

/* ---- decoding ---- */

bool ptx_read_space(struct ptx_word part, uint8_t *space)
{
    static const struct {
        const char *name;
        uint8_t space;
    } spaces[] = {{"global", PTX_GLOBAL},          {"shared", PTX_SHARED},
                  {"shared::cta", PTX_SHARED},     {"local", PTX_LOCAL},
                  {"const", PTX_CONSTANT},         {"param", PTX_PARAMETER},
                  {"param::entry", PTX_PARAMETER}, {"param::func", PTX_PARAMETER}};
    for (size_t k = 0; k < sizeof spaces / sizeof *spaces; k++)
        if (ptx_word_is(part, spaces[k].name)) {
            *space = spaces[k].space;
            return true;
        }
    return false;
}

/* Where and how a value is kept in caches does not matter here. */
bool ptx_is_hint(struct ptx_word part)
{
    static const char *const hints[] = {"ca",
                                        "cg",
                                        "cs",
                                        "lu",
                                        "cv",
                                        "wb",
                                        "wt",
                                        "gpu",
                                        "cta",
                                        "sys",
                                        "uni",
                                        "weak",
                                        "cluster",
                                        "L1::no_allocate",
                                        "L1::evict_first",
                                        "L1::evict_last",
                                        "L1::evict_normal",
                                        "L1::evict_unchanged",
                                        "L2::64B",
                                        "L2::128B",
                                        "L2::256B",
                                        "L2::evict_first",
                                        "L2::evict_last",
                                        "L2::evict_normal",
                                        "L2::cache_hint"};
    for (size_t k = 0; k < sizeof hints / sizeof *hints; k++)
        if (ptx_word_is(part, hints[k])) return true;
    return false;
}

static bool read_parts(const struct ptx_statement *s, struct ptx_insn *i, bool *has_hint_operand)
{
    *has_hint_operand = ptx_has(s, "L2::cache_hint");
    i->count = 1;
    for (int k = 1; k < s->n_parts - 1; k++) {
        struct ptx_word p = s->parts[k];
        if (ptx_read_space(p, &i->space) || ptx_is_hint(p)) continue;
        if (p.n == 2 && p.at[0] == 'v' && strchr("248", p.at[1]))
            i->count = (uint8_t)(p.at[1] - '0');
        else if (ptx_word_is(p, "nc"))
            i->flags |= IS_NONCOHERENT;
        else if (ptx_word_is(p, "volatile") || ptx_word_is(p, "relaxed") || ptx_word_is(p, "acquire") ||
                 ptx_word_is(p, "release") || ptx_word_is(p, "mmio"))
            i->flags |= IS_STRONG;
        else
            return false;
    }
    struct ptx_word type = ptx_last(s);
    i->bytes = (uint8_t)ptx_type_bytes(type);
    if (*type.at == 's') i->flags |= IS_SIGNED;
    return i->bytes && i->bytes <= 8 && i->bytes * i->count <= 32 && !ptx_word_is(type, "pred");
}

/* The registers or values of one side of a load or store, at least as wide as what is in memory. */
static bool read_values(struct ptx_decoder *d, const struct ptx_operand *o, struct ptx_insn *i, bool is_source,
                        char letter)
{
    uint32_t *list = ptx_alloc(d->module, i->count * sizeof *list);
    struct ptx_word one[1] = {o->word};
    const struct ptx_word *words = o->kind == PTX_O_LIST ? o->items : one;
    if (o->kind == PTX_O_LIST ? o->n_items != i->count
                              : o->kind != PTX_O_WORD || i->count != 1 || o->second.n || o->offset)
        return false;
    i->list = list;
    i->width[0] = 0;
    for (int k = 0; k < i->count; k++) {
        uint8_t width = 0;
        list[k] = PTX_NONE;
        if (ptx_word_is(words[k], "_") && !is_source) continue;
        if (!ptx_register_slot(d, words[k], &list[k], &width)) continue;
        if (!width || (width < i->bytes) || (i->width[0] && i->width[0] != width)) return false;
        i->width[0] = width;
    }
    if (!i->width[0]) i->width[0] = i->bytes < 2 ? 2 : i->bytes;
    for (int k = 0; is_source && k < i->count; k++)
        if (list[k] == PTX_NONE && !ptx_source(d, words[k], i->width[0], letter, &list[k])) return false;
    return is_source || o->kind == PTX_O_LIST || list[0] != PTX_NONE;
}

static bool decode_load(struct ptx_decoder *d, const struct ptx_statement *s)
{
    struct ptx_insn i = PTX_BLANK;
    bool has_hint;
    if (!read_parts(s, &i, &has_hint) || s->n != 2 + has_hint) return false;
    if (!read_values(d, &s->o[0], &i, false, 0) || !ptx_address(d, &s->o[1], &i, 1)) return false;
    i.run = i.space == PTX_PARAMETER ? run_load_parameter : run_load;
    if (i.space != PTX_GLOBAL && i.space != PTX_GENERIC) i.flags &= IS_SIGNED;
    *ptx_emit(d, s->text) = i;
    return true;
}

static bool decode_store(struct ptx_decoder *d, const struct ptx_statement *s)
{
    struct ptx_insn i = PTX_BLANK;
    bool has_hint;
    struct ptx_word type = ptx_last(s);
    if (!read_parts(s, &i, &has_hint) || s->n != 2 + has_hint) return false;
    if (!ptx_address(d, &s->o[0], &i, 0)) return false;
    if (!read_values(d, &s->o[1], &i, true, ptx_word_is(type, "f32") ? 'f' : ptx_word_is(type, "f64") ? 'd' : 'i'))
        return false;
    if (i.space == PTX_PARAMETER || i.space == PTX_CONSTANT) return false;
    i.run = run_store;
    if (i.space != PTX_GLOBAL && i.space != PTX_GENERIC) i.flags &= IS_SIGNED;
    *ptx_emit(d, s->text) = i;
    return true;
}

static bool decode_nothing(struct ptx_decoder *d, const struct ptx_statement *s, bool is_fence)
{
    struct ptx_insn i = PTX_BLANK;
    i.run = is_fence ? run_fence : run_nothing;
    i.flags = is_fence && (ptx_has(s, "gl") || ptx_has(s, "gpu") || ptx_has(s, "sys"));
    *ptx_emit(d, s->text) = i;
    return true;
}

bool ptx_decode_memory(struct ptx_decoder *d, const struct ptx_statement *s)
{
    struct ptx_word op = s->parts[0];
    if (ptx_word_is(op, "ld") || ptx_word_is(op, "ldu")) return s->n_parts > 1 && decode_load(d, s);
    if (ptx_word_is(op, "st")) return s->n_parts > 1 && decode_store(d, s);
    if (ptx_word_is(op, "atom") || ptx_word_is(op, "red")) return s->n_parts > 2 && ptx_decode_atomic(d, s);
    if (ptx_word_is(op, "membar") || ptx_word_is(op, "fence"))
        return !ptx_has(s, "proxy") && decode_nothing(d, s, true);
    if (ptx_word_is(op, "prefetch") || ptx_word_is(op, "prefetchu") || ptx_word_is(op, "applypriority") ||
        ptx_word_is(op, "discard") || ptx_word_is(op, "nanosleep") || ptx_word_is(op, "createpolicy") ||
        ptx_word_is(op, "pmevent"))
        return decode_nothing(d, s, false);
    return false;
}
