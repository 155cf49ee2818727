/* SPDX-License-Identifier: MIT */
/* Functions, variables and files of a module. */
#include "ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILES = 1 << 16, MOST_PARAMETERS = 4096, MOST_INITIAL_BYTES = 1 << 24 };
#define MOST_BYTES (UINT64_C(1) << 32)

struct ptx_arena { /* a block of memory and those before it */
    struct ptx_arena *next;
    size_t used, bytes;
};

void *ptx_alloc(struct ptx_module *m, size_t bytes)
{
    enum { CHUNK = 1 << 16, HEAD = (sizeof(struct ptx_arena) + 63) / 64 * 64 };
    bytes = (bytes + 15) / 16 * 16;
    if (!m->arena || m->arena->used + bytes > m->arena->bytes) {
        size_t size = HEAD + (bytes > CHUNK ? bytes : CHUNK);
        struct ptx_arena *arena = sim_alloc(size);
        *arena = (struct ptx_arena){.next = m->arena, .used = HEAD, .bytes = size};
        m->arena = arena;
    }
    void *p = (uint8_t *)m->arena + m->arena->used;
    m->arena->used += bytes;
    return p;
}

void *ptx_room(struct ptx_module *m, void *array, size_t size, int n, int *capacity)
{
    if (n < *capacity) return array;
    *capacity = *capacity ? 2 * *capacity : 8;
    void *larger = ptx_alloc(m, size * (size_t)*capacity);
    if (n) memcpy(larger, array, size * (size_t)n);
    return larger;
}

unsigned ptx_type_bytes(struct ptx_word type)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } types[] = {{"b8", 1},  {"b16", 2},  {"b32", 4},   {"b64", 8},    {"u8", 1},   {"u16", 2},  {"u32", 4},
                 {"u64", 8}, {"s8", 1},   {"s16", 2},   {"s32", 4},    {"s64", 8},  {"f16", 2},  {"f32", 4},
                 {"f64", 8}, {"bf16", 2}, {"f16x2", 4}, {"bf16x2", 4}, {"tf32", 4}, {"pred", 1}, {"b128", 16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (ptx_word_is(type, types[i].name)) return types[i].bytes;
    return 0;
}

static struct ptx_word behind_dot(struct ptx_word w)
{
    return w.n && *w.at == '.' ? (struct ptx_word){w.at + 1, w.n - 1} : w;
}

/* Also of a parameter: ".u64 .ptr .global .align 1 name". */
void ptx_read_variable(struct ptx_lexer *l, struct ptx_variable *v)
{
    struct ptx_word type = {0};
    v->align = 0;
    while (l->token == PTX_WORD && *l->word.at == '.') {
        struct ptx_word w = ptx_lex_word(l);
        if (ptx_word_is(w, ".align")) {
            uint64_t align = ptx_lex_number(l, 1 << 20);
            if (!type.n) v->align = align; /* behind .ptr it is what the pointer points to */
            if (!align || (align & (align - 1))) ptx_lex_refuse(l, "an alignment is not a power of two");
        } else if (ptx_type_bytes(behind_dot(w)))
            type = behind_dot(w);
        else if (!ptx_word_is(w, ".ptr") && !ptx_word_is(w, ".global") && !ptx_word_is(w, ".const") &&
                 !ptx_word_is(w, ".shared") && !ptx_word_is(w, ".local") && !ptx_word_is(w, ".attribute"))
            ptx_lex_refuse(l, "the type of a variable is expected");
        if (ptx_lex_take(l, '(')) { /* .attribute(.managed) */
            while (!ptx_lex_is(l, ')') && l->token != PTX_END) ptx_lex_next(l);
            ptx_lex_expect(l, ')');
        }
    }
    if (!type.n) ptx_lex_refuse(l, "a variable without a type");
    v->name = ptx_lex_word(l);
    v->bytes = ptx_type_bytes(type);
    if (!v->align) v->align = v->bytes;
    v->initial = NULL;
    v->is_extern = false;
    while (ptx_lex_take(l, '[')) {
        if (ptx_lex_take(l, ']')) {
            v->bytes = 0; /* the launch says how large */
            break;
        }
        v->bytes *= ptx_lex_number(l, MOST_BYTES);
        if (v->bytes > MOST_BYTES) ptx_lex_refuse(l, "a variable is too large");
        ptx_lex_expect(l, ']');
    }
}

/* "= {1, 2}" or "= 5": numbers of the variable's element type, which is all that is left to know. */
static void read_initial(struct ptx_module *m, struct ptx_lexer *l, struct ptx_variable *v, unsigned element)
{
    if (v->bytes > MOST_INITIAL_BYTES) ptx_lex_refuse(l, "a variable with initial values is too large");
    uint8_t *bytes = v->initial = ptx_alloc(m, v->bytes ? v->bytes : 1);
    uint64_t at = 0, value;
    bool is_list = ptx_lex_take(l, '{');
    for (;;) {
        if (is_list && ptx_lex_is(l, '}')) break;
        struct ptx_word w = ptx_lex_word(l);
        if (w.n > 2 && *w.at == '0' && strchr("fFdD", w.at[1])) {
            char hex[20] = "";
            if (w.n - 2 >= sizeof hex) ptx_lex_refuse(l, "not a number");
            memcpy(hex, w.at + 2, w.n - 2);
            value = strtoull(hex, NULL, 16);
        } else if (!ptx_word_number(w, &value)) {
            l->word = w;
            ptx_lex_refuse(l, "a variable that is initialised by an address is not simulated");
        }
        if (at + element > v->bytes) ptx_lex_refuse(l, "more initial values than the variable has");
        memcpy(bytes + at, &value, element);
        at += element;
        if (!is_list || !ptx_lex_take(l, ',')) break;
    }
    if (is_list) ptx_lex_expect(l, '}');
}

static void read_module_variable(struct ptx_module *m, struct ptx_lexer *l, enum ptx_space space, bool is_extern)
{
    struct ptx_variable v = {.space = (uint8_t)space};
    struct ptx_lexer ahead = *l; /* to see the type of one element */
    unsigned element = 1;
    while (ahead.token == PTX_WORD && *ahead.word.at == '.') {
        if (ptx_type_bytes(behind_dot(ahead.word))) element = ptx_type_bytes(behind_dot(ahead.word));
        ptx_lex_next(&ahead);
    }
    ptx_read_variable(l, &v);
    v.is_extern = is_extern;
    if (element > 8) ptx_lex_refuse(l, "a variable of a type that is not simulated");
    if (ptx_lex_take(l, '=')) read_initial(m, l, &v, element);
    ptx_lex_expect(l, ';');
    m->variables = ptx_room(m, m->variables, sizeof v, m->n_variables, &m->variables_capacity);
    m->variables[m->n_variables++] = v;
}

struct ptx_function *ptx_module_find(struct ptx_module *m, struct ptx_word name)
{
    for (int i = 0; i < m->n_functions; i++)
        if (ptx_word_same(m->functions[i].name, name)) return &m->functions[i];
    return NULL;
}

static struct ptx_word span(const char *from, const char *to) { return (struct ptx_word){from, (uint32_t)(to - from)}; }

/* The parameters of a kernel have their places in the packed bytes. */
static void read_kernel_parameters(struct ptx_module *m, struct ptx_function *f)
{
    struct ptx_lexer l;
    int capacity = 0;
    ptx_lex_start(&l, f->header, f->shown);
    while (l.token != PTX_END) {
        struct ptx_variable v = {.space = PTX_PARAMETER};
        if (!ptx_word_is(ptx_lex_word(&l), ".param")) ptx_lex_refuse(&l, "a parameter of a kernel is expected");
        ptx_read_variable(&l, &v);
        if (f->parameter_bytes + v.align + v.bytes > 1 << 16 || f->n_parameters == MOST_PARAMETERS)
            ptx_lex_refuse(&l, "too many parameters");
        v.address = (f->parameter_bytes + v.align - 1) / v.align * v.align;
        f->parameter_bytes = v.address + v.bytes;
        f->parameters = ptx_room(m, f->parameters, sizeof v, f->n_parameters, &capacity);
        f->parameters[f->n_parameters++] = v;
        if (l.token != PTX_END) ptx_lex_expect(&l, ',');
    }
}

/* From behind .entry or .func to behind the body. A declaration that a definition follows is replaced by it. */
static void read_function(struct ptx_module *m, struct ptx_lexer *l, bool is_entry)
{
    struct ptx_function f = {.module = m, .is_entry = is_entry};
    const char *start = l->word.at;
    while (l->token == PTX_WORD && *l->word.at == '.') ptx_lex_next(l); /* .noreturn */
    if (ptx_lex_is(l, '(')) {                                           /* the results */
        while (!ptx_lex_is(l, ')') && l->token != PTX_END) ptx_lex_next(l);
        ptx_lex_expect(l, ')');
    }
    f.name = ptx_lex_word(l);
    f.shown = ptx_shown_name(m, f.name);
    if (ptx_lex_is(l, '(')) {
        const char *from = l->at;
        while (!ptx_lex_is(l, ')') && l->token != PTX_END) ptx_lex_next(l);
        f.header = is_entry ? span(from, l->word.at) : span(start, l->word.at + 1);
        ptx_lex_expect(l, ')');
    } else
        f.header = is_entry ? span(start, start) : span(start, l->word.at);
    while (l->token == PTX_WORD && *l->word.at == '.') {
        struct ptx_word directive = ptx_lex_word(l);
        unsigned threads = 1, any = 0;
        while (l->token == PTX_WORD && *l->word.at != '.') {
            threads *= (unsigned)ptx_lex_number(l, 1024);
            any = 1;
            ptx_lex_take(l, ',');
        }
        if (any && (ptx_word_is(directive, ".maxntid") || ptx_word_is(directive, ".reqntid"))) f.most_threads = threads;
    }
    f.is_declared_only = ptx_lex_is(l, ';');
    if (f.is_declared_only)
        ptx_lex_next(l);
    else {
        if (!ptx_lex_is(l, '{')) ptx_lex_refuse(l, "the body of a function is expected");
        const char *body = l->at;
        ptx_lex_skip_block(l);
        const char *end = l->word.at;
        while (*--end != '}') continue;
        f.body = span(body, end);
    }
    if (is_entry) read_kernel_parameters(m, &f);
    struct ptx_function *known = ptx_module_find(m, f.name);
    if (known && !known->is_declared_only && !f.is_declared_only) ptx_lex_refuse(l, "two functions of one name");
    if (known) {
        if (!f.is_declared_only) *known = f;
        return;
    }
    m->functions = ptx_room(m, m->functions, sizeof f, m->n_functions, &m->functions_capacity);
    m->functions[m->n_functions++] = f;
}

static void read_file(struct ptx_module *m, struct ptx_lexer *l)
{
    uint32_t number = (uint32_t)ptx_lex_number(l, MOST_FILES);
    if (l->token != PTX_TEXT) ptx_lex_refuse(l, "the name of a file is expected");
    if (number >= m->n_files) {
        struct ptx_word *larger = ptx_alloc(m, (number + 16) * sizeof *larger);
        if (m->n_files) memcpy(larger, m->files, m->n_files * sizeof *larger);
        m->files = larger;
        m->n_files = number + 16;
    }
    m->files[number] = l->word;
    ptx_lex_next(l);
    while (ptx_lex_take(l, ',')) ptx_lex_next(l); /* its time and size */
}

static void read_directive(struct ptx_module *m, struct ptx_lexer *l)
{
    bool is_extern = false;
    struct ptx_word w = ptx_lex_word(l);
    while (ptx_word_is(w, ".visible") || ptx_word_is(w, ".weak") || ptx_word_is(w, ".extern") ||
           ptx_word_is(w, ".common")) {
        is_extern |= ptx_word_is(w, ".extern");
        w = ptx_lex_word(l);
    }
    if (ptx_word_is(w, ".version") || ptx_word_is(w, ".address_size"))
        ptx_lex_next(l);
    else if (ptx_word_is(w, ".target")) {
        do ptx_lex_next(l);
        while (ptx_lex_take(l, ','));
    } else if (ptx_word_is(w, ".file"))
        read_file(m, l);
    else if (ptx_word_is(w, ".entry") || ptx_word_is(w, ".func"))
        read_function(m, l, ptx_word_is(w, ".entry"));
    else if (ptx_word_is(w, ".global"))
        read_module_variable(m, l, PTX_GLOBAL, is_extern);
    else if (ptx_word_is(w, ".const"))
        read_module_variable(m, l, PTX_CONSTANT, is_extern);
    else if (ptx_word_is(w, ".shared"))
        read_module_variable(m, l, PTX_SHARED, is_extern);
    else if (ptx_word_is(w, ".section")) {
        ptx_lex_next(l);
        ptx_lex_skip_block(l);
    } else if (ptx_word_is(w, ".pragma")) {
        ptx_lex_next(l);
        ptx_lex_expect(l, ';');
    } else if (ptx_word_is(w, ".loc"))
        ptx_lex_skip_line(l);
    else {
        l->word = w;
        ptx_lex_refuse(l, "a directive that the simulator does not know");
    }
}

static void refuse_what_is_extern(struct ptx_module *m)
{
    for (int i = 0; i < m->n_variables; i++) {
        const struct ptx_variable *v = &m->variables[i];
        if (v->is_extern && v->space != PTX_SHARED)
            sim_die("PTX: the variable %.*s is of another module, which is not simulated", (int)v->name.n, v->name.at);
    }
}

struct ptx_module *ptx_module_parse(const char *text, size_t bytes)
{
    struct ptx_module *m = sim_alloc(sizeof *m);
    struct ptx_lexer l;
    bytes = strnlen(text, bytes);
    if (bytes > UINT32_MAX / 2) sim_die("PTX: a module of %zu bytes", bytes);
    m->text = ptx_alloc(m, bytes + 1);
    memcpy(m->text, text, bytes);
    ptx_lex_start(&l, (struct ptx_word){m->text, (uint32_t)bytes}, "a module");
    while (l.token != PTX_END)
        if (!ptx_lex_take(&l, ';')) read_directive(m, &l);
    refuse_what_is_extern(m);
    m->placed = ptx_alloc(m, (size_t)(m->n_variables + 1) * sizeof *m->placed);
    for (int i = 0; i < m->n_variables; i++)
        if (m->variables[i].space != PTX_SHARED) m->placed[m->n_placed++] = i;
    return m;
}

void ptx_module_free(struct ptx_module *m)
{
    if (!m) return;
    for (struct ptx_arena *a = m->arena, *next; a; a = next) {
        next = a->next;
        free(a);
    }
    free(m);
}

struct ptx_function *ptx_module_function(struct ptx_module *m, const char *name)
{
    struct ptx_function *f = ptx_module_find(m, (struct ptx_word){name, (uint32_t)strlen(name)});
    return f && f->is_entry && !f->is_declared_only ? f : NULL;
}

int ptx_module_variables(const struct ptx_module *m) { return m->n_placed; }

const char *ptx_module_variable(struct ptx_module *m, int i, uint64_t *bytes, uint64_t *align, const void **initial)
{
    struct ptx_variable *v = &m->variables[m->placed[i]];
    *bytes = v->bytes;
    *align = v->align;
    *initial = v->initial;
    char *name = ptx_alloc(m, v->name.n + 1);
    memcpy(name, v->name.at, v->name.n);
    return name;
}

void ptx_module_place(struct ptx_module *m, int i, uint64_t address) { m->variables[m->placed[i]].address = address; }

int ptx_function_parameters(const struct ptx_function *f) { return f->n_parameters; }

void ptx_function_parameter(const struct ptx_function *f, int i, size_t *offset, size_t *bytes)
{
    *offset = f->parameters[i].address;
    *bytes = f->parameters[i].bytes;
}

size_t ptx_function_static_shared(const struct ptx_function *f)
{
    if (!f->program) ptx_decode((struct ptx_function *)f);
    return f->program->shared_static_bytes;
}
