/* SPDX-License-Identifier: MIT */
/* Any text as PTX: each kernel is decoded, or the text is refused by sim_die, by name. Built without CUDA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cudasim/ptx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- what the interpreter wants of the simulator ---- */
enum { MOST = 1 << 16 };
static jmp_buf refused;
static void *blocks[MOST];
static int n_blocks;
struct sim_options sim_options;
uint8_t *sim_alias, *sim_shadow;

void sim_die(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!*text) abort();
    longjmp(refused, 1);
}
void sim_report(const char *format, ...) { (void)format; }
void *sim_alloc(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p || n_blocks == MOST) abort();
    return blocks[n_blocks++] = p;
}
/* nothing runs: these are not called */
void *sim_grow(void *old, size_t bytes) { return realloc(old, bytes); }
uint64_t sim_random(uint64_t *state) { return ++*state; }
uint64_t sim_ns(void) { return 0; }
uint64_t sim_allocation(uint64_t address, uint64_t *bytes) { return (void)address, (void)bytes, 0; }
struct sim_words sim_where(uint64_t address) { return (void)address, (struct sim_words){""}; }
void sim_access_add(struct sim_access *access, uint64_t address, uint64_t bytes, bool is_write)
{
    (void)access, (void)address, (void)bytes, (void)is_write;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    n_blocks = 0;
    if (setjmp(refused)) {
        while (n_blocks) free(blocks[--n_blocks]);
        return 0;
    }
    struct ptx_module *m = ptx_module_parse((const char *)data, size);
    for (int i = 0; i < m->n_functions; i++) {
        struct ptx_function *f = &m->functions[i];
        if (!f->is_entry || f->is_declared_only) continue;
        ptx_function_static_shared(f);
        for (int k = 0; k < ptx_function_parameters(f); k++) {
            size_t offset, bytes;
            ptx_function_parameter(f, k, &offset, &bytes);
        }
        for (uint32_t k = 0; k < f->program->n; k++) {
            const struct ptx_insn *insn = &f->program->code[k];
            struct sim_words words = ptx_line(f->program, k);
            if (!*words.text || (insn->kind == PTX_PLAIN && !insn->run)) abort();
            if (insn->kind == PTX_BRANCH && insn->target >= f->program->n) abort();
        }
    }
    for (int i = 0; i < ptx_module_variables(m); i++) {
        uint64_t bytes, align;
        const void *initial;
        ptx_module_variable(m, i, &bytes, &align, &initial);
        if (initial && bytes) (void)*(volatile const uint8_t *)initial;
    }
    ptx_module_free(m);
    return 0;
}
