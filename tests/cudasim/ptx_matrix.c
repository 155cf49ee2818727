/* SPDX-License-Identifier: MIT */
/*
 * Tensor cores: ldmatrix, stmatrix, mma.sync. Fragments are laid out over the lanes as the PTX manual says: with
 * g = lane / 4 and t = lane % 4, a word of A holds columns 2t, 2t+1 (tf32: column t) of row g, and so on. Sums are
 * taken in float, the addend first; a real device sums in an order that nobody knows.
 */
#include "ptx.h"

#include <string.h>

enum { A, B, C, D };

static void need_all(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    if (mask != PTX_ALL)
        ptx_die(w, i, (unsigned)__builtin_ctz(mask), "all 32 lanes have to be here, and there are 0x%08x", mask);
}

static uint32_t word(const struct ptx_warp *w, uint32_t slot, unsigned lane)
{
    return ((const ptx_u32 *)(w->registers + slot))[lane];
}

/* count: matrices, mode: transposed, flags: ldmatrix writes registers; list: registers. */
static void run_matrix(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint64_t addresses[PTX_LANES];
    need_all(w, i, mask);
    ptx_addresses(w, i, 1, addresses);
    for (unsigned q = 0; q < i->count; q++) {
        uint16_t m[8][8];
        ptx_u32 *registers = (void *)(w->registers + i->list[q]);
        for (unsigned lane = 0; !i->flags && lane < PTX_LANES; lane++)
            for (unsigned half = 0; half < 2; half++) {
                unsigned row = lane / 4, column = lane % 4 * 2 + half;
                uint16_t value = (uint16_t)(registers[lane] >> 16 * half);
                if (i->mode)
                    m[column][row] = value;
                else
                    m[row][column] = value;
            }
        for (unsigned row = 0; row < 8; row++) {
            unsigned lane = 8 * q + row;
            uint8_t *p = ptx_memory_one(w, i, lane, addresses[lane], 16, i->space, i->flags ? PTX_READS : PTX_WRITES);
            if (i->flags)
                memcpy(m[row], p, sizeof m[row]);
            else
                memcpy(p, m[row], sizeof m[row]);
        }
        for (unsigned lane = 0; i->flags && lane < PTX_LANES; lane++) {
            unsigned row = lane / 4, column = lane % 4 * 2;
            registers[lane] = i->mode ? m[column][row] | (uint32_t)m[column + 1][row] << 16
                                      : m[row][column] | (uint32_t)m[row][column + 1] << 16;
        }
    }
}

static float element(uint32_t bits, int format)
{
    return format == PTX_BF16 ? ptx_from_bf16((uint16_t)bits) : ptx_from_f16((uint16_t)bits);
}

static float tf32(uint32_t bits)
{
    float f;
    bits &= ~UINT32_C(0x1fff);
    memcpy(&f, &bits, sizeof f);
    return f;
}

/*
 * mode: format of A and B; count: k; width[A], width[B], width[D]: registers of each; flags: C and D are f16; list: D,
 * A, B, C one after the other. m is 16, n is 8.
 */
static void run_mma(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    float a[16][16], b[8][16], d[16][8];
    const uint32_t *ds = i->list, *as = ds + i->width[D], *bs = as + i->width[A], *cs = bs + i->width[B];
    unsigned per_word = i->mode == PTX_TF32 ? 1 : 2, k_words = 4 * per_word; /* columns of one register of A, over t */
    need_all(w, i, mask);
    for (unsigned lane = 0; lane < PTX_LANES; lane++) {
        unsigned g = lane / 4, t = lane % 4;
        for (unsigned r = 0; r < i->width[A]; r++)
            for (unsigned e = 0; e < per_word; e++) {
                uint32_t bits = word(w, as[r], lane);
                a[g + 8 * (r & 1)][t * per_word + e + k_words * (r >> 1)] =
                    per_word == 1 ? tf32(bits) : element(bits >> 16 * e, i->mode);
            }
        for (unsigned r = 0; r < i->width[B]; r++)
            for (unsigned e = 0; e < per_word; e++) {
                uint32_t bits = word(w, bs[r], lane);
                b[g][t * per_word + e + k_words * r] = per_word == 1 ? tf32(bits) : element(bits >> 16 * e, i->mode);
            }
        for (unsigned r = 0; r < 4; r++) {
            uint32_t bits = word(w, cs[i->flags ? r / 2 : r], lane);
            float value;
            memcpy(&value, &bits, sizeof value);
            d[g + 8 * (r >> 1)][2 * t + (r & 1)] = i->flags ? ptx_from_f16((uint16_t)(bits >> 16 * (r & 1))) : value;
        }
    }
    for (unsigned row = 0; row < 16; row++)
        for (unsigned column = 0; column < 8; column++) {
            float sum = d[row][column];
            for (unsigned k = 0; k < i->count; k++) sum += a[row][k] * b[column][k];
            d[row][column] = sum;
        }
    for (unsigned lane = 0; lane < PTX_LANES; lane++)
        for (unsigned r = 0; r < 4; r++) {
            float value = d[lane / 4 + 8 * (r >> 1)][2 * (lane % 4) + (r & 1)];
            if (!i->flags) {
                ((ptx_f32 *)(w->registers + ds[r]))[lane] = value;
                continue;
            }
            ptx_u32 *to = (ptx_u32 *)(w->registers + ds[r / 2]) + lane;
            *to = r & 1 ? (*to & 0xffff) | (uint32_t)ptx_to_f16(value) << 16 : (*to & 0xffff0000) | ptx_to_f16(value);
        }
}

static bool decode_mma(struct ptx_decoder *d, const struct ptx_statement *s)
{
    static const struct {
        const char *name;
        uint8_t format, k, a, b;
        bool is_half;
    } shapes[] = {{"m16n8k16.row.col.f32.bf16.bf16.f32", PTX_BF16, 16, 4, 2, false},
                  {"m16n8k8.row.col.f32.bf16.bf16.f32", PTX_BF16, 8, 2, 1, false},
                  {"m16n8k16.row.col.f32.f16.f16.f32", PTX_F16, 16, 4, 2, false},
                  {"m16n8k8.row.col.f32.f16.f16.f32", PTX_F16, 8, 2, 1, false},
                  {"m16n8k16.row.col.f16.f16.f16.f16", PTX_F16, 16, 4, 2, true},
                  {"m16n8k8.row.col.f32.tf32.tf32.f32", PTX_TF32, 8, 4, 2, false},
                  {"m16n8k4.row.col.f32.tf32.tf32.f32", PTX_TF32, 4, 2, 1, false}};
    struct ptx_insn i = PTX_BLANK;
    if (s->n != 4 || s->n_parts < 4 || !ptx_word_is(s->parts[1], "sync") || !ptx_word_is(s->parts[2], "aligned"))
        return false;
    struct ptx_word last = ptx_last(s), rest = {s->parts[3].at, (uint32_t)(last.at + last.n - s->parts[3].at)};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        if (ptx_word_is(rest, shapes[k].name)) {
            i.mode = shapes[k].format;
            i.count = shapes[k].k;
            i.width[A] = shapes[k].a;
            i.width[B] = shapes[k].b;
            i.width[D] = i.width[C] = shapes[k].is_half ? 2 : 4;
            i.flags = shapes[k].is_half;
        }
    if (!i.count) return false;
    uint32_t *list = ptx_alloc(d->module, 16 * sizeof *list);
    int n[4] = {i.width[D], i.width[A], i.width[B], i.width[C]}, at = 0;
    for (int k = 0; k < 4; at += n[k++]) {
        if (!ptx_slots(d, &s->o[k], 4, 'f', list + at, n[k])) return false;
        for (int r = at; r < at + n[k]; r++)
            if (list[r] == PTX_NONE) return false;
    }
    i.list = list;
    i.kind = PTX_CONVERGE;
    i.run = run_mma;
    *ptx_emit(d, s->text) = i;
    return true;
}

static bool decode_matrix(struct ptx_decoder *d, const struct ptx_statement *s, bool is_load)
{
    struct ptx_insn i = PTX_BLANK;
    const struct ptx_operand *registers = &s->o[is_load ? 0 : 1], *address = &s->o[is_load ? 1 : 0];
    i.kind = PTX_CONVERGE;
    i.run = run_matrix;
    i.count = ptx_has(s, "x4") ? 4 : ptx_has(s, "x2") ? 2 : 1;
    i.mode = ptx_has(s, "trans");
    i.flags = is_load;
    i.space = ptx_has(s, "shared") || ptx_has(s, "shared::cta") ? PTX_SHARED : PTX_GENERIC;
    if (s->n != 2 || !ptx_has(s, "sync") || !ptx_has(s, "m8n8") || !ptx_word_is(ptx_last(s), "b16")) return false;
    uint32_t *list = ptx_alloc(d->module, i.count * sizeof *list);
    i.list = list;
    if (!ptx_address(d, address, &i, 1) || !ptx_slots(d, registers, 4, 'i', list, i.count)) return false;
    for (int r = 0; r < i.count; r++)
        if (list[r] == PTX_NONE) return false;
    *ptx_emit(d, s->text) = i;
    return true;
}

bool ptx_decode_matrix(struct ptx_decoder *d, const struct ptx_statement *s)
{
    struct ptx_word op = s->parts[0];
    if (ptx_word_is(op, "ldmatrix")) return decode_matrix(d, s, true);
    if (ptx_word_is(op, "stmatrix")) return decode_matrix(d, s, false);
    return ptx_word_is(op, "mma") && decode_mma(d, s);
}
