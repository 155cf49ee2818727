/* SPDX-License-Identifier: MIT */
/*
 * The body of a kernel and of the functions that it calls, statement by statement.
 *
 * Registers and labels belong to scopes: inline assembly opens { } with its own. What a scope declared is dropped when
 * it ends; its slots are not used again, as a branch may lead back.
 */
#include "ptx.h"

#include <string.h>

enum { MOST_REGISTERS = 1 << 20, MOST_SLOT_BYTES = 1 << 26, RED_ZONE = 16, DEPTH = 4096 };

uint32_t ptx_new_slot(struct ptx_decoder *d, unsigned bytes)
{
    struct ptx_program *p = d->program;
    unsigned size = bytes ? bytes * PTX_LANES : 4; /* slots of lanes are aligned for vector instructions */
    if (bytes) p->register_bytes = (p->register_bytes + 63) / 64 * 64;
    uint32_t slot = p->register_bytes;
    if (slot > MOST_SLOT_BYTES) ptx_lex_refuse(&d->lexer, "too many registers");
    p->register_bytes += size;
    return slot;
}

static void declare_registers(struct ptx_decoder *d)
{
    struct ptx_lexer *l = &d->lexer;
    struct ptx_word type = ptx_lex_word(l);
    struct ptx_word plain = {type.at + 1, type.n ? type.n - 1 : 0};
    unsigned bytes = ptx_word_is(plain, "pred") ? 0 : ptx_type_bytes(plain);
    if (!ptx_type_bytes(plain) || bytes > 8) ptx_lex_refuse(l, "a register of a type that is not simulated");
    if (bytes == 1) bytes = 2;
    do {
        struct ptx_register r = {.name = ptx_lex_word(l), .bytes = (uint8_t)bytes, .count = 1};
        if (ptx_lex_take(l, '<')) {
            r.count = (uint32_t)ptx_lex_number(l, MOST_REGISTERS);
            r.is_range = true;
            ptx_lex_expect(l, '>');
        }
        for (uint32_t i = 0; i < r.count; i++) {
            uint32_t slot = ptx_new_slot(d, bytes);
            if (!i) r.slot = slot;
        }
        d->registers = ptx_room(d->module, d->registers, sizeof r, d->n_registers, &d->registers_capacity);
        d->registers[d->n_registers++] = r;
    } while (ptx_lex_take(l, ','));
    ptx_lex_expect(l, ';');
}

const struct ptx_register *ptx_find_register(struct ptx_decoder *d, struct ptx_word name, uint32_t *slot)
{
    for (int i = d->n_registers; i-- > 0;) {
        const struct ptx_register *r = &d->registers[i];
        if (!r->is_range) {
            if (!ptx_word_same(r->name, name)) continue;
            *slot = r->slot;
            return r;
        }
        struct ptx_word rest = {name.at + r->name.n, name.n - r->name.n};
        uint64_t number;
        if (name.n <= r->name.n || memcmp(name.at, r->name.at, r->name.n) != 0 || !ptx_word_number(rest, &number) ||
            number >= r->count)
            continue;
        *slot = r->slot + (uint32_t)number * (r->bytes ? r->bytes * PTX_LANES : 4u);
        return r;
    }
    return NULL;
}

static uint64_t up(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

/* A place in the program's shared memory, with a gap behind it that belongs to nobody. */
static void place_shared(struct ptx_decoder *d, struct ptx_variable *v)
{
    struct ptx_program *p = d->program;
    for (int i = 0; i < p->n_shared; i++)
        if (p->shared[i].name.at == v->name.at) { /* of the module, and placed for another function already */
            *v = p->shared[i];
            return;
        }
    if (v->is_extern) {
        p->has_dynamic_shared = true;
        v->address = PTX_SHARED_FIRST; /* corrected when all others are placed */
    } else {
        uint64_t offset = up(p->shared_bytes, v->align);
        if (offset + v->bytes > 1 << 24) ptx_lex_refuse(&d->lexer, "too much shared memory");
        v->address = PTX_SHARED_FIRST + offset;
        p->shared_bytes = (uint32_t)(offset + v->bytes + RED_ZONE);
        p->shared_static_bytes = (uint32_t)(up(p->shared_static_bytes, v->align) + v->bytes);
    }
    p->shared = ptx_room(d->module, p->shared, sizeof *v, p->n_shared, &p->shared_capacity);
    p->shared[p->n_shared++] = *v;
}

static void place_local(struct ptx_decoder *d, struct ptx_variable *v)
{
    struct ptx_program *p = d->program;
    v->address = up(p->local_bytes + RED_ZONE, v->align);
    if (v->address + v->bytes > 1 << 20) ptx_lex_refuse(&d->lexer, "too much local memory");
    p->local_bytes = (uint32_t)up(v->address + v->bytes + 1, RED_ZONE);
    p->local = ptx_room(d->module, p->local, sizeof *v, p->n_local, &p->local_capacity);
    p->local[p->n_local++] = *v;
}

static void add_variable(struct ptx_decoder *d, const struct ptx_variable *v)
{
    d->variables = ptx_room(d->module, d->variables, sizeof *v, d->n_variables, &d->variables_capacity);
    d->variables[d->n_variables++] = *v;
}

static void declare_variable(struct ptx_decoder *d, enum ptx_space space)
{
    struct ptx_variable v = {.space = (uint8_t)space};
    do {
        ptx_read_variable(&d->lexer, &v);
        if (space == PTX_SHARED)
            place_shared(d, &v);
        else
            place_local(d, &v);
        add_variable(d, &v);
    } while (ptx_lex_take(&d->lexer, ','));
    ptx_lex_expect(&d->lexer, ';');
}

/* Those of the scopes, the parameters of a kernel, those of the module. Shared ones get a place when they are met. */
const struct ptx_variable *ptx_find_variable(struct ptx_decoder *d, struct ptx_word name)
{
    for (int i = d->n_variables; i-- > 0;)
        if (ptx_word_same(d->variables[i].name, name)) return &d->variables[i];
    const struct ptx_body *body = &d->bodies[d->body];
    for (int i = 0; i < body->n_parameters; i++)
        if (ptx_word_same(body->parameters[i].name, name)) return &body->parameters[i];
    for (int i = 0; i < body->n_results; i++)
        if (ptx_word_same(body->results[i].name, name)) return &body->results[i];
    struct ptx_module *m = d->module;
    for (int i = 0; i < m->n_variables; i++)
        if (ptx_word_same(m->variables[i].name, name)) {
            if (m->variables[i].space == PTX_SHARED) {
                struct ptx_variable v = m->variables[i];
                place_shared(d, &v);
                for (int k = 0; k < d->program->n_shared; k++)
                    if (d->program->shared[k].name.at == v.name.at) return &d->program->shared[k];
            }
            return &m->variables[i];
        }
    return NULL;
}

uint32_t ptx_constant_slot(struct ptx_decoder *d, uint64_t value, unsigned bytes, int variable)
{
    struct ptx_program *p = d->program;
    for (int i = 0; i < p->n_constants; i++)
        if (p->constants[i].value == value && p->constants[i].bytes == bytes && p->constants[i].variable == variable)
            return p->constants[i].slot;
    p->constants = ptx_room(d->module, p->constants, sizeof *p->constants, p->n_constants, &p->constants_capacity);
    struct ptx_constant *c = &p->constants[p->n_constants++];
    *c = (struct ptx_constant){.value = value, .slot = ptx_new_slot(d, bytes), .bytes = bytes, .variable = variable};
    return c->slot;
}

uint32_t ptx_special_slot(struct ptx_decoder *d, int which)
{
    struct ptx_program *p = d->program;
    for (int i = 0; i < p->n_specials; i++)
        if (p->specials[i].which == which) return p->specials[i].slot;
    p->specials = ptx_room(d->module, p->specials, sizeof *p->specials, p->n_specials, &p->specials_capacity);
    uint32_t slot = ptx_new_slot(d, ptx_special_bytes(which));
    p->specials[p->n_specials++] = (struct ptx_special){.slot = slot, .which = which};
    return slot;
}

struct ptx_insn *ptx_emit(struct ptx_decoder *d, struct ptx_word text)
{
    struct ptx_program *p = d->program;
    if (p->n == p->capacity) {
        uint32_t capacity = p->capacity ? 2 * p->capacity : 64;
        struct ptx_insn *code = ptx_alloc(d->module, capacity * sizeof *code);
        struct ptx_origin *origins = ptx_alloc(d->module, capacity * sizeof *origins);
        if (p->n) {
            memcpy(code, p->code, p->n * sizeof *code);
            memcpy(origins, p->origins, p->n * sizeof *origins);
        }
        p->code = code;
        p->origins = origins;
        p->capacity = capacity;
    }
    struct ptx_insn *i = &p->code[p->n];
    *i = PTX_BLANK;
    p->origins[p->n++] = (struct ptx_origin){.text = text, .place = d->place};
    return i;
}

/* ---- .loc: "1 38 5" or "2 608 5, function_name $x, inlined_at 1 38 5" ---- */
static void read_place(struct ptx_decoder *d)
{
    struct ptx_lexer *l = &d->lexer;
    struct ptx_program *p = d->program;
    const char *line_end = memchr(l->word.at, '\n', (size_t)(l->end - l->word.at));
    struct ptx_place place = {0};
    uint32_t *numbers[] = {&place.file, &place.line, &place.column};
    for (int i = 0; i < 3; i++) *numbers[i] = (uint32_t)ptx_lex_number(l, UINT32_MAX);
    while (l->token != PTX_END && (!line_end || l->word.at < line_end)) {
        bool is_inlined = l->token == PTX_WORD && ptx_word_is(l->word, "inlined_at");
        ptx_lex_next(l);
        if (!is_inlined) continue;
        uint32_t at[3];
        for (int i = 0; i < 3; i++) at[i] = (uint32_t)ptx_lex_number(l, UINT32_MAX);
        for (uint32_t k = p->n_places; k-- > 0 && !place.parent;)
            if (p->places[k].file == at[0] && p->places[k].line == at[1] && p->places[k].column == at[2])
                place.parent = k + 1;
    }
    int capacity = (int)p->places_capacity;
    p->places = ptx_room(d->module, p->places, sizeof place, (int)p->n_places, &capacity);
    p->places_capacity = (uint32_t)capacity;
    p->places[p->n_places++] = place;
    d->place = p->n_places;
}

/* ---- statements ---- */
static void read_list(struct ptx_lexer *l, struct ptx_operand *o, char end)
{
    o->kind = PTX_O_LIST;
    while (!ptx_lex_is(l, end)) {
        if (o->n_items == PTX_ITEMS) ptx_lex_refuse(l, "a list of operands is too long");
        o->items[o->n_items++] = ptx_lex_word(l);
        if (!ptx_lex_take(l, ',')) break;
    }
    ptx_lex_expect(l, end);
}

static void read_operand(struct ptx_lexer *l, struct ptx_operand *o)
{
    *o = (struct ptx_operand){.kind = PTX_O_WORD};
    if (ptx_lex_take(l, '{')) {
        read_list(l, o, '}');
        return;
    }
    if (ptx_lex_take(l, '(')) {
        read_list(l, o, ')');
        return;
    }
    bool is_address = ptx_lex_take(l, '[');
    if (is_address) o->kind = PTX_O_ADDRESS;
    o->is_negated = ptx_lex_take(l, '!');
    o->word = ptx_lex_word(l);
    if (ptx_lex_take(l, '|')) o->second = ptx_lex_word(l);
    bool is_plus = ptx_lex_take(l, '+');
    uint64_t offset;
    if (is_plus || (is_address && l->token == PTX_WORD)) {
        if (l->token != PTX_WORD || !ptx_word_number(l->word, &offset)) ptx_lex_refuse(l, "an offset is expected");
        ptx_lex_next(l);
        o->offset = (int64_t)offset;
    }
    if (is_address) ptx_lex_expect(l, ']');
}

static void split_parts(struct ptx_lexer *l, struct ptx_word w, struct ptx_statement *s)
{
    const char *from = w.at, *end = w.at + w.n;
    for (;;) {
        const char *dot = memchr(from, '.', (size_t)(end - from));
        if (s->n_parts == PTX_PARTS) ptx_lex_refuse(l, "an instruction has too many parts");
        s->parts[s->n_parts++] = (struct ptx_word){from, (uint32_t)((dot ? dot : end) - from)};
        if (!dot) break;
        from = dot + 1;
    }
}

/* To run what the simulator does not know. */
static void run_unknown(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
    ptx_die(w, i, (uint32_t)__builtin_ctz(mask), "the simulator does not know this instruction, or not in this form");
}

static void read_statement(struct ptx_decoder *d)
{
    struct ptx_lexer *l = &d->lexer;
    struct ptx_statement s = {.text = l->word};
    if (ptx_lex_take(l, '@')) {
        s.guard_is_negated = ptx_lex_take(l, '!');
        s.guard = ptx_lex_word(l);
    }
    split_parts(l, ptx_lex_word(l), &s);
    while (!ptx_lex_is(l, ';')) {
        if (s.n == PTX_OPERANDS) ptx_lex_refuse(l, "an instruction has too many operands");
        read_operand(l, &s.o[s.n++]);
        if (!ptx_lex_take(l, ',') && !ptx_lex_is(l, ';')) ptx_lex_refuse(l, "',' or ';' is expected");
    }
    s.text.n = (uint32_t)(l->word.at - s.text.at);
    ptx_lex_next(l);
    uint32_t first = d->program->n, guard = PTX_NONE;
    if (s.guard.n) {
        const struct ptx_register *r = ptx_find_register(d, s.guard, &guard);
        if (!r || r->bytes) ptx_lex_refuse(l, "the predicate before the last instruction is not declared");
    }
    if (!ptx_decode_statement(d, &s)) {
        d->program->n = first;
        ptx_emit(d, s.text)->run = run_unknown;
    }
    for (uint32_t k = first; k < d->program->n; k++) {
        d->program->code[k].guard = guard;
        d->program->code[k].guard_is_negated = s.guard_is_negated;
    }
}

static void open_scope(struct ptx_decoder *d)
{
    if (d->n_scopes == 1 << 20) ptx_lex_refuse(&d->lexer, "too many scopes");
    d->scopes = ptx_room(d->module, d->scopes, sizeof *d->scopes, d->n_scopes, &d->scopes_capacity);
    d->scopes[d->n_scopes] =
        (struct ptx_scope){.parent = d->scope, .registers = d->n_registers, .variables = d->n_variables};
    d->scope = (uint32_t)d->n_scopes++;
}

static void close_scope(struct ptx_decoder *d)
{
    const struct ptx_scope *s = &d->scopes[d->scope];
    d->n_registers = s->registers;
    d->n_variables = s->variables;
    d->scope = s->parent;
}

static bool read_directive(struct ptx_decoder *d)
{
    struct ptx_lexer *l = &d->lexer;
    if (*l->word.at != '.') return false;
    struct ptx_word w = ptx_lex_word(l);
    if (ptx_word_is(w, ".reg"))
        declare_registers(d);
    else if (ptx_word_is(w, ".shared"))
        declare_variable(d, PTX_SHARED);
    else if (ptx_word_is(w, ".local") || ptx_word_is(w, ".param"))
        declare_variable(d, PTX_LOCAL);
    else if (ptx_word_is(w, ".loc"))
        read_place(d);
    else if (ptx_word_is(w, ".pragma")) {
        while (!ptx_lex_is(l, ';') && l->token != PTX_END) ptx_lex_next(l);
        ptx_lex_expect(l, ';');
    } else {
        l->word = w;
        ptx_lex_refuse(l, "a directive that the simulator does not know");
    }
    return true;
}

/* "name:"; the name was the present token. */
static bool read_label(struct ptx_decoder *d)
{
    struct ptx_lexer ahead = d->lexer;
    ptx_lex_next(&ahead);
    if (!ptx_lex_is(&ahead, ':')) return false;
    d->labels = ptx_room(d->module, d->labels, sizeof *d->labels, d->n_labels, &d->labels_capacity);
    d->labels[d->n_labels++] = (struct ptx_label){.name = d->lexer.word, .scope = d->scope, .target = d->program->n};
    ptx_lex_next(&ahead);
    d->lexer = ahead;
    return true;
}

static void resolve_labels(struct ptx_decoder *d)
{
    for (int u = 0; u < d->n_uses; u++) {
        const struct ptx_use *use = &d->uses[u];
        struct ptx_insn *i = &d->program->code[use->insn];
        for (uint32_t scope = use->scope; i->target == PTX_NONE; scope = d->scopes[scope].parent) {
            for (int k = 0; k < d->n_labels; k++)
                if (d->labels[k].scope == scope && ptx_word_same(d->labels[k].name, use->name))
                    i->target = d->labels[k].target;
            if (!scope) break;
        }
        if (i->target == PTX_NONE)
            sim_die("PTX of %s: there is no label %.*s", d->lexer.whose, (int)use->name.n, use->name.at);
    }
    d->n_uses = 0;
}

static void decode_body(struct ptx_decoder *d)
{
    struct ptx_lexer *l = &d->lexer;
    struct ptx_function *f = d->bodies[d->body].function;
    ptx_lex_start(l, f->body, f->shown);
    d->n_registers = d->n_variables = d->n_labels = d->n_scopes = 0;
    d->scope = 0;
    d->place = 0;
    open_scope(d);
    d->bodies[d->body].start = d->program->n;
    while (l->token != PTX_END) {
        if (ptx_lex_take(l, '{'))
            open_scope(d);
        else if (ptx_lex_is(l, '}')) {
            if (!d->scope) ptx_lex_refuse(l, "a } too many");
            close_scope(d);
            ptx_lex_next(l);
        } else if (ptx_lex_take(l, ';'))
            continue;
        else if (ptx_lex_is(l, '@') || (l->token == PTX_WORD && !read_label(d) && !read_directive(d)))
            read_statement(d);
        else if (l->token != PTX_WORD && l->token != PTX_END && !ptx_lex_is(l, '{') && !ptx_lex_is(l, '}') &&
                 !ptx_lex_is(l, ';') && !ptx_lex_is(l, '@'))
            ptx_lex_refuse(l, "a statement is expected");
    }
    resolve_labels(d);
    /* whoever runs past the end */
    struct ptx_statement end = {.text = {"ret", 3}, .n_parts = 1, .parts = {{"ret", 3}}};
    ptx_decode_statement(d, &end);
}

/* "(.param .b32 r) name (.param .b32 a, ...)": places in the frame. */
static struct ptx_variable *read_parameters(struct ptx_decoder *d, struct ptx_lexer *l, int *n)
{
    struct ptx_variable *all = NULL;
    int capacity = 0;
    *n = 0;
    if (!ptx_lex_take(l, '(')) return NULL;
    while (!ptx_lex_is(l, ')')) {
        struct ptx_variable v = {.space = PTX_LOCAL};
        if (!ptx_word_is(ptx_lex_word(l), ".param")) ptx_lex_refuse(l, "a parameter of a function is expected");
        ptx_read_variable(l, &v);
        place_local(d, &v);
        all = ptx_room(d->module, all, sizeof v, *n, &capacity);
        all[(*n)++] = v;
        if (!ptx_lex_take(l, ',')) break;
    }
    ptx_lex_expect(l, ')');
    return all;
}

int ptx_body_of(struct ptx_decoder *d, struct ptx_word name)
{
    struct ptx_function *f = ptx_module_find(d->module, name);
    if (!f || f->is_entry || f->is_declared_only) return -1;
    for (int i = 0; i < d->n_bodies; i++)
        if (d->bodies[i].function == f) return i;
    if (d->n_bodies == (int)(sizeof d->bodies / sizeof *d->bodies))
        ptx_lex_refuse(&d->lexer, "the kernel calls too many functions");
    struct ptx_body *b = &d->bodies[d->n_bodies];
    struct ptx_lexer l;
    *b = (struct ptx_body){.function = f, .return_slot = ptx_new_slot(d, 4)};
    ptx_lex_start(&l, f->header, f->shown);
    while (l.token == PTX_WORD && *l.word.at == '.') ptx_lex_next(&l);
    b->results = read_parameters(d, &l, &b->n_results);
    ptx_lex_word(&l);
    b->parameters = read_parameters(d, &l, &b->n_parameters);
    return d->n_bodies++;
}

/* A function that calls itself has no place for a second frame. */
static void refuse_recursion(struct ptx_decoder *d)
{
    uint64_t reach[64];
    for (int i = 0; i < d->n_bodies; i++) reach[i] = d->bodies[i].calls;
    for (int round = 0; round < d->n_bodies; round++)
        for (int i = 0; i < d->n_bodies; i++)
            for (int k = 0; k < d->n_bodies; k++)
                if (reach[i] >> k & 1) reach[i] |= reach[k];
    for (int i = 0; i < d->n_bodies; i++)
        if (reach[i] >> i & 1)
            sim_die("PTX of %s: %s calls itself, which is not simulated", d->bodies[0].function->shown,
                    d->bodies[i].function->shown);
}

void ptx_decode(struct ptx_function *f)
{
    struct ptx_program *p = ptx_alloc(f->module, sizeof *p);
    struct ptx_decoder *d = ptx_alloc(f->module, sizeof *d);
    *p = (struct ptx_program){.function = f};
    d->module = f->module;
    d->program = p;
    d->bodies[0] = (struct ptx_body){
        .function = f, .parameters = f->parameters, .n_parameters = f->n_parameters, .return_slot = PTX_NONE};
    d->n_bodies = 1;
    for (; d->body < d->n_bodies; d->body++) decode_body(d);
    for (int c = 0; c < d->n_calls; c++)
        p->code[d->calls[c].insn].target = d->bodies[ptx_body_of(d, d->calls[c].name)].start;
    refuse_recursion(d);
    f->program = p;
}
