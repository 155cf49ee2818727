/* SPDX-License-Identifier: MIT */
/* atom and red. slot 0: address, 2: second operand of cas; list: destinations, then operands. */
#include "ptx.h"

#include <math.h>
#include <string.h>

enum operation { ADD, MIN, MAX, INC, DEC, AND, OR, XOR, EXCH, CAS, OPERATIONS };
enum type { U32, U64, S32, S64, F32, F64, F16, BF16, F16X2, BF16X2, TYPES };
static const char *const operations[OPERATIONS] = {"add", "min", "max", "inc",  "dec",
                                                   "and", "or",  "xor", "exch", "cas"};
static const struct {
    const char *name;
    uint8_t type, bytes;
} types[] = {{"u32", U32, 4}, {"b32", U32, 4},     {"u64", U64, 8},      {"b64", U64, 8}, {"s32", S32, 4},
             {"s64", S64, 8}, {"f32", F32, 4},     {"f64", F64, 8},      {"f16", F16, 2}, {"bf16", BF16, 2},
             {"b16", F16, 2}, {"f16x2", F16X2, 4}, {"bf16x2", BF16X2, 4}};

static double real(uint64_t bits, enum type t)
{
    float f;
    double d;
    if (t == F16) return ptx_from_f16((uint16_t)bits);
    if (t == BF16) return ptx_from_bf16((uint16_t)bits);
    if (t == F32) {
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    memcpy(&d, &bits, sizeof d);
    return d;
}

static uint64_t real_operation(enum operation op, enum type t, uint64_t a, uint64_t b)
{
    if (t == F16X2 || t == BF16X2) {
        enum type half = t == F16X2 ? F16 : BF16;
        return real_operation(op, half, a & 0xffff, b & 0xffff) | real_operation(op, half, a >> 16, b >> 16) << 16;
    }
    double x = real(a, t), y = real(b, t), r = op == ADD ? x + y : op == MIN ? fmin(x, y) : fmax(x, y);
    uint64_t bits = 0;
    float f = (float)r;
    if (t == F16) return ptx_encode(r, PTX_F16, 'n', false);
    if (t == BF16) return ptx_encode(r, PTX_BF16, 'n', false);
    if (t == F32 && op == ADD) f = (float)x + (float)y;
    if (t == F32)
        memcpy(&bits, &f, sizeof f);
    else
        memcpy(&bits, &r, sizeof r);
    return bits;
}

static uint64_t whole_operation(enum operation op, enum type t, uint64_t a, uint64_t b, uint64_t c)
{
    bool is_less = t == S32 ? (int32_t)a < (int32_t)b : t == S64 ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case ADD: return a + b;
    case MIN: return is_less ? a : b;
    case MAX: return is_less ? b : a;
    case INC: return a >= b ? 0 : a + 1;
    case DEC: return a == 0 || a > b ? b : a - 1;
    case AND: return a & b;
    case OR: return a | b;
    case XOR: return a ^ b;
    case EXCH: return b;
    default: return a == b ? c : a;
    }
}

/* mode: operation, address_bytes as ever, width[1]: type, width[0]: of a register. Lanes go one after the other. */
static void run_atomic(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint64_t addresses[PTX_LANES];
    enum type t = i->width[1];
    ptx_addresses(w, i, 0, addresses);
    PTX_EACH(lane, mask)
    {
        uint8_t *p = ptx_memory_one(w, i, lane, addresses[lane], i->bytes * i->count, i->space,
                                    PTX_READS | PTX_WRITES | PTX_ATOMIC);
        for (unsigned k = 0; k < i->count; k++, p += i->bytes) {
            uint64_t old = 0, b = ptx_get(w, i->list[i->count + k], i->width[0], lane);
            uint64_t c = i->slot[2] == PTX_NONE ? 0 : ptx_get(w, i->slot[2], i->width[0], lane);
            memcpy(&old, p, i->bytes);
            uint64_t result = t >= F32 && i->mode <= MAX ? real_operation(i->mode, t, old, b)
                                                         : whole_operation(i->mode, t, old, b, c);
            memcpy(p, &result, i->bytes);
            if (i->list[k] != PTX_NONE) ptx_put(w, i->list[k], i->width[0], lane, old);
        }
    }
}

static bool read_parts(const struct ptx_statement *s, struct ptx_insn *i)
{
    struct ptx_word type = ptx_last(s);
    i->mode = OPERATIONS;
    i->count = 1;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (ptx_word_is(type, types[k].name)) {
            i->width[1] = types[k].type;
            i->bytes = types[k].bytes;
        }
    if (!i->bytes) return false;
    i->width[0] = i->bytes;
    for (int k = 1; k < s->n_parts - 1; k++) {
        struct ptx_word p = s->parts[k];
        bool is_operation = false;
        for (int op = 0; op < OPERATIONS && !is_operation; op++)
            if (ptx_word_is(p, operations[op])) {
                i->mode = (uint8_t)op;
                is_operation = true;
            }
        if (is_operation || ptx_read_space(p, &i->space) || ptx_is_hint(p) || ptx_word_is(p, "noftz")) continue;
        if (p.n == 2 && p.at[0] == 'v' && strchr("248", p.at[1]))
            i->count = (uint8_t)(p.at[1] - '0');
        else if (!ptx_word_is(p, "relaxed") && !ptx_word_is(p, "acquire") && !ptx_word_is(p, "release") &&
                 !ptx_word_is(p, "acq_rel"))
            return false;
    }
    bool is_real = i->width[1] >= F32;
    return i->mode < OPERATIONS && (!is_real || i->mode <= MAX || i->mode >= EXCH) && i->bytes * i->count <= 16;
}

bool ptx_decode_atomic(struct ptx_decoder *d, const struct ptx_statement *s)
{
    struct ptx_insn i = PTX_BLANK;
    bool has_result = ptx_word_is(s->parts[0], "atom");
    if (!read_parts(s, &i)) return false;
    int at = has_result, wanted = at + 2 + (i.mode == CAS) + ptx_has(s, "L2::cache_hint");
    char letter = i.width[1] == F32 ? 'f' : i.width[1] == F64 ? 'd' : 'i';
    uint32_t *list = ptx_alloc(d->module, 2u * i.count * sizeof *list);
    if (s->n != wanted) return false;
    for (int k = 0; k < i.count; k++) list[k] = PTX_NONE;
    if (has_result && !ptx_word_is(s->o[0].word, "_") && !ptx_slots(d, &s->o[0], i.bytes, letter, list, i.count))
        return false;
    if (!ptx_address(d, &s->o[at], &i, 0) || !ptx_slots(d, &s->o[at + 1], i.bytes, letter, list + i.count, i.count))
        return false;
    if (i.mode == CAS && !ptx_slots(d, &s->o[at + 2], i.bytes, letter, &i.slot[2], 1)) return false;
    if (i.space == PTX_LOCAL || i.space == PTX_CONSTANT || i.space == PTX_PARAMETER) return false;
    i.list = list;
    i.run = run_atomic;
    *ptx_emit(d, s->text) = i;
    return true;
}
