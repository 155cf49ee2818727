/* SPDX-License-Identifier: MIT */
/* cvt, in all its forms but the few that ptx_scalar.inc has. Numbers pass through an integer of 64 bits or a double. */
#include "ptx.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

enum type { U8, U16, U32, U64, S8, S16, S32, S64, T_F16, T_BF16, T_TF32, T_F32, T_F64, TYPES };
enum { SATURATE = 1, RELU = 2, FINITE = 4 };
static const struct {
    const char *name;
    uint8_t bytes;
} types[TYPES] = {
    [U8] = {"u8", 1},       [U16] = {"u16", 2},   [U32] = {"u32", 4},  [U64] = {"u64", 8},   [S8] = {"s8", 1},
    [S16] = {"s16", 2},     [S32] = {"s32", 4},   [S64] = {"s64", 8},  [T_F16] = {"f16", 2}, [T_BF16] = {"bf16", 2},
    [T_TF32] = {"tf32", 4}, [T_F32] = {"f32", 4}, [T_F64] = {"f64", 8}};

static enum type find_type(struct ptx_word w)
{
    enum type t = 0;
    while (t < TYPES && !ptx_word_is(w, types[t].name)) t++;
    return t;
}

static bool is_whole(enum type t) { return t <= S64; }
static bool is_signed(enum type t) { return t >= S8 && t <= S64; }

static double round_whole(double x, char mode)
{
    return mode == 'n' ? nearbyint(x) : mode == 'z' ? trunc(x) : mode == 'm' ? floor(x) : mode == 'p' ? ceil(x) : x;
}

/* A double, or a 64-bit integer (whole), rounded to float as the mode says. */
static float to_float(double x, const int64_t *whole, bool whole_is_signed, char mode)
{
    static const struct {
        char mode;
        int rounding;
    } modes[] = {{'z', FE_TOWARDZERO}, {'m', FE_DOWNWARD}, {'p', FE_UPWARD}, {'n', FE_TONEAREST}};
    int before = fegetround();
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (modes[i].mode == mode) fesetround(modes[i].rounding);
    volatile double from = x;
    volatile int64_t from_whole = whole ? *whole : 0;
    volatile float to = !whole ? (float)from : whole_is_signed ? (float)from_whole : (float)(uint64_t)from_whole;
    fesetround(before);
    return to;
}

/* To a whole number of the type: what is outside becomes the nearest that is inside. */
static uint64_t clamp_double(double x, enum type t)
{
    int bits = 8 * types[t].bytes;
    double limit = ldexp(1, is_signed(t) ? bits - 1 : bits);
    if (x != x) return 0;
    if (x >= limit)
        return is_signed(t) ? (UINT64_C(1) << (bits - 1)) - 1 : bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    if (is_signed(t)) return x <= -limit ? (uint64_t)-1 << (bits - 1) : (uint64_t)(int64_t)x;
    return x <= 0 ? 0 : (uint64_t)x;
}

static uint64_t clamp_whole(int64_t x, bool x_is_signed, enum type t)
{
    int bits = 8 * types[t].bytes;
    uint64_t most = is_signed(t) ? (UINT64_C(1) << (bits - 1)) - 1
                    : bits == 64 ? UINT64_MAX
                                 : (UINT64_C(1) << bits) - 1;
    if (x < 0 && x_is_signed) {
        int64_t least = is_signed(t) ? -(int64_t)most - 1 : 0;
        return (uint64_t)(x < least ? least : x);
    }
    return (uint64_t)x > most ? most : (uint64_t)x;
}

static uint64_t extended(uint64_t raw, enum type t)
{
    int unused = 64 - 8 * types[t].bytes;
    return is_signed(t) ? (uint64_t)((int64_t)(raw << unused) >> unused) : raw << unused >> unused;
}

static double real_of(uint64_t raw, enum type t)
{
    float f;
    double d;
    switch (t) {
    case T_F16: return ptx_from_f16((uint16_t)raw);
    case T_BF16: return ptx_from_bf16((uint16_t)raw);
    case T_F64: memcpy(&d, &raw, sizeof d); return d;
    default: memcpy(&f, &raw, sizeof f); return f;
    }
}

static uint64_t bits_of(double x, const int64_t *whole, bool whole_is_signed, enum type t, char mode, int flags)
{
    uint64_t bits = 0;
    float f;
    double d;
    if (whole) x = whole_is_signed ? (double)*whole : (double)(uint64_t)*whole;
    if (flags & SATURATE) {
        x = x >= 1 ? 1 : x > 0 ? x : 0;
        whole = NULL;
    }
    if (flags & RELU && x < 0) x = 0;
    switch (t) {
    case T_F16: return ptx_encode(x, PTX_F16, mode, flags & FINITE);
    case T_BF16: return ptx_encode(x, PTX_BF16, mode, flags & FINITE);
    case T_TF32: return ptx_encode(x, PTX_TF32, mode, flags & FINITE);
    case T_F64:
        d = x;
        memcpy(&bits, &d, sizeof d);
        return bits;
    default:
        f = to_float(x, whole, whole_is_signed, mode);
        memcpy(&bits, &f, sizeof f);
        return bits;
    }
}

/* count: destination's type, space: source's, mode: rounding; flags. */
static void run_convert(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    enum type to = i->count, from = i->space;
    PTX_EACH(lane, mask)
    {
        uint64_t raw = ptx_get(w, i->slot[1], i->width[1], lane), result;
        if (is_whole(from)) {
            int64_t whole = (int64_t)extended(raw, from);
            if (is_whole(to))
                result = i->flags & SATURATE ? clamp_whole(whole, is_signed(from), to) : (uint64_t)whole;
            else
                result = bits_of(0, &whole, is_signed(from), to, (char)i->mode, i->flags);
        } else {
            double x = real_of(raw, from);
            if (i->bytes) x = round_whole(x, (char)i->mode); /* .rni and so on */
            result = is_whole(to) ? clamp_double(x, to)
                                  : bits_of(x, NULL, false, to, i->bytes ? 'n' : (char)i->mode, i->flags);
        }
        ptx_put(w, i->slot[0], i->width[0], lane, is_whole(to) ? extended(result, to) : result);
    }
}

/* Pairs: count: destination's format, space: source's, PTX_FORMATS: float; two sources where slot[2] is one. */
static void run_convert_pair(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    PTX_EACH(lane, mask)
    {
        double low, high;
        if (i->space == PTX_FORMATS) {
            high = ((ptx_f32 *)PTX_SLOT(w, i, 1))[lane];
            low = ((ptx_f32 *)PTX_SLOT(w, i, 2))[lane];
        } else {
            unsigned bits = i->space == PTX_E4M3 || i->space == PTX_E5M2 ? 8 : 16;
            uint64_t raw = ptx_get(w, i->slot[1], i->width[1], lane);
            low = ptx_decode_number((uint32_t)raw & ((1u << bits) - 1), i->space);
            high = ptx_decode_number((uint32_t)(raw >> bits) & ((1u << bits) - 1), i->space);
        }
        if (i->flags & RELU) {
            low = low < 0 ? 0 : low;
            high = high < 0 ? 0 : high;
        }
        unsigned bits = i->count == PTX_E4M3 || i->count == PTX_E5M2 ? 8 : 16;
        uint64_t value = (uint64_t)ptx_encode(high, i->count, (char)i->mode, i->flags & FINITE) << bits |
                         ptx_encode(low, i->count, (char)i->mode, i->flags & FINITE);
        ptx_put(w, i->slot[0], i->width[0], lane, value);
    }
}

static bool pair_format(struct ptx_word w, uint8_t *format)
{
    static const struct {
        const char *name;
        uint8_t format;
    } names[] = {
        {"f16x2", PTX_F16}, {"bf16x2", PTX_BF16}, {"e4m3x2", PTX_E4M3}, {"e5m2x2", PTX_E5M2}, {"f32", PTX_FORMATS}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ptx_word_is(w, names[i].name)) {
            *format = names[i].format;
            return true;
        }
    return false;
}

/* Rounding and what else stands between cvt and the types. */
static bool read_modifiers(const struct ptx_statement *s, struct ptx_insn *i)
{
    i->mode = 'n';
    for (int k = 1; k < s->n_parts - 2; k++) {
        struct ptx_word p = s->parts[k];
        if (ptx_word_is(p, "rna"))
            i->mode = 'a';
        else if (p.n >= 2 && p.at[0] == 'r' && strchr("nzmp", p.at[1]) && (p.n == 2 || (p.n == 3 && p.at[2] == 'i'))) {
            i->mode = (uint8_t)p.at[1];
            i->bytes = p.n == 3;
        } else if (ptx_word_is(p, "sat"))
            i->flags |= SATURATE;
        else if (ptx_word_is(p, "relu"))
            i->flags |= RELU;
        else if (ptx_word_is(p, "satfinite"))
            i->flags |= FINITE;
        else if (!ptx_word_is(p, "ftz"))
            return false;
    }
    return true;
}

/* A register of any width, or a constant of the type's. */
static bool any_source(struct ptx_decoder *d, const struct ptx_operand *o, unsigned bytes, struct ptx_insn *i, int k)
{
    if (o->kind != PTX_O_WORD || o->is_negated || o->second.n || o->offset) return false;
    if (ptx_register_slot(d, o->word, &i->slot[k], &i->width[k]))
        return i->width[k] >= bytes || (bytes == 1 && i->width[k]);
    i->width[k] = (uint8_t)(bytes < 2 ? 2 : bytes); /* a register holds a byte in two */
    return ptx_source(d, o->word, i->width[k], 'i', &i->slot[k]);
}

bool ptx_decode_convert(struct ptx_decoder *d, const struct ptx_statement *s)
{
    struct ptx_insn i = PTX_BLANK;
    if (!ptx_word_is(s->parts[0], "cvt") || s->n_parts < 3 || s->n < 2 || !read_modifiers(s, &i)) return false;
    struct ptx_word to = s->parts[s->n_parts - 2], from = s->parts[s->n_parts - 1];
    uint8_t to_format, from_format;
    if (s->o[0].kind != PTX_O_WORD || !ptx_register_slot(d, s->o[0].word, &i.slot[0], &i.width[0]) || !i.width[0])
        return false;
    if (pair_format(to, &to_format) && to_format != PTX_FORMATS && pair_format(from, &from_format)) {
        i.run = run_convert_pair;
        i.count = to_format;
        i.space = from_format;
        bool is_two = from_format == PTX_FORMATS;
        unsigned bytes = is_two ? 4 : from_format == PTX_E4M3 || from_format == PTX_E5M2 ? 2 : 4;
        if (s->n != (is_two ? 3 : 2)) return false;
        for (int k = 1; k < 2 + is_two; k++) {
            if (!ptx_slots(d, &s->o[k], bytes, is_two ? 'f' : 'i', &i.slot[k], 1)) return false;
            i.width[k] = (uint8_t)bytes;
        }
    } else {
        enum type t = find_type(to), f = find_type(from);
        if (t == TYPES || f == TYPES || s->n != 2 || i.width[0] < types[t].bytes) return false;
        if (!any_source(d, &s->o[1], types[f].bytes, &i, 1)) return false;
        if (is_whole(t) && !is_whole(f) && !i.bytes) return false;
        i.run = run_convert;
        i.count = (uint8_t)t;
        i.space = (uint8_t)f;
    }
    *ptx_emit(d, s->text) = i;
    return true;
}
