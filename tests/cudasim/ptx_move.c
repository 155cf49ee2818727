/* SPDX-License-Identifier: MIT */
/* mov that packs and unpacks, mov of clocks, functions of the device's library. */
#include "ptx.h"

#include <stdio.h>
#include <string.h>

/* list: the parts, width[0]: of one; slot 0: the whole, width[1]. */
static void run_unpack(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    PTX_EACH(lane, mask)
    {
        uint64_t value = ptx_get(w, i->slot[0], i->width[1], lane);
        for (unsigned k = 0; k < i->count; k++)
            if (i->list[k] != PTX_NONE) ptx_put(w, i->list[k], i->width[0], lane, value >> 8 * i->bytes * k);
    }
}

static void run_pack(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    PTX_EACH(lane, mask)
    {
        uint64_t value = 0, part = i->bytes == 4 ? UINT32_MAX : UINT16_MAX;
        for (unsigned k = 0; k < i->count; k++)
            value |= (ptx_get(w, i->list[k], i->width[0], lane) & part) << 8 * i->bytes * k;
        ptx_put(w, i->slot[0], i->width[1], lane, value);
    }
}

static void run_clock(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint64_t now = i->mode == 'g' ? sim_ns() : w->block->counters->warp_instructions + sim_ns() / 2;
    if (i->mode == 'h') now >>= 32;
    PTX_EACH(lane, mask) ptx_put(w, i->slot[0], i->width[0], lane, now);
}

static bool decode_clock(struct ptx_decoder *d, const struct ptx_statement *s)
{
    static const struct {
        const char *name;
        char mode;
    } clocks[] = {
        {"%clock", 'c'}, {"%clock64", 'c'}, {"%clock_hi", 'h'}, {"%globaltimer", 'g'}, {"%globaltimer_lo", 'g'}};
    struct ptx_insn i = PTX_BLANK;
    for (size_t k = 0; k < sizeof clocks / sizeof *clocks; k++)
        if (s->o[1].kind == PTX_O_WORD && ptx_word_is(s->o[1].word, clocks[k].name)) i.mode = (uint8_t)clocks[k].mode;
    if (!i.mode || !ptx_register_slot(d, s->o[0].word, &i.slot[0], &i.width[0]) || i.width[0] < 4) return false;
    i.run = run_clock;
    *ptx_emit(d, s->text) = i;
    return true;
}

bool ptx_decode_move(struct ptx_decoder *d, const struct ptx_statement *s)
{
    struct ptx_insn i = PTX_BLANK;
    if (!ptx_word_is(s->parts[0], "mov") || s->n != 2) return false;
    bool is_unpack = s->o[0].kind == PTX_O_LIST;
    const struct ptx_operand *parts = &s->o[is_unpack ? 0 : 1], *whole = &s->o[is_unpack ? 1 : 0];
    if (parts->kind != PTX_O_LIST) return decode_clock(d, s);
    unsigned bytes = ptx_type_bytes(ptx_last(s));
    if (bytes < 4 || bytes > 8 || !parts->n_items || whole->kind != PTX_O_WORD) return false;
    i.count = (uint8_t)parts->n_items;
    i.bytes = i.width[0] = (uint8_t)(bytes / i.count);
    i.width[1] = (uint8_t)bytes;
    if (bytes % i.count || (i.bytes != 2 && i.bytes != 4)) return false;
    uint32_t *list = ptx_alloc(d->module, i.count * sizeof *list);
    i.list = list;
    if (!ptx_slots(d, parts, i.bytes, 'i', list, i.count) || !ptx_slots(d, whole, bytes, 'i', &i.slot[0], 1))
        return false;
    for (int k = 0; k < i.count; k++)
        if (list[k] == PTX_NONE && !is_unpack) return false;
    i.run = is_unpack ? run_unpack : run_pack;
    *ptx_emit(d, s->text) = i;
    return true;
}

/* ---- the library's functions: list: places of the parameters in the frame, slot 0: of the result ---- */

static uint64_t parameter(const struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, int k)
{
    uint64_t value = 0;
    size_t frame = (size_t)(w->id * PTX_LANES + lane) * w->program->local_bytes;
    memcpy(&value, w->block->local + frame + i->list[k], k == 2 ? 4 : 8);
    return value;
}

/* A text of the module; where it cannot be read, the empty one. */
static const char *text_at(uint64_t address)
{
    uint64_t bytes, base = sim_allocation(address, &bytes);
    const char *p = base ? (const char *)sim_alias + (address - SIM_BASE) : "";
    return base && memchr(p, 0, base + bytes - address) ? p : "";
}

static void run_assert_fail(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    unsigned lane = (unsigned)__builtin_ctz(mask);
    ptx_die(w, i, lane, "the assertion '%s' does not hold", text_at(parameter(w, i, lane, 0)));
}

/* One "%5.2f" with its value from the arguments. Returns where it ends. */
static const char *print_one(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, const char *format,
                             uint64_t *arguments)
{
    size_t n = 1 + strspn(format + 1, "-+ #0123456789.");
    size_t longs = strspn(format + n, "lh"), end = n + longs + 1;
    char kind = format[n + longs], one[40];
    if (kind == '%' || !kind || !strchr("diuxXocsfeEgGp", kind) || end + 2 >= sizeof one) {
        putchar('%');
        return format + (kind == '%' ? end : 1);
    }
    bool is_wide = longs || strchr("sfeEgGp", kind);
    uint64_t value = 0;
    if (is_wide) *arguments = (*arguments + 7) / 8 * 8;
    memcpy(&value, ptx_memory_one(w, i, lane, *arguments, is_wide ? 8 : 4, PTX_GENERIC, PTX_READS), is_wide ? 8 : 4);
    *arguments += is_wide ? 8 : 4;
    double real;
    memcpy(&real, &value, sizeof real);
    memcpy(one, format, n);
    if (strchr("fFeEgG", kind)) {
        snprintf(one + n, sizeof one - n, "%c", kind);
        printf(one, real);
    } else if (kind == 's') {
        snprintf(one + n, sizeof one - n, "s");
        printf(one, text_at(value));
    } else if (kind == 'c')
        putchar((int)value);
    else {
        long long whole = longs || kind == 'p' ? (long long)value
                          : strchr("di", kind) ? (int32_t)value
                                               : (long long)(uint32_t)value;
        snprintf(one + n, sizeof one - n, "ll%c", kind == 'p' ? 'x' : kind);
        printf(one, whole);
    }
    return format + end;
}

static void run_printf(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    PTX_EACH(lane, mask)
    {
        uint64_t arguments = parameter(w, i, lane, 1);
        for (const char *at = text_at(parameter(w, i, lane, 0)); *at;)
            if (*at == '%')
                at = print_one(w, i, lane, at, &arguments);
            else
                putchar(*at++);
        if (i->slot[0] == PTX_NONE) continue;
        size_t frame = (size_t)(w->id * PTX_LANES + lane) * w->program->local_bytes;
        memset(w->block->local + frame + i->slot[0], 0, 4);
        memset(w->block->local_shadow + frame + i->slot[0], SIM_INITIALISED, 4);
    }
    fflush(stdout);
}

bool ptx_decode_library_call(struct ptx_decoder *d, const struct ptx_statement *s, struct ptx_word name,
                             const struct ptx_operand *parameters, const struct ptx_operand *results)
{
    struct ptx_insn i = PTX_BLANK;
    i.run = ptx_word_is(name, "vprintf") ? run_printf : ptx_word_is(name, "__assertfail") ? run_assert_fail : NULL;
    if (!i.run || !parameters || parameters->n_items < 2) return false;
    uint32_t *list = ptx_alloc(d->module, (size_t)parameters->n_items * sizeof *list);
    i.list = list;
    for (int k = 0; k < parameters->n_items; k++) {
        const struct ptx_variable *v = ptx_find_variable(d, parameters->items[k]);
        if (!v || v->space != PTX_LOCAL) return false;
        list[k] = (uint32_t)v->address;
    }
    const struct ptx_variable *result =
        results && results->n_items == 1 ? ptx_find_variable(d, results->items[0]) : NULL;
    if (results && (!result || result->space != PTX_LOCAL || result->bytes != 4)) return false;
    i.slot[0] = result ? (uint32_t)result->address : PTX_NONE;
    *ptx_emit(d, s->text) = i;
    return true;
}
