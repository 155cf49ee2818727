/* SPDX-License-Identifier: MIT */
/* Rows as lines for people; see kinds.h. Colours stand in torchtitan's order. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "sinks/kinds.h"

#define RED "\033[31m"
#define GREEN "\033[32m"
#define YELLOW "\033[33m"
#define BLUE "\033[34m"
#define MAGENTA "\033[35m"
#define CYAN "\033[36m"
#define ORANGE "\033[38;2;180;60;0m"
#define TURQUOISE "\033[38;2;54;234;195m"
#define RESET "\033[39m"

enum { PROGRESS_WIDTH = 24 };

struct console {
    const struct console_options *options;
    struct str plain, coloured;
};

/* One field of a line: text before, the value, text behind, and the value's second metric in brackets. */
struct field {
    const char *colour, *label, *unit;
    enum metric_id id;
    int percent_id; /* -1: none */
};

static const struct field training_fields[] = {
    {GREEN, "loss: ", "", METRIC_LOSS, -1},
    {ORANGE, "grad_norm: ", "", METRIC_GRAD_NORM, -1},
    {TURQUOISE, "memory: ", "GiB", METRIC_MEMORY_RESERVED, METRIC_MEMORY_RESERVED_PERCENT},
    {BLUE, "tps: ", "", METRIC_TPS, -1},
    {CYAN, "tflops: ", "", METRIC_TFLOPS, -1},
    {MAGENTA, "mfu: ", "", METRIC_MFU, -1},
};

static const struct field validation_fields[] = {
    {GREEN, "loss: ", "", METRIC_VALIDATION_LOSS, -1},
    {TURQUOISE, "memory: ", "GiB", METRIC_VALIDATION_RESERVED, METRIC_VALIDATION_RESERVED_PERCENT},
    {BLUE, "tps: ", "", METRIC_VALIDATION_TPS, -1},
};

bool console_wants_colour(int fd, const char *no_color, bool is_disabled)
{
    return !is_disabled && !(no_color && *no_color) && isatty(fd);
}

/* "1,234,567.89" */
static void add_thousands(struct str *out, double value, int decimals)
{
    struct str digits = {0};
    size_t whole, i = 0;

    str_addf(&digits, "%.*f", decimals, value);
    whole = strcspn(str_text(&digits), ".");
    if (str_text(&digits)[0] == '-') str_add_char(out, digits.text[i++]);
    for (; i < digits.length; i++) {
        str_add_char(out, digits.text[i]);
        if (i + 1 < whole && (whole - i - 1) % 3 == 0) str_add_char(out, ',');
    }
    str_release(&digits);
}

static void add_value(struct str *out, const struct metric_row *row, enum metric_id id, const char *unit)
{
    const char *format = metric_table[id].format;
    double value = row->value[id];

    if (!metric_row_has(row, id)) {
        str_add(out, "N/A");
    } else if (!isfinite(value)) {
        str_add(out, isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf");
    } else {
        if (format[0] == ',') {
            add_thousands(out, value, format[1] - '0');
        } else {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            str_addf(out, format, value); /* from metrics.def */
#pragma GCC diagnostic pop
        }
        str_add(out, unit);
    }
}

static void add_fields(struct str *out, const struct metric_row *row, const struct field *fields, int n,
                       bool use_colour)
{
    for (int i = 0; i < n; i++) {
        const struct field *f = &fields[i];

        str_add(out, "  ");
        if (use_colour) str_add(out, f->colour);
        str_add(out, f->label);
        add_value(out, row, f->id, f->unit);
        if (f->percent_id < 0 || !metric_row_has(row, f->percent_id)) continue;
        str_add_char(out, '(');
        add_value(out, row, (enum metric_id)f->percent_id, "%");
        str_add_char(out, ')');
    }
}

void console_line(struct str *out, const struct metric_row *row, bool use_colour)
{
    bool is_validation = row->kind == METRIC_ROW_VALIDATION;

    if (use_colour) str_add(out, is_validation ? YELLOW : RED);
    str_addf(out, "%sstep: %lld", is_validation ? "validate " : "", (long long)row->step);
    if (is_validation)
        add_fields(out, row, validation_fields, sizeof validation_fields / sizeof *validation_fields, use_colour);
    else
        add_fields(out, row, training_fields, sizeof training_fields / sizeof *training_fields, use_colour);
    if (use_colour) str_add(out, RESET);
    if (metric_row_has(row, METRIC_SKIPPED)) {
        str_add(out, "  skipped: ");
        add_value(out, row, METRIC_SKIPPED, "");
    }
}

static void add_duration(struct str *out, double seconds)
{
    long long s = (long long)(seconds + 0.5);

    if (s >= 86400)
        str_addf(out, "%lldd%02lldh", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        str_addf(out, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else if (s >= 60)
        str_addf(out, "%lldm%02llds", s / 60, s % 60);
    else
        str_addf(out, "%llds", s);
}

void console_progress(struct str *out, int64_t step, int64_t total_steps, double step_s, int width)
{
    double done = (double)step / (double)total_steps;
    int full = (int)(done * width);

    str_addf(out, "step %lld/%lld [", (long long)step, (long long)total_steps);
    for (int i = 0; i < width; i++) str_add_char(out, i < full ? '=' : i == full ? '>' : ' ');
    str_addf(out, "] %.0f%%  %.3g s/step  ", floor(100 * done), step_s);
    add_duration(out, step_s * (double)(total_steps - step));
    str_add(out, " left");
}

static err_t console_open(void **out, const void *options, struct error *e)
{
    struct console *c = *out = mem_zalloc(1, sizeof *c);

    if (!c) return FAIL(e, ERR_MEMORY, "out of memory for the console's lines");
    c->options = options;
    return ERR_NONE;
}

static err_t console_write(void *sink, const struct metric_row *row, struct error *e)
{
    struct console *c = sink;
    const struct console_options *o = c->options;
    struct str progress = {0};

    str_clear(&c->plain);
    str_clear(&c->coloured);
    console_line(&c->plain, row, false);
    console_line(&c->coloured, row, true);
    if (str_ok(&c->plain, e) || str_ok(&c->coloured, e)) return ERR_MEMORY;
    log_info_coloured(o->log, str_text(&c->plain), str_text(o->use_colour ? &c->coloured : &c->plain));
    if (o->total_steps > 0 && metric_row_has(row, METRIC_TIME_STEP)) {
        if (row->step < o->total_steps)
            console_progress(&progress, row->step, o->total_steps, row->value[METRIC_TIME_STEP], PROGRESS_WIDTH);
        log_status(o->log, str_text(&progress));
        str_release(&progress);
    }
    return ERR_NONE;
}

static err_t console_text(void *sink, const struct sink_text *text, struct error *e)
{
    struct console *c = sink;

    (void)e;
    log_info(c->options->log, "step: %lld  %s: %s", (long long)text->step, text->tag, text->text);
    return ERR_NONE;
}

static err_t console_flush(void *sink, struct error *e) /* a log never fails */
{
    (void)sink;
    (void)e;
    return ERR_NONE;
}

static void console_close(void *sink)
{
    struct console *c = sink;

    log_status(c->options->log, "");
    str_release(&c->plain);
    str_release(&c->coloured);
    mem_free(c);
}

const struct sink_ops sink_ops_console = {
    .name = "console",
    .open = console_open,
    .write = console_write,
    .text = console_text,
    .flush = console_flush,
    .close = console_close,
};
