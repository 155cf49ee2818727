/* SPDX-License-Identifier: MIT */
/*
 * Accesses to device memory, checked: bounds and initialisation by the shadow bytes, and conflicts between blocks of
 * one launch, of which nobody can say which comes first.
 *
 * For conflicts each word of 4 bytes has a cell: the launch that touched it last, one block that wrote and one that
 * read it in that launch, and which of its bytes. A cell of an earlier launch counts as empty, so nothing has to be
 * cleared. Where different blocks use different bytes of a word the cell is split: it names a record with an entry for
 * each byte.
 *
 * Blocks that hand over by atomics are in order: a block that had a fence before an atomic operation hands all it did
 * to whoever uses that address atomically later.
 */
#include "ptx.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ID_BITS = 18, WORD = 4 };
#define MANY ((UINT64_C(1) << ID_BITS) - 1)
#define READER_SHIFT 0
#define WRITER_SHIFT ID_BITS
#define READ_MASK_SHIFT (2 * ID_BITS)
#define WRITE_MASK_SHIFT (READ_MASK_SHIFT + 4)
#define IS_MIXED (UINT64_C(1) << 45) /* several blocks read, not all of them the same bytes */
#define SPLIT (UINT64_C(1) << 46)
#define IS_ATOMIC (UINT64_C(1) << 47)
#define LAUNCH_SHIFT 48
#define INDEX_MASK (IS_MIXED - 1)
#define ALL_READ (UINT64_C(15) << READ_MASK_SHIFT)
#define ALL_WRITTEN (UINT64_C(15) << WRITE_MASK_SHIFT)
#define EACH_BYTE(x) (UINT64_C(0x0101010101010101) * (x))

struct split { /* by byte; 0: nobody */
    uint32_t reader[WORD], writer[WORD];
    bool is_atomic[WORD];
};
struct handover { /* who has released at this address: a bit a block */
    uint64_t address;
    uint64_t *blocks;
};

static uint64_t *cells;
static uint64_t launch; /* 1 .. 65535 */
static struct split *splits;
static size_t n_splits, splits_capacity;
static struct handover *handovers;
static size_t n_handovers;
static uint64_t *acquired; /* by the block that runs; NULL: of nobody */
static size_t set_words;

static void forget_handovers(void)
{
    for (size_t i = 0; i < n_handovers; i++) free(handovers[i].blocks);
    free(handovers);
    free(acquired);
    handovers = NULL;
    acquired = NULL;
    n_handovers = 0;
}

void ptx_global_start(struct ptx_block *b)
{
    size_t bytes = SIM_BYTES / WORD * sizeof *cells;
    if (!cells) {
        cells = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (cells == MAP_FAILED)
            sim_die("cannot reserve address space for the words of device memory: is there a limit?");
        madvise(cells, bytes, MADV_DONTDUMP);
    }
    if (++launch >> 16) {
        madvise(cells, bytes, MADV_DONTNEED);
        launch = 1;
    }
    n_splits = 0;
    forget_handovers();
    const struct sim_dim *g = &b->launch->grid;
    set_words = ((size_t)g->x * g->y * g->z + 63) / 64;
}

/* A new block: what the one before took over is not its. */
void ptx_global_block(struct ptx_block *b)
{
    b->id = (uint32_t)(b->number % (MANY - 1)) + 1;
    b->has_fence = false;
    if (acquired) memset(acquired, 0, set_words * sizeof *acquired);
}

void ptx_forget(uint64_t address, uint64_t bytes)
{
    if (!cells) return;
    uintptr_t page = 4096, from = (uintptr_t)&cells[(address - SIM_BASE) / WORD];
    uintptr_t to = (uintptr_t)&cells[(address - SIM_BASE + bytes) / WORD] / page * page;
    from = (from + page - 1) / page * page;
    if (from < to) madvise((void *)from, to - from, MADV_DONTNEED);
}

/* ---- handing over ---- */

void ptx_global_fence(struct ptx_block *b) { b->has_fence = true; }

static void join(uint64_t *into, const uint64_t *from)
{
    for (size_t k = 0; k < set_words; k++) into[k] |= from[k];
}

void ptx_global_atomic(struct ptx_block *b, uint64_t address)
{
    struct handover *h = NULL;
    if (!b->has_fence && !n_handovers) return;
    for (size_t k = 0; k < n_handovers && !h; k++)
        if (handovers[k].address == address) h = &handovers[k];
    if (!acquired) acquired = sim_alloc(set_words * sizeof *acquired);
    if (h) join(acquired, h->blocks);
    if (!b->has_fence) return;
    if (!h) {
        handovers = sim_grow(handovers, (n_handovers + 1) * sizeof *handovers);
        h = &handovers[n_handovers++];
        *h = (struct handover){.address = address, .blocks = sim_alloc(set_words * sizeof *h->blocks)};
    }
    join(h->blocks, acquired);
    h->blocks[b->number / 64] |= UINT64_C(1) << b->number % 64;
}

/* Is what the other did before us? MANY: did all blocks before us hand over? */
static bool is_ordered(const struct ptx_block *b, uint64_t other)
{
    if (!acquired) return false;
    if (other != MANY) return acquired[(other - 1) / 64] >> (other - 1) % 64 & 1;
    for (uint64_t k = 0; k < b->n_begun; k++) {
        uint64_t number = b->begun[k];
        if (number != b->number && !(acquired[number / 64] >> number % 64 & 1)) return false;
    }
    return true;
}

/* ---- conflicts ---- */

static void conflict(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, int how,
                     uint64_t other, bool other_wrote, bool other_is_atomic)
{
    struct ptx_block *b = w->block;
    if (is_ordered(b, other)) return;
    const char *we = how & PTX_ATOMIC ? "an atomic operation on" : how & PTX_WRITES ? "a write of" : "a read of";
    const char *they = other_is_atomic ? "used atomically" : other_wrote ? "wrote" : "read";
    const struct sim_dim *g = &b->launch->grid;
    struct sim_words where = sim_where(address);
    if (other == MANY)
        ptx_report(
            w, i, lane, PTX_R_CONFLICT,
            "conflict between blocks: %s 0x%llx, which other blocks of this launch %s; nothing orders them; it is "
            "%s",
            we, (unsigned long long)address, they, where.text);
    else {
        uint64_t n = other - 1;
        ptx_report(
            w, i, lane, PTX_R_CONFLICT,
            "conflict between blocks: %s 0x%llx, which block (%llu,%llu,%llu) %s in this launch; nothing orders the "
            "two; it is %s",
            we, (unsigned long long)address, (unsigned long long)(n % g->x), (unsigned long long)(n / g->x % g->y),
            (unsigned long long)(n / g->x / g->y), they, where.text);
    }
}

static void noncoherent(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address)
{
    ptx_report(w, i, lane, PTX_R_OTHER,
               "a read by the read-only path (const __restrict__ or __ldg) of 0x%llx, which this launch wrote: %s",
               (unsigned long long)address, sim_where(address).text);
}

/* One byte of a split word. */
static void touch_byte(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, struct split *s,
                       int how)
{
    uint32_t me = w->block->id, k = (uint32_t)(address % WORD);
    bool is_atomic = how & PTX_ATOMIC;
    if (s->writer[k] && s->writer[k] != me && !(s->is_atomic[k] && is_atomic)) {
        conflict(w, i, lane, address, how, s->writer[k], true, s->is_atomic[k]);
        s->writer[k] = me;
    }
    if (how & PTX_NONCOHERENT && s->writer[k]) noncoherent(w, i, lane, address);
    if (how & PTX_WRITES) {
        if (s->reader[k] && s->reader[k] != me) conflict(w, i, lane, address, how, s->reader[k], false, false);
        s->is_atomic[k] = is_atomic && (!s->writer[k] || s->is_atomic[k]);
        s->writer[k] = s->writer[k] && s->writer[k] != me ? (uint32_t)MANY : me;
    } else if (!is_atomic)
        s->reader[k] = s->reader[k] && s->reader[k] != me ? (uint32_t)MANY : me;
}

static struct split *split_of(uint64_t *cell)
{
    uint64_t c = *cell;
    if (c & SPLIT) return &splits[c & INDEX_MASK];
    if (n_splits == splits_capacity) {
        splits_capacity = splits_capacity ? 2 * splits_capacity : 1024;
        splits = sim_grow(splits, splits_capacity * sizeof *splits);
    }
    struct split *s = &splits[n_splits];
    for (int k = 0; k < WORD; k++) {
        bool is_read = c >> (READ_MASK_SHIFT + k) & 1 && !(c & IS_MIXED); /* mixed: nobody knows who */
        s->reader[k] = is_read ? (uint32_t)(c >> READER_SHIFT & MANY) : 0;
        s->writer[k] = c >> (WRITE_MASK_SHIFT + k) & 1 ? (uint32_t)(c >> WRITER_SHIFT & MANY) : 0;
        s->is_atomic[k] = c & IS_ATOMIC;
    }
    *cell = launch << LAUNCH_SHIFT | SPLIT | n_splits++;
    return s;
}

/* Some bytes of a word, where several blocks use different ones. */
static void touch_split(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned mask,
                        int how, uint64_t *cell)
{
    struct split *s = split_of(cell);
    for (unsigned k = 0; k < WORD; k++)
        if (mask >> k & 1) touch_byte(w, i, lane, address / WORD * WORD + k, s, how);
    sim_access_add(w->block->access, address, (unsigned)__builtin_popcount(mask), how & PTX_WRITES);
}

/* Some bytes (mask) of a word. */
static void touch_word(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned mask,
                       int how)
{
    uint64_t *cell = &cells[(address - SIM_BASE) / WORD], me = w->block->id;
    uint64_t c = *cell >> LAUNCH_SHIFT == launch ? *cell : launch << LAUNCH_SHIFT;
    unsigned read_mask = c >> READ_MASK_SHIFT & 15, write_mask = c >> WRITE_MASK_SHIFT & 15;
    unsigned bytes = (unsigned)__builtin_popcount(mask);
    uint64_t reader = c >> READER_SHIFT & MANY, writer = c >> WRITER_SHIFT & MANY;
    bool is_atomic = c & IS_ATOMIC, is_mixed = c & IS_MIXED, ours_is_atomic = how & PTX_ATOMIC;
    bool other_writer = writer && writer != me, other_reader = reader && reader != me;
    if (c & SPLIT || (other_writer && write_mask != mask) || (other_reader && writer && read_mask != mask) ||
        (is_mixed && how & PTX_WRITES)) {
        *cell = c;
        touch_split(w, i, lane, address, mask, how, cell);
        return;
    }
    if (other_writer && !(is_atomic && ours_is_atomic)) {
        conflict(w, i, lane, address, how, writer, true, is_atomic);
        writer = me;
    }
    if (how & PTX_NONCOHERENT && write_mask & mask) noncoherent(w, i, lane, address);
    if (how & PTX_WRITES) {
        if (other_reader && read_mask & mask) conflict(w, i, lane, address, how, reader, false, false);
        is_atomic = ours_is_atomic && (!writer || is_atomic);
        writer = writer && writer != me ? MANY : me;
        if ((write_mask & mask) != mask) sim_access_add(w->block->access, address, bytes, true);
        write_mask |= mask;
    } else if (!ours_is_atomic) {
        is_mixed |= other_reader && read_mask != mask;
        reader = other_reader ? MANY : me;
        if ((read_mask & mask) != mask) sim_access_add(w->block->access, address, bytes, false);
        read_mask |= mask;
    }
    *cell = launch << LAUNCH_SHIFT | (is_atomic ? IS_ATOMIC : 0) | (is_mixed ? IS_MIXED : 0) |
            (uint64_t)write_mask << WRITE_MASK_SHIFT | (uint64_t)read_mask << READ_MASK_SHIFT | writer << WRITER_SHIFT |
            reader << READER_SHIFT;
}

/* ---- one lane ---- */

static bool is_readable(const uint8_t *shadow, unsigned bytes)
{
    uint32_t wrong = 0;
    for (unsigned k = 0; k < bytes; k += 4) {
        uint32_t x;
        memcpy(&x, shadow + k, sizeof x);
        wrong |= x ^ (uint32_t)EACH_BYTE(SIM_INITIALISED);
    }
    return !wrong;
}

static void outside(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned bytes,
                    int how)
{
    const char *what = how & PTX_WRITES ? "write" : "read";
    if (address < 1 << 16)
        ptx_die(w, i, lane, "%s of %u bytes through a null pointer (0x%llx)", what, bytes, (unsigned long long)address);
    if (!sim_is_device(address))
        ptx_die(w, i, lane, "%s of %u bytes at 0x%llx, which is not device memory (a pointer of the host?)", what,
                bytes, (unsigned long long)address);
    bool is_freed = sim_shadow[address - SIM_BASE] == SIM_FREED || strstr(sim_where(address).text, "into the freed");
    ptx_die(w, i, lane, "%s of %u bytes at 0x%llx %s: %s", what, bytes, (unsigned long long)address,
            is_freed ? "after it was freed" : "out of bounds", sim_where(address).text);
}

uint8_t *ptx_global_one(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned bytes,
                        int how)
{
    struct ptx_block *b = w->block;
    if (address & (bytes - 1))
        ptx_die(w, i, lane, "misaligned: %u bytes at 0x%llx", bytes, (unsigned long long)address);
    if (!sim_is_device(address)) outside(w, i, lane, address, bytes, how);
    uint8_t *shadow = sim_shadow + (address - SIM_BASE);
    bool is_uninitialised = false, is_fine = bytes >= WORD && is_readable(shadow, bytes);
    for (unsigned k = 0; k < bytes && !is_fine; k++) {
        if (shadow[k] != SIM_INITIALISED && shadow[k] != SIM_UNINITIALISED)
            outside(w, i, lane, address + k, bytes, how);
        is_uninitialised |= shadow[k] == SIM_UNINITIALISED;
    }
    if (is_uninitialised) {
        if (how & PTX_READS)
            ptx_report(w, i, lane, PTX_R_UNINITIALISED, "read of uninitialised device memory at 0x%llx: %s",
                       (unsigned long long)address, sim_where(address).text);
        memset(shadow, SIM_INITIALISED, bytes);
    }
    if (bytes >= WORD)
        for (unsigned k = 0; k < bytes; k += WORD) touch_word(w, i, lane, address + k, 15, how);
    else
        touch_word(w, i, lane, address, ((1u << bytes) - 1) << address % WORD, how);
    if (how & PTX_READS) b->counters->global_bytes_read += bytes;
    if (how & PTX_WRITES) b->counters->global_bytes_written += bytes;
    return sim_alias + (address - SIM_BASE);
}

/* ---- many bytes in a row ---- */

/* All uninitialised or initialised: 1 or 2. */
static bool is_writable(const uint8_t *shadow, unsigned bytes)
{
    uint32_t wrong = 0;
    for (unsigned k = 0; k < bytes; k += 4) {
        uint32_t x;
        memcpy(&x, shadow + k, sizeof x);
        wrong |= ~(x ^ (x >> 1)) & (uint32_t)EACH_BYTE(1);
    }
    return !wrong;
}

/* The words were touched by nobody, by this block or read by others: then their new cells are all there is to do. */
static bool read_words(uint64_t *c, unsigned n, uint64_t me, bool is_coherent, bool *is_new)
{
    uint64_t base = launch << LAUNCH_SHIFT, wrong = 0, fresh = 0;
    uint64_t mine = ALL_READ | me, many = ALL_READ | MANY, written = ALL_WRITTEN | me << WRITER_SHIFT;
#pragma GCC ivdep
    for (unsigned k = 0; k < n; k++) {
        uint64_t rest = c[k] ^ base;
        bool is_stale = rest >> LAUNCH_SHIFT, is_read = (rest & ~MANY) == ALL_READ;
        bool is_written = rest == written || rest == (written | mine);
        uint64_t then = is_stale ? mine : is_read ? (rest == mine ? mine : many) : written | mine;
        fresh |= is_stale | (rest == written);
        wrong |= !(is_stale | is_read | (is_written & is_coherent));
        c[k] = is_stale | is_read | is_written ? base | then : c[k];
    }
    *is_new |= fresh;
    return !wrong;
}

static bool write_words(uint64_t *c, unsigned n, uint64_t me, bool *is_new)
{
    uint64_t base = launch << LAUNCH_SHIFT, wrong = 0, fresh = 0;
    uint64_t mine = ALL_READ | me, written = ALL_WRITTEN | me << WRITER_SHIFT;
#pragma GCC ivdep
    for (unsigned k = 0; k < n; k++) {
        uint64_t rest = c[k] ^ base;
        bool is_stale = rest >> LAUNCH_SHIFT, is_mine = rest == mine;
        bool is_written = rest == written || rest == (written | mine);
        fresh |= is_stale | is_mine;
        wrong |= !(is_stale | is_mine | is_written);
        c[k] = is_stale ? base | written : is_mine ? base | written | mine : c[k];
    }
    *is_new |= fresh;
    return !wrong;
}

uint8_t *ptx_global_range(struct ptx_warp *w, uint64_t address, unsigned bytes, int how)
{
    struct ptx_block *b = w->block;
    uint64_t offset = address - SIM_BASE;
    if (offset >= SIM_BYTES - bytes) return NULL;
    uint8_t *shadow = sim_shadow + offset;
    uint64_t *c = &cells[offset / WORD];
    bool is_new = false, is_fine, is_write = how & PTX_WRITES;
    if (is_write) {
        if (!is_writable(shadow, bytes)) return NULL;
        is_fine = write_words(c, bytes / WORD, b->id, &is_new);
    } else {
        if (!is_readable(shadow, bytes)) return NULL;
        is_fine = read_words(c, bytes / WORD, b->id, !(how & PTX_NONCOHERENT), &is_new);
    }
    if (is_new) {
        sim_access_add(b->access, address, bytes, is_write);
        if (is_write) memset(shadow, SIM_INITIALISED, bytes);
    }
    if (!is_fine) return NULL;
    if (is_write)
        b->counters->global_bytes_written += bytes;
    else
        b->counters->global_bytes_read += bytes;
    return sim_alias + offset;
}

/* ---- lanes here and there ---- */

/* Of a read: is the cell as it would be after it? */
static inline bool is_read_before(uint64_t c, uint64_t base, uint64_t me, unsigned mask)
{
    uint64_t rest = (c ^ base) & ~IS_MIXED, reader = rest & MANY, read_mask = rest >> READ_MASK_SHIFT;
    return (reader == me || reader == MANY) && !(rest >> WRITER_SHIFT & MANY) && read_mask < 16 && !(mask & ~read_mask);
}

static inline bool is_initialised(uint64_t offset, unsigned bytes)
{
    uint16_t halves;
    uint32_t word;
    uint64_t words[2];
    switch (bytes) {
    case 2: memcpy(&halves, sim_shadow + offset, 2); return halves == (uint16_t)EACH_BYTE(SIM_INITIALISED);
    case 4: memcpy(&word, sim_shadow + offset, 4); return word == (uint32_t)EACH_BYTE(SIM_INITIALISED);
    case 8: memcpy(words, sim_shadow + offset, 8); return words[0] == EACH_BYTE(SIM_INITIALISED);
    case 16:
        memcpy(words, sim_shadow + offset, 16);
        return words[0] == EACH_BYTE(SIM_INITIALISED) && words[1] == EACH_BYTE(SIM_INITIALISED);
    default: return false;
    }
}

uint32_t ptx_global_unknown(struct ptx_warp *w, uint32_t mask, const uint64_t *addresses, unsigned bytes)
{
    uint64_t base = launch << LAUNCH_SHIFT, me = w->block->id;
    uint32_t unknown = 0;
    PTX_EACH(lane, mask)
    {
        uint64_t offset = addresses[lane] - SIM_BASE;
        if (offset >= SIM_BYTES || offset & (bytes - 1) || !is_initialised(offset, bytes)) {
            unknown |= 1u << lane;
            continue;
        }
        const uint64_t *c = &cells[offset / WORD];
        unsigned bits = bytes < WORD ? ((1u << bytes) - 1) << offset % WORD : 15;
        bool is_known = is_read_before(c[0], base, me, bits);
        for (unsigned k = 1; k < bytes / WORD; k++) is_known &= is_read_before(c[k], base, me, 15);
        unknown |= (uint32_t)!is_known << lane;
    }
    w->block->counters->global_bytes_read += (uint64_t)bytes * (unsigned)__builtin_popcount(mask & ~unknown);
    return unknown;
}
