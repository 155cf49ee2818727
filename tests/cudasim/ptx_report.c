/* SPDX-License-Identifier: MIT */
/* Where a lane is, in words. */
#include "ptx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The last names of a mangled one: "rmsnorm<...>" for _Z7rmsnormIfEvPT_. */
char *ptx_shown_name(struct ptx_module *m, struct ptx_word name)
{
    struct ptx_word shown = name;
    bool is_template = false;
    if (name.n > 2 && name.at[0] == '_' && name.at[1] == 'Z') {
        uint32_t at = 2;
        while (at < name.n && strchr("NKL", name.at[at])) at++;
        while (at < name.n && name.at[at] >= '0' && name.at[at] <= '9') {
            uint64_t length = 0;
            while (at < name.n && name.at[at] >= '0' && name.at[at] <= '9' && length < name.n)
                length = 10 * length + (uint64_t)(name.at[at++] - '0');
            if (!length || length > name.n - at) break;
            shown = (struct ptx_word){name.at + at, (uint32_t)length};
            at += (uint32_t)length;
        }
        is_template = at < name.n && name.at[at] == 'I';
    }
    char *text = ptx_alloc(m, shown.n + 8);
    snprintf(text, shown.n + 8, "%.*s%s", (int)shown.n, shown.at, is_template ? "<...>" : "");
    return text;
}

static struct ptx_word file_of(const struct ptx_program *p, const struct ptx_place *place)
{
    const struct ptx_module *m = p->function->module;
    return place->file < m->n_files && m->files[place->file].at ? m->files[place->file] : (struct ptx_word){"", 0};
}

/* Is it a header of the toolkit? Then whoever included it is of more interest. */
static bool is_of_toolkit(struct ptx_word file)
{
    return memmem(file.at, file.n, "/cuda", 5) && memmem(file.at, file.n, "/include/", 9);
}

static int put_line(char *to, size_t size, const struct ptx_program *p, const struct ptx_place *place)
{
    struct ptx_word file = file_of(p, place);
    uint32_t from = file.n;
    while (from && file.at[from - 1] != '/') from--;
    return snprintf(to, size, "%.*s:%u", (int)(file.n - from < 60 ? file.n - from : 60), file.at + from, place->line);
}

struct sim_words ptx_line(const struct ptx_program *p, uint32_t pc)
{
    struct sim_words words = {"an unknown line"};
    uint32_t at = pc < p->n ? p->origins[pc].place : 0, depth = 0;
    if (!at) return words;
    const struct ptx_place *inner = &p->places[at - 1], *outer;
    while (inner->parent && is_of_toolkit(file_of(p, inner)) && depth++ < 64) inner = &p->places[inner->parent - 1];
    for (outer = inner; outer->parent && depth++ < 64;) outer = &p->places[outer->parent - 1];
    int n = put_line(words.text, sizeof words.text, p, inner);
    if (outer != inner && n < 100) {
        n += snprintf(words.text + n, sizeof words.text - (size_t)n, " in ");
        put_line(words.text + n, sizeof words.text - (size_t)n, p, outer);
    }
    return words;
}

static void describe(char *text, size_t size, const struct ptx_warp *w, const struct ptx_insn *i, unsigned lane,
                     const char *format, va_list arguments)
{
    const struct ptx_program *p = w->program;
    const struct ptx_block *b = w->block;
    const struct sim_dim *d = &b->launch->block;
    uint32_t pc = (uint32_t)(i - p->code), thread = w->id * PTX_LANES + lane;
    struct ptx_word insn = pc < p->n ? p->origins[pc].text : (struct ptx_word){"", 0};
    struct sim_words line = ptx_line(p, pc);
    int n =
        snprintf(text, size, "kernel %.80s, block (%u,%u,%u), thread (%u,%u,%u), %s: ", p->function->shown, b->index.x,
                 b->index.y, b->index.z, thread % d->x, thread / d->x % d->y, thread / d->x / d->y, line.text);
    n += vsnprintf(text + n, size - (size_t)n, format, arguments);
    if ((size_t)n + 8 >= size) return;
    n += snprintf(text + n, size - (size_t)n, " [");
    for (uint32_t k = 0; k < insn.n && (size_t)n + 3 < size && k < 120; k++) {
        bool is_space = strchr(" \t\r\n", insn.at[k]);
        if (is_space && text[n - 1] == ' ') continue;
        text[n++] = is_space ? ' ' : insn.at[k];
    }
    text[n++] = ']';
    text[n] = 0;
}

void ptx_report(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, enum ptx_report_kind kind,
                const char *format, ...)
{
    struct ptx_origin *origin = &w->program->origins[i - w->program->code];
    char text[900];
    va_list arguments;
    if (origin->reported >> kind & 1) return;
    origin->reported |= 1u << kind;
    va_start(arguments, format);
    describe(text, sizeof text, w, i, lane, format, arguments);
    va_end(arguments);
    sim_report("%s", text);
}

void ptx_die(struct ptx_warp *w, const struct ptx_insn *i, unsigned lane, const char *format, ...)
{
    char text[900];
    va_list arguments;
    va_start(arguments, format);
    describe(text, sizeof text, w, i, lane, format, arguments);
    va_end(arguments);
    sim_die("%s", text);
}
