/* SPDX-License-Identifier: MIT */
/*
 * Inside of the PTX interpreter.
 *
 *     ptx_lex.c       words out of text
 *     ptx_module.c    functions, variables and files of a module; a function's body is decoded when it is first needed
 *     ptx_body.c      registers, labels, scopes and statements of a body
 *     ptx_decode.c    one statement into one instruction: what all share, and arithmetic by table
 *     ptx_decode_*.c  instructions that are not arithmetic
 *     ptx_scalar.c    arithmetic (ptx_scalar.inc is the table); ptx_number.c: bf16, f16, fp8; ptx_convert.c: cvt
 *     ptx_memory.c    ld, st; ptx_atomic.c: atom, red; ptx_async.c: cp.async
 *     ptx_global.c    what is checked at each access to device memory; ptx_shared.c: to shared memory
 *     ptx_warp.c      shfl, vote, match, redux; ptx_matrix.c: ldmatrix, mma
 *     ptx_run.c       launches, blocks, barriers; ptx_step.c: one warp, divergence
 *     ptx_report.c    where a lane is, in words
 *
 * A kernel and the device functions that it calls are decoded into one program with one frame of registers, shared and
 * local memory; functions do not call themselves (refused by name), so each has its place in the frame.
 *
 * Registers are kept by lanes: a slot is 32 values side by side (of 2, 4 or 8 bytes), a predicate one word with a bit a
 * lane. Constants and special registers have slots too, filled when a warp starts. A handler gets the mask of lanes.
 */
#ifndef CUDASIM_PTX_H
#define CUDASIM_PTX_H

#include "sim.h"

enum { PTX_LANES = 32, PTX_WARPS = 32, PTX_BARRIERS = 16, PTX_PARTS = 16, PTX_OPERANDS = 8, PTX_ITEMS = 8 };
#define PTX_ALL UINT32_MAX
#define PTX_NONE UINT32_MAX
#define PTX_SHARED_FIRST 1024u /* address of the first byte of shared memory: 0 is no address */
#define PTX_SHARED_MOST (227u * 1024)
#define PTX_PARAMETER_BASE (SIM_LOCAL_BASE - (UINT64_C(1) << 32)) /* generic addresses of a kernel's parameters */

struct ptx_warp;
struct ptx_insn;
typedef void ptx_handler(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
/* Predicate of all lanes out of two slots. */
typedef uint32_t ptx_compare(const void *a, const void *b);

enum ptx_kind { /* what the loop over instructions has to know */
                PTX_PLAIN,
                PTX_BRANCH,
                PTX_RETURN, /* slot[0]: where to, per lane */
                PTX_EXIT,
                PTX_BARRIER,  /* bar.*: of the block */
                PTX_CONVERGE, /* all lanes of a mask (slot[3], PTX_NONE: all live lanes) must be here */
};
enum ptx_space { PTX_GENERIC, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_PARAMETER, PTX_CONSTANT };

struct ptx_insn {
    ptx_handler *run;
    union {
        ptx_compare *compare;
        const uint32_t *list; /* more slots, as the handler says */
    };
    uint32_t slot[4];
    uint32_t guard; /* slot of a predicate; PTX_NONE: always */
    uint32_t target;
    int64_t offset;
    uint8_t kind, guard_is_negated, space, bytes /* of one element in memory */, count, mode, flags, address_bytes;
    uint8_t width[4]; /* bytes of a lane in slot[], where the handler has to ask */
};

#define PTX_BLANK                                                                                                      \
    ((struct ptx_insn){.guard = PTX_NONE, .target = PTX_NONE, .slot = {PTX_NONE, PTX_NONE, PTX_NONE, PTX_NONE}})

struct ptx_word { /* of the module's text */
    const char *at;
    uint32_t n;
};
struct ptx_place { /* a source line; parent: index + 1 of where it was inlined */
    uint32_t file, line, column, parent;
};
struct ptx_origin { /* of an instruction, beside the array of instructions */
    struct ptx_word text;
    uint32_t place;    /* index + 1, 0: unknown */
    uint32_t reported; /* bits of kinds of reports that it made */
};

/* A variable of a module or function, a parameter. */
struct ptx_variable {
    struct ptx_word name;
    uint64_t bytes, align,
        address;   /* address: offset in its space; for module variables: of the device, 0: not placed */
    void *initial; /* NULL: zeros */
    uint8_t space;
    bool is_extern;
};
enum { PTX_PLAIN_VALUE = -1, PTX_DYNAMIC = -2 /* dynamic shared memory */ };
struct ptx_constant { /* one slot that never changes */
    uint64_t value;
    uint32_t slot, bytes;
    int variable; /* the value is an offset in this variable of the module, PTX_PLAIN_VALUE or in PTX_DYNAMIC */
};
struct ptx_special {
    uint32_t slot;
    int which;
};

struct ptx_function {
    struct ptx_module *module;
    struct ptx_word name, header, body;
    char *shown; /* the name for reports */
    bool is_entry, is_declared_only;
    int n_parameters;
    struct ptx_variable *parameters; /* of a kernel: address is the offset of the packed bytes */
    size_t parameter_bytes;
    unsigned most_threads;       /* .maxntid, .reqntid; 0: not said */
    struct ptx_program *program; /* NULL: not decoded yet */
};

struct ptx_program {
    struct ptx_function *function;
    struct ptx_insn *code;
    struct ptx_origin *origins;
    uint32_t n, capacity;
    struct ptx_constant *constants;
    int n_constants, constants_capacity;
    struct ptx_special *specials;
    int n_specials, specials_capacity;
    struct ptx_place *places;
    uint32_t n_places, places_capacity;
    uint32_t register_bytes, local_bytes, shared_static_bytes /* as declared */, shared_bytes /* with gaps */;
    bool has_dynamic_shared;
    struct ptx_variable *shared, *local; /* to mark what is a variable and what a gap */
    int n_shared, shared_capacity, n_local, local_capacity;
};

struct ptx_module {
    char *text;
    struct ptx_arena *arena;
    struct ptx_function *functions;
    int n_functions, functions_capacity;
    struct ptx_variable *variables; /* .global, .const, .shared */
    int n_variables, variables_capacity;
    int *placed; /* indices of .global and .const */
    int n_placed;
    struct ptx_word *files; /* by number */
    uint32_t n_files;
};

/* ---- memory of a module: released with it ---- */
void *ptx_alloc(struct ptx_module *m, size_t bytes);
/* Room for one more in an array of *capacity elements of size bytes each, n in use. */
void *ptx_room(struct ptx_module *m, void *array, size_t size, int n, int *capacity);

/* ---- ptx_lex.c ---- */
enum ptx_token { PTX_END, PTX_WORD, PTX_TEXT /* "..." */, PTX_MARK /* one character */ };
struct ptx_lexer {
    const char *at, *end;
    enum ptx_token token;
    struct ptx_word word; /* of the present token */
    const char *whose;    /* for refusals */
};
void ptx_lex_start(struct ptx_lexer *l, struct ptx_word text, const char *whose);
void ptx_lex_next(struct ptx_lexer *l);
bool ptx_lex_is(const struct ptx_lexer *l, char mark);
bool ptx_lex_take(struct ptx_lexer *l, char mark); /* if it is there */
void ptx_lex_expect(struct ptx_lexer *l, char mark);
struct ptx_word ptx_lex_word(struct ptx_lexer *l); /* takes a word */
uint64_t ptx_lex_number(struct ptx_lexer *l, uint64_t most);
void ptx_lex_skip_line(struct ptx_lexer *l);  /* to the first token of the next line */
void ptx_lex_skip_block(struct ptx_lexer *l); /* from { to behind its } */
void ptx_lex_refuse(const struct ptx_lexer *l, const char *what) __attribute__((noreturn));
bool ptx_word_is(struct ptx_word w, const char *text);
bool ptx_word_same(struct ptx_word a, struct ptx_word b);
bool ptx_word_number(struct ptx_word w, uint64_t *value); /* whole numbers, also -1, 0x10, 5U */

/* ---- ptx_module.c ---- */
struct ptx_function *ptx_module_find(struct ptx_module *m, struct ptx_word name);
/* Reads ".align 4 .b8 name[12]" behind its space; .ptr and the like are passed over. */
void ptx_read_variable(struct ptx_lexer *l, struct ptx_variable *v);
unsigned ptx_type_bytes(struct ptx_word type); /* of "f32", "b8" ...; pred: 1; 0: no type */
void ptx_decode(struct ptx_function *f);

/* ---- ptx_body.c ---- */
struct ptx_operand {
    enum { PTX_O_WORD, PTX_O_ADDRESS, PTX_O_LIST } kind;
    bool is_negated;
    struct ptx_word word, second /* behind | */, items[PTX_ITEMS];
    int n_items;
    int64_t offset;
};
struct ptx_statement {
    struct ptx_word text, parts[PTX_PARTS]; /* of "ld.global.f32": three */
    int n_parts, n;
    struct ptx_operand o[PTX_OPERANDS];
    struct ptx_word guard;
    bool guard_is_negated;
};
struct ptx_register {
    struct ptx_word name;
    uint32_t slot, count; /* count 0: the name as it is; else name0 .. */
    uint8_t bytes;        /* of a lane; 0: predicate */
    bool is_range;
};
struct ptx_scope {
    uint32_t parent;
    int registers, variables; /* how many there were when it began */
};
struct ptx_label {
    struct ptx_word name;
    uint32_t scope, target;
};
struct ptx_use { /* of a label by an instruction, or of a function by a call */
    struct ptx_word name;
    uint32_t scope, insn;
};
struct ptx_body { /* of a program: the kernel's, or that of a function that it calls */
    struct ptx_function *function;
    struct ptx_variable *parameters, *results;
    int n_parameters, n_results;
    uint32_t start, return_slot;
    uint64_t calls; /* bit k: calls body k */
};
struct ptx_decoder {
    struct ptx_module *module;
    struct ptx_program *program;
    struct ptx_body bodies[64];
    int n_bodies, body; /* body: the one that is decoded now */
    struct ptx_lexer lexer;
    struct ptx_register *registers;
    int n_registers, registers_capacity;
    struct ptx_variable *variables; /* of the scopes that are open: shared, local, param */
    int n_variables, variables_capacity;
    struct ptx_scope *scopes;
    uint32_t scope;
    int n_scopes, scopes_capacity;
    struct ptx_label *labels;
    int n_labels, labels_capacity;
    struct ptx_use *uses, *calls;
    int n_uses, uses_capacity, n_calls, calls_capacity;
    uint32_t place;
};
uint32_t ptx_new_slot(struct ptx_decoder *d, unsigned bytes);
const struct ptx_register *ptx_find_register(struct ptx_decoder *d, struct ptx_word name, uint32_t *slot);
const struct ptx_variable *ptx_find_variable(struct ptx_decoder *d, struct ptx_word name);
uint32_t ptx_constant_slot(struct ptx_decoder *d, uint64_t value, unsigned bytes, int variable);
/* A special register, -1: none of that name. */
int ptx_special_find(struct ptx_word name);
uint32_t ptx_special_slot(struct ptx_decoder *d, int which);
unsigned ptx_special_bytes(int which);
/* The body of a function that is called; -1: there is none. */
int ptx_body_of(struct ptx_decoder *d, struct ptx_word name);
struct ptx_insn *ptx_emit(struct ptx_decoder *d, struct ptx_word text);

/* ---- ptx_decode*.c ---- */
/* False: unknown; whoever meets it when running is told. */
bool ptx_decode_statement(struct ptx_decoder *d, const struct ptx_statement *s);
bool ptx_has(const struct ptx_statement *s, const char *part);
struct ptx_word ptx_last(const struct ptx_statement *s);
/* The slot of an operand that has so many bytes a lane (0: a predicate), as a source. letter 'f', 'd': numbers are of
 * that type. False: it is none. */
bool ptx_source(struct ptx_decoder *d, struct ptx_word w, unsigned bytes, char letter, uint32_t *slot);
bool ptx_register_slot(struct ptx_decoder *d, struct ptx_word w, uint32_t *slot, uint8_t *bytes);
bool ptx_slots(struct ptx_decoder *d, const struct ptx_operand *o, unsigned bytes, char letter, uint32_t *slots, int n);
bool ptx_address(struct ptx_decoder *d, const struct ptx_operand *o, struct ptx_insn *i, int slot);
/* Families: true when the statement is one of theirs and was decoded. */
bool ptx_decode_memory(struct ptx_decoder *d, const struct ptx_statement *s);
bool ptx_decode_atomic(struct ptx_decoder *d, const struct ptx_statement *s);
bool ptx_decode_warp(struct ptx_decoder *d, const struct ptx_statement *s);
bool ptx_decode_matrix(struct ptx_decoder *d, const struct ptx_statement *s);
bool ptx_decode_async(struct ptx_decoder *d, const struct ptx_statement *s);
bool ptx_decode_convert(struct ptx_decoder *d, const struct ptx_statement *s);
bool ptx_decode_flow(struct ptx_decoder *d, const struct ptx_statement *s);
bool ptx_decode_move(struct ptx_decoder *d, const struct ptx_statement *s);
/* Functions that the device's library has: __assertfail, vprintf. */
bool ptx_decode_library_call(struct ptx_decoder *d, const struct ptx_statement *s, struct ptx_word name,
                             const struct ptx_operand *parameters, const struct ptx_operand *results);
bool ptx_read_space(struct ptx_word part, uint8_t *space);
bool ptx_is_hint(struct ptx_word part); /* for caches, scopes: without effect here */
/* Arithmetic: the handler of "add.s32" and the letters of its operands; NULL: there is none. */
struct ptx_op {
    const char *name, *letters;
    ptx_handler *run;
};
const struct ptx_op *ptx_scalar_find(const char *name);
struct ptx_compare_op {
    const char *name;
    ptx_compare *compare;
    const char *letter;
};
const struct ptx_compare_op *ptx_compare_find(const char *name);

/* ---- state while running ---- */
struct ptx_cell { /* who touched a word (or byte) of shared memory last; times are of struct ptx_block */
    uint32_t write_time, read_time, read_warps, write_pc, read_pc, split_time;
    uint8_t write_warp, write_lane, read_lane; /* PTX_LANES: several */
    uint8_t is_atomic : 1, is_split : 1;       /* split: look at the cells of its bytes */
};
struct ptx_group {
    uint32_t pc, mask;
    enum { PTX_READY, PTX_AT_BARRIER, PTX_AT_CONVERGE } state;
};
struct ptx_copy { /* a cp.async that was not waited for yet */
    uint32_t mask, pc, group[PTX_LANES], shared[PTX_LANES];
    uint64_t global[PTX_LANES];
    uint8_t bytes, read_bytes[PTX_LANES];
};
struct ptx_warp {
    uint8_t *registers;
    struct ptx_block *block;
    const struct ptx_program *program;
    uint32_t id, pc, active, live, started; /* started: the lanes that there were */
    uint32_t others_pc;                     /* the lowest of the groups that could run; PTX_NONE: none */
    struct ptx_group groups[PTX_LANES];
    int n_groups;
    bool is_waiting, is_done, wants_turn; /* wants_turn: of another group */
    int barrier;                          /* that it waits at */
    uint64_t instructions, budget;
    /* what is known to come before: by warp, and by lane of this warp */
    uint32_t known[PTX_WARPS], known_least, lanes_known;
    uint32_t (*lane_known)[PTX_LANES]; /* [of][by], NULL: nothing beyond lanes_known */
    struct ptx_copy *copies;
    int n_copies, copies_capacity;
    uint32_t commits[PTX_LANES];
};
struct ptx_barrier {
    uint32_t warps, threads, count, pc; /* arrived; count: threads wanted, 0: all live ones */
    uint32_t votes, voters;
};
struct ptx_block {
    const struct ptx_launch *launch;
    const struct ptx_program *program;
    struct sim_access *access;
    struct ptx_counters *counters;
    struct sim_dim index;
    uint32_t number, n_threads, n_warps, shared_bytes;
    uint8_t *shared, *shared_shadow; /* by address less PTX_SHARED_FIRST */
    struct ptx_cell *words, *bytes;
    uint32_t time, start_time;
    uint8_t *local, *local_shadow; /* local_bytes a thread */
    struct ptx_warp *warps;
    struct ptx_barrier barriers[PTX_BARRIERS];
    bool has_fence;
    uint32_t id;           /* of the block in the cells of global memory */
    const uint32_t *begun; /* numbers of the blocks that ran or run */
    uint64_t n_begun;
};
#define PTX_SLOT(w, i, k) ((void *)((w)->registers + (i)->slot[k]))
#define PTX_EACH(lane, mask)                                                                                           \
    for (uint32_t left_ = (mask), lane = 0; left_ && (lane = (uint32_t)__builtin_ctz(left_), 1); left_ &= left_ - 1)
/* registers are read as whatever type an instruction wants */
typedef float __attribute__((may_alias)) ptx_f32;
typedef double __attribute__((may_alias)) ptx_f64;
typedef uint16_t __attribute__((may_alias)) ptx_u16;
typedef uint32_t __attribute__((may_alias)) ptx_u32;
typedef uint64_t __attribute__((may_alias)) ptx_u64;
typedef int16_t __attribute__((may_alias)) ptx_s16;
typedef int32_t __attribute__((may_alias)) ptx_s32;
typedef int64_t __attribute__((may_alias)) ptx_s64;

/* One lane of a slot, widened with zeros; bytes: of a lane. */
static inline uint64_t ptx_get(const struct ptx_warp *w, uint32_t slot, unsigned bytes, unsigned lane)
{
    const uint8_t *p = w->registers + slot;
    return bytes == 4   ? ((const ptx_u32 *)p)[lane]
           : bytes == 8 ? ((const ptx_u64 *)p)[lane]
                        : ((const ptx_u16 *)p)[lane];
}
static inline void ptx_put(struct ptx_warp *w, uint32_t slot, unsigned bytes, unsigned lane, uint64_t value)
{
    uint8_t *p = w->registers + slot;
    if (bytes == 4)
        ((ptx_u32 *)p)[lane] = (uint32_t)value;
    else if (bytes == 8)
        ((ptx_u64 *)p)[lane] = value;
    else
        ((ptx_u16 *)p)[lane] = (uint16_t)value;
}

/* ---- ptx_number.c ---- */
float ptx_from_bf16(uint16_t x);
uint16_t ptx_to_bf16(float x);
float ptx_from_f16(uint16_t x);
uint16_t ptx_to_f16(float x);
enum ptx_format { PTX_F16, PTX_BF16, PTX_E4M3, PTX_E5M2, PTX_TF32, PTX_FORMATS };
/* To nearest even (away: ties away from zero; zero: towards zero); finite: too large becomes the largest. */
uint32_t ptx_encode(double x, enum ptx_format format, char rounding, bool is_finite);
double ptx_decode_number(uint32_t bits, enum ptx_format format);

/* ---- ptx_global.c: accesses to device memory ---- */
enum {
    PTX_READS = 1,
    PTX_WRITES = 2,
    PTX_ATOMIC = 4,
    PTX_NONCOHERENT = 8,
    PTX_TOGETHER = 16 /* several lanes at once */
};
void ptx_global_start(struct ptx_block *b); /* a launch begins */
void ptx_global_block(struct ptx_block *b); /* a block begins */
/* One lane: checks and records; returns the data. */
uint8_t *ptx_global_one(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned bytes,
                        int how);
/* All at once, by lanes in a row; NULL: go by lanes. bytes: a multiple of 4, address too. */
uint8_t *ptx_global_range(struct ptx_warp *w, uint64_t address, unsigned bytes, int how);
/* Of a plain read: the lanes whose read is not like one before, and which have to go through ptx_global_one. */
uint32_t ptx_global_unknown(struct ptx_warp *w, uint32_t mask, const uint64_t *addresses, unsigned bytes);
void ptx_global_fence(struct ptx_block *b);
void ptx_global_atomic(struct ptx_block *b, uint64_t address); /* after a fence: hands over; always: takes over */

/* ---- ptx_shared.c ---- */
void ptx_shared_block(struct ptx_block *b);
uint8_t *ptx_shared_one(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned bytes,
                        int how);
/* Begins a cp.async: the bytes may not be touched until it was waited for. */
void ptx_shared_pend(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned bytes);
/* The lane writes what was pending. */
uint8_t *ptx_shared_arrive(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address,
                           unsigned bytes);
/* Two lanes of one store wrote different values to one place. */
void ptx_shared_check_store(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask, const uint64_t *addresses);
void ptx_sync_warp(struct ptx_warp *w, uint32_t mask);    /* the lanes know of each other */
void ptx_sync_block(struct ptx_block *b, uint32_t warps); /* the warps do */

/* ---- ptx_memory.c ---- */
uint8_t *ptx_memory_one(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, uint64_t address, unsigned bytes,
                        int space, int how);
void ptx_addresses(const struct ptx_warp *w, const struct ptx_insn *i, int slot, uint64_t *addresses);
/* ---- ptx_async.c ---- */
void ptx_async_wait(struct ptx_warp *w, uint32_t mask, uint32_t groups_left);
/* ---- ptx_step.c ---- */
void ptx_warp_run(struct ptx_warp *w, uint64_t quantum); /* until it waits, is done, or ran so many instructions */
void ptx_warp_release(struct ptx_warp *w);               /* from a barrier */
ptx_handler ptx_run_warp_sync;
/* ---- ptx_run.c ---- */
void ptx_special_fill(struct ptx_warp *w, const struct ptx_special *s);
void ptx_barrier_arrive(struct ptx_warp *w, const struct ptx_insn *i);

/* ---- ptx_report.c ---- */
enum ptx_report_kind {
    PTX_R_UNINITIALISED,
    PTX_R_RACE,
    PTX_R_CONFLICT,
    PTX_R_BARRIER,
    PTX_R_MASK,
    PTX_R_ASYNC,
    PTX_R_OTHER
};
/* A report, once for each instruction and kind; "kernel k, block (0,0,0), thread (5,0,0), file.cu:12: what [text]". */
void ptx_report(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, enum ptx_report_kind kind,
                const char *format, ...) __attribute__((format(printf, 5, 6)));
void ptx_die(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, const char *format, ...)
    __attribute__((format(printf, 4, 5), noreturn));
/* "file.cu:12" of an instruction. */
struct sim_words ptx_line(const struct ptx_program *p, uint32_t pc);
char *ptx_shown_name(struct ptx_module *m, struct ptx_word name);

#endif
