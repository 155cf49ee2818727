/* SPDX-License-Identifier: MIT */
/* One statement into instructions: operands, arithmetic by table, moves and flow of control. */
#include "ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ptx_has(const struct ptx_statement *s, const char *part)
{
    for (int i = 1; i < s->n_parts; i++)
        if (ptx_word_is(s->parts[i], part)) return true;
    return false;
}

struct ptx_word ptx_last(const struct ptx_statement *s) { return s->parts[s->n_parts - 1]; }

/* ---- operands ---- */

static bool read_number(struct ptx_word w, unsigned bytes, char letter, uint64_t *value)
{
    char text[40];
    if (!w.n || w.n >= sizeof text) return false;
    memcpy(text, w.at, w.n);
    text[w.n] = 0;
    char *end;
    if (w.n > 2 && text[0] == '0' && strchr("fFdD", text[1])) {
        bool is_float = text[1] == 'f' || text[1] == 'F';
        *value = strtoull(text + 2, &end, 16);
        if (*end) return false;
        if (is_float && bytes == 8) { /* a float where a double is wanted */
            uint32_t bits = (uint32_t)*value;
            float f;
            double wide;
            memcpy(&f, &bits, sizeof f);
            wide = f;
            memcpy(value, &wide, sizeof wide);
        }
        return is_float || bytes == 8;
    }
    if (letter == 'f' || letter == 'd') {
        double x = strtod(text, &end);
        float f = (float)x;
        uint32_t bits;
        if (*end || end == text || !((*text >= '0' && *text <= '9') || *text == '-')) return false;
        memcpy(&bits, &f, sizeof bits);
        if (letter == 'f')
            *value = bits;
        else
            memcpy(value, &x, sizeof x);
        return true;
    }
    return ptx_word_number(w, value);
}

/* The slot of an address that is known when the kernel starts. */
static uint32_t variable_slot(struct ptx_decoder *d, const struct ptx_variable *v, int64_t offset, unsigned bytes)
{
    const struct ptx_module *m = d->module;
    if (v->space == PTX_SHARED && v->is_extern) return ptx_constant_slot(d, (uint64_t)offset, bytes, PTX_DYNAMIC);
    if (v->space == PTX_GLOBAL || v->space == PTX_CONSTANT)
        return ptx_constant_slot(d, (uint64_t)offset, bytes, (int)(v - m->variables));
    return ptx_constant_slot(d, v->address + (uint64_t)offset, bytes, PTX_PLAIN_VALUE);
}

bool ptx_register_slot(struct ptx_decoder *d, struct ptx_word w, uint32_t *slot, uint8_t *bytes)
{
    const struct ptx_register *r = ptx_find_register(d, w, slot);
    if (r) *bytes = r->bytes;
    return r;
}

bool ptx_source(struct ptx_decoder *d, struct ptx_word w, unsigned bytes, char letter, uint32_t *slot)
{
    const struct ptx_register *r = ptx_find_register(d, w, slot);
    if (r) return r->bytes == bytes;
    int special = ptx_special_find(w);
    if (special >= 0) {
        if (ptx_special_bytes(special) != bytes) return false;
        *slot = ptx_special_slot(d, special);
        return true;
    }
    uint64_t value;
    if (ptx_word_is(w, "WARP_SZ")) {
        *slot = ptx_constant_slot(d, PTX_LANES, bytes, PTX_PLAIN_VALUE);
        return bytes != 0;
    }
    if (!bytes && ptx_word_number(w, &value)) {
        *slot = ptx_constant_slot(d, value ? PTX_ALL : 0, 0, PTX_PLAIN_VALUE);
        return true;
    }
    if (bytes && read_number(w, bytes, letter, &value)) {
        if (bytes < 8) value &= (UINT64_C(1) << 8 * bytes) - 1;
        *slot = ptx_constant_slot(d, value, bytes, PTX_PLAIN_VALUE);
        return true;
    }
    const struct ptx_variable *v = bytes >= 4 ? ptx_find_variable(d, w) : NULL;
    if (v) *slot = variable_slot(d, v, 0, bytes);
    return v;
}

static void run_not(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    ptx_u32 *d = PTX_SLOT(w, i, 0);
    *d = (*d & ~mask) | (~*(ptx_u32 *)PTX_SLOT(w, i, 1) & mask);
}

bool ptx_slots(struct ptx_decoder *d, const struct ptx_operand *o, unsigned bytes, char letter, uint32_t *slots, int n)
{
    if (o->kind == PTX_O_LIST) {
        if (o->n_items != n) return false;
        for (int k = 0; k < n; k++)
            if (ptx_word_is(o->items[k], "_"))
                slots[k] = PTX_NONE;
            else if (!ptx_source(d, o->items[k], bytes, letter, &slots[k]))
                return false;
        return true;
    }
    if (o->kind != PTX_O_WORD || n != 1 || o->second.n) return false;
    if (o->offset) { /* a variable's address and an offset */
        const struct ptx_variable *v = ptx_find_variable(d, o->word);
        if (v) slots[0] = variable_slot(d, v, o->offset, bytes);
        return v;
    }
    if (!ptx_source(d, o->word, bytes, letter, &slots[0])) return false;
    if (o->is_negated) {
        if (bytes) return false;
        struct ptx_insn i = PTX_BLANK;
        i.run = run_not;
        i.slot[0] = ptx_new_slot(d, 0);
        i.slot[1] = slots[0];
        slots[0] = i.slot[0];
        *ptx_emit(d, o->word) = i;
    }
    return true;
}

bool ptx_address(struct ptx_decoder *d, const struct ptx_operand *o, struct ptx_insn *i, int slot)
{
    if (o->kind != PTX_O_ADDRESS) return false;
    i->offset = o->offset;
    if (ptx_register_slot(d, o->word, &i->slot[slot], &i->address_bytes)) return i->address_bytes >= 4;
    const struct ptx_variable *v = ptx_find_variable(d, o->word);
    uint64_t number;
    if (v) {
        if (i->space == PTX_PARAMETER && v->space == PTX_LOCAL) i->space = PTX_LOCAL;
        if (v->space != i->space && !(i->space == PTX_GENERIC && v->space == PTX_GLOBAL)) return false;
        i->address_bytes = 8;
        i->slot[slot] = variable_slot(d, v, 0, 8);
        return true;
    }
    if (!ptx_word_number(o->word, &number)) return false;
    i->address_bytes = 8;
    i->slot[slot] = ptx_constant_slot(d, number, 8, PTX_PLAIN_VALUE);
    return true;
}

/* ---- arithmetic by table ---- */

static unsigned letter_bytes(char letter)
{
    return strchr("lLd", letter) ? 8 : strchr("hH", letter) ? 2 : letter == 'p' ? 0 : 4;
}

/* "add.rn.ftz.f32" -> "add.f32": what does not change what the simulator computes. */
static bool canonical_name(const struct ptx_statement *s, char *name, size_t size)
{
    static const char *const dropped[] = {"rn", "ftz", "approx", "full", "aligned"};
    size_t n = 0;
    for (int k = 0; k < s->n_parts; k++) {
        bool is_dropped = false;
        for (size_t j = 0; k && j < sizeof dropped / sizeof *dropped; j++)
            is_dropped |= ptx_word_is(s->parts[k], dropped[j]);
        if (is_dropped) continue;
        if (n + s->parts[k].n + 2 > size) return false;
        if (k) name[n++] = '.';
        memcpy(name + n, s->parts[k].at, s->parts[k].n);
        n += s->parts[k].n;
    }
    name[n] = 0;
    return true;
}

static bool decode_by_table(struct ptx_decoder *d, const struct ptx_statement *s)
{
    char name[64];
    if (!canonical_name(s, name, sizeof name)) return false;
    const struct ptx_op *op = ptx_scalar_find(name);
    if (!op || (int)strlen(op->letters) != s->n) return false;
    struct ptx_insn i = PTX_BLANK;
    i.run = op->run;
    uint32_t more = PTX_NONE;
    for (int k = 0; k < s->n; k++) {
        char letter = op->letters[k];
        if (!ptx_slots(d, &s->o[k], letter_bytes(letter), letter, k < 4 ? &i.slot[k] : &more, 1)) return false;
    }
    if (s->n > 4) {
        uint32_t *list = ptx_alloc(d->module, sizeof *list);
        *list = more;
        i.list = list;
    }
    *ptx_emit(d, s->text) = i;
    return true;
}

/* ---- setp: slot 0 (and target): p|q, 1 and 2: compared, 3: combined with ---- */

static void run_setp(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    ptx_u32 *p = PTX_SLOT(w, i, 0);
    *p = (*p & ~mask) | (i->compare(PTX_SLOT(w, i, 1), PTX_SLOT(w, i, 2)) & mask);
}

static void run_setp_combined(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    uint32_t r = i->compare(PTX_SLOT(w, i, 1), PTX_SLOT(w, i, 2)), not_r = ~r;
    uint32_t c = i->slot[3] == PTX_NONE ? 0 : *(ptx_u32 *)PTX_SLOT(w, i, 3);
    if (i->mode == 'a') r &= c, not_r &= c;
    if (i->mode == 'o') r |= c, not_r |= c;
    if (i->mode == 'x') r ^= c, not_r ^= c;
    if (i->slot[0] != PTX_NONE) {
        ptx_u32 *p = PTX_SLOT(w, i, 0);
        *p = (*p & ~mask) | (r & mask);
    }
    if (i->target != PTX_NONE) {
        ptx_u32 *q = (void *)(w->registers + i->target);
        *q = (*q & ~mask) | (not_r & mask);
    }
}

static bool decode_setp(struct ptx_decoder *d, const struct ptx_statement *s)
{
    if (s->n_parts < 3 || s->n < 3) return false;
    struct ptx_insn i = PTX_BLANK;
    char name[32];
    struct ptx_word type = ptx_last(s);
    snprintf(name, sizeof name, "%.*s.%.*s", (int)s->parts[1].n, s->parts[1].at, (int)type.n, type.at);
    const struct ptx_compare_op *op = ptx_compare_find(name);
    if (!op) return false;
    i.compare = op->compare;
    i.mode = ptx_has(s, "and") ? 'a' : ptx_has(s, "or") ? 'o' : ptx_has(s, "xor") ? 'x' : 0;
    if (s->n != (i.mode ? 4 : 3)) return false;
    struct ptx_operand first = s->o[0];
    struct ptx_word second = first.second;
    first.second.n = 0;
    if (!ptx_word_is(first.word, "_") && !ptx_slots(d, &first, 0, 'p', &i.slot[0], 1)) return false;
    if (second.n && !ptx_word_is(second, "_") && !ptx_source(d, second, 0, 'p', &i.target)) return false;
    for (int k = 1; k < 3; k++)
        if (!ptx_slots(d, &s->o[k], letter_bytes(*op->letter), *op->letter, &i.slot[k], 1)) return false;
    if (i.mode && !ptx_slots(d, &s->o[3], 0, 'p', &i.slot[3], 1)) return false;
    i.run = i.mode || i.target != PTX_NONE || i.slot[0] == PTX_NONE ? run_setp_combined : run_setp;
    *ptx_emit(d, s->text) = i;
    return true;
}

/* ---- flow ---- */

static void run_set_return(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    ptx_u32 *slot = PTX_SLOT(w, i, 0);
    PTX_EACH(lane, mask) slot[lane] = i->target;
}

/* In the frames of the lanes: slot 0: to, slot 1: from, slot 2: bytes. */
static void run_copy(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    PTX_EACH(lane, mask)
    {
        size_t frame = (size_t)(w->id * PTX_LANES + lane) * w->program->local_bytes;
        memcpy(w->block->local + frame + i->slot[0], w->block->local + frame + i->slot[1], i->slot[2]);
        memcpy(w->block->local_shadow + frame + i->slot[0], w->block->local_shadow + frame + i->slot[1], i->slot[2]);
    }
}

static void run_trap(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    ptx_die(w, i, (unsigned)__builtin_ctz(mask), "the kernel stops itself");
}

static void use_label(struct ptx_decoder *d, struct ptx_word name)
{
    d->uses = ptx_room(d->module, d->uses, sizeof *d->uses, d->n_uses, &d->uses_capacity);
    d->uses[d->n_uses++] = (struct ptx_use){.name = name, .scope = d->scope, .insn = d->program->n};
}

static bool copy_parameters(struct ptx_decoder *d, const struct ptx_statement *s, const struct ptx_operand *o,
                            const struct ptx_variable *theirs, int n, bool is_result)
{
    if ((o ? o->n_items : 0) != n) return false;
    for (int k = 0; k < n; k++) {
        const struct ptx_variable *ours = ptx_find_variable(d, o->items[k]);
        if (!ours || ours->space != PTX_LOCAL || ours->bytes != theirs[k].bytes) return false;
        struct ptx_insn i = PTX_BLANK;
        i.run = run_copy;
        i.slot[0] = (uint32_t)(is_result ? ours : &theirs[k])->address;
        i.slot[1] = (uint32_t)(is_result ? &theirs[k] : ours)->address;
        i.slot[2] = (uint32_t)ours->bytes;
        *ptx_emit(d, s->text) = i;
    }
    return true;
}

/* call (results), name, (parameters): copies, the way back, a branch; behind it the results are copied. */
static bool decode_call(struct ptx_decoder *d, const struct ptx_statement *s)
{
    const struct ptx_operand *results = s->n && s->o[0].kind == PTX_O_LIST ? &s->o[0] : NULL;
    int at = results ? 1 : 0;
    if (at >= s->n || s->o[at].kind != PTX_O_WORD || s->n > at + 2) return false;
    const struct ptx_operand *parameters = s->n == at + 2 ? &s->o[at + 1] : NULL;
    struct ptx_word name = s->o[at].word;
    int body = ptx_body_of(d, name);
    if (body < 0) return ptx_decode_library_call(d, s, name, parameters, results);
    const struct ptx_body *b = &d->bodies[body];
    d->bodies[d->body].calls |= UINT64_C(1) << body;
    if (!copy_parameters(d, s, parameters, b->parameters, b->n_parameters, false)) return false;
    struct ptx_insn back = PTX_BLANK, branch = PTX_BLANK;
    back.run = run_set_return;
    back.slot[0] = b->return_slot;
    back.target = d->program->n + 2;
    *ptx_emit(d, s->text) = back;
    branch.kind = PTX_BRANCH;
    d->calls = ptx_room(d->module, d->calls, sizeof *d->calls, d->n_calls, &d->calls_capacity);
    d->calls[d->n_calls++] = (struct ptx_use){.name = name, .insn = d->program->n};
    *ptx_emit(d, s->text) = branch;
    if (copy_parameters(d, s, results, b->results, b->n_results, true)) return true;
    d->n_calls--;
    return false;
}

bool ptx_decode_flow(struct ptx_decoder *d, const struct ptx_statement *s)
{
    struct ptx_insn i = PTX_BLANK;
    const struct ptx_word op = s->parts[0];
    if (ptx_word_is(op, "call")) return decode_call(d, s);
    if (ptx_word_is(op, "bra")) {
        if (s->n != 1 || s->o[0].kind != PTX_O_WORD) return false;
        i.kind = PTX_BRANCH;
        use_label(d, s->o[0].word);
    } else if (ptx_word_is(op, "ret") || ptx_word_is(op, "exit")) {
        i.slot[0] = d->bodies[d->body].return_slot;
        i.kind = i.slot[0] == PTX_NONE || ptx_word_is(op, "exit") ? PTX_EXIT : PTX_RETURN;
    } else if (ptx_word_is(op, "trap") || ptx_word_is(op, "brkpt"))
        i.run = run_trap;
    else
        return false;
    *ptx_emit(d, s->text) = i;
    return true;
}

bool ptx_decode_statement(struct ptx_decoder *d, const struct ptx_statement *s)
{
    static bool (*const families[])(struct ptx_decoder *, const struct ptx_statement *) = {
        ptx_decode_flow, ptx_decode_memory, ptx_decode_warp,   ptx_decode_matrix,
        ptx_decode_move, ptx_decode_async,  ptx_decode_convert};
    if (ptx_word_is(s->parts[0], "setp")) return decode_setp(d, s);
    if (decode_by_table(d, s)) return true;
    uint32_t before = d->program->n;
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        d->program->n = before;
        if (families[k](d, s)) return true;
    }
    return false;
}
