/* SPDX-License-Identifier: MIT */
/*
 * Times the kernels at shapes of real training: one JSON line per case, with the best of several runs.
 *
 * usage: bench_kernels [--kernel NAME] [--shape TEXT] [--level auto|avx512|avx2|reference]
 *                      [--type float32|float64|bfloat16]
 * [--threads N]
 *                      [--repeat N] [--with-reference] [--list]
 * --kernel and --shape take the cases whose kernels and shapes contain the text; --with-reference also times the
 * reference (once: it is slow) and gives the ratio; --list only prints the cases.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/pool.h"
#include "tests/kernels/cases.h"

struct options {
    const char *kernel, *shape, *level, *type;
    int threads, repeat;
    bool with_reference, list;
};

static bool parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){.kernel = "", .shape = "", .level = "auto", .type = "float32", .threads = 1, .repeat = 7};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--with-reference") == 0) {
            o->with_reference = true;
            continue;
        }
        if (strcmp(argv[i], "--list") == 0) {
            o->list = true;
            continue;
        }
        if (!value) return false;
        if (strcmp(argv[i], "--kernel") == 0)
            o->kernel = value;
        else if (strcmp(argv[i], "--shape") == 0)
            o->shape = value;
        else if (strcmp(argv[i], "--level") == 0)
            o->level = value;
        else if (strcmp(argv[i], "--type") == 0)
            o->type = value;
        else if (strcmp(argv[i], "--threads") == 0)
            o->threads = atoi(value);
        else if (strcmp(argv[i], "--repeat") == 0)
            o->repeat = atoi(value);
        else
            return false;
        i++;
    }
    return o->threads > 0 && o->repeat > 0;
}

enum { LEAST_NS = 30 * 1000 * 1000 };

struct times {
    int64_t wall_ns;
    int64_t cpu_ns; /* of the calling thread: what one thread would take on an idle machine */
};

static int64_t cpu_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The shortest of `repeat` runs, after one that is not counted; short ones go on until threads that slept have come. */
static struct times time_run(struct kernel_run *r, const struct kernels *k, int repeat)
{
    struct times best = {INT64_MAX, INT64_MAX};
    int64_t end = clock_ns() + (repeat > 1 ? LEAST_NS : 0);

    if (repeat > 1) kernel_run_call(r, k);
    for (int i = 0; i < repeat || clock_ns() < end; i++) {
        int64_t cpu = cpu_now_ns(), wall = clock_ns();

        kernel_run_call(r, k);
        cpu = cpu_now_ns() - cpu;
        wall = clock_ns() - wall;
        if (cpu < best.cpu_ns) best.cpu_ns = cpu;
        if (wall < best.wall_ns) best.wall_ns = wall;
    }
    return best;
}

static void number(struct str *s, const char *key, double value)
{
    json_key(s, key);
    json_number(s, value);
}

static void text(struct str *s, const char *key, const char *value)
{
    json_key(s, key);
    json_text(s, value);
}

static void bench(const struct kernel_case *c, const struct kernels *k, const struct kernels *reference,
                  struct kernel_context *context, const struct options *o)
{
    char shape[CASE_TEXT_BYTES];
    struct kernel_run run;
    struct str s = {0};

    kernel_case_text(c, shape);
    if (!strstr(c->kernel, o->kernel) || !strstr(shape, o->shape)) return;
    json_open(&s, '{');
    text(&s, "kernel", c->kernel);
    text(&s, "shape", shape);
    text(&s, "type", dtype_name(k->type));
    if (!o->list) {
        struct times best;

        kernel_run_init(&run, c, k, context);
        best = time_run(&run, k, o->repeat);
        text(&s, "level", k->level);
        number(&s, "threads", o->threads);
        number(&s, "milliseconds", (double)best.wall_ns / 1e6);
        number(&s, "cpu_milliseconds", (double)best.cpu_ns / 1e6);
        if (kernel_case_flops(c) > 0) number(&s, "gflop_per_s", kernel_case_flops(c) / (double)best.wall_ns);
        number(&s, "gb_per_s", kernel_case_bytes(c, k->type) / (double)best.wall_ns);
        if (o->with_reference)
            number(&s, "times_reference", (double)time_run(&run, reference, 1).wall_ns / (double)best.wall_ns);
        kernel_run_release(&run);
    }
    json_close(&s, '}');
    printf("%s\n", str_text(&s));
    fflush(stdout);
    str_release(&s);
}

int main(int argc, char **argv)
{
    struct device_ops ops = {.name = "cpu"};
    struct device device = {.ops = &ops};
    struct kernel_context context = {.device = &device};
    const struct kernels *k, *reference;
    enum dtype type;
    struct options o;
    struct error e;

    if (!parse(&o, argc, argv) || !dtype_parse(o.type, &type)) {
        fprintf(stderr, "usage: bench_kernels [--kernel NAME] [--shape TEXT] [--level auto|avx512|avx2|reference] "
                        "[--type float32|float64|bfloat16]\n"
                        "                     [--threads N] [--repeat N] [--with-reference] [--list]\n");
        return 2;
    }
    if (pool_create(&device.pool, o.threads, &e) || kernels_for(&k, &device, type, o.level, &e) ||
        kernels_for(&reference, &device, type, "reference", &e)) {
        fprintf(stderr, "bench_kernels: %s\n", e.message);
        return 1;
    }
    context.workspace_bytes = kernels_workspace_bytes(k, o.threads);
    context.workspace = mem_aligned(64, context.workspace_bytes);
    for (int i = 0; i < kernel_cases_count; i++)
        if (kernel_cases[i].is_bench) bench(&kernel_cases[i], k, reference, &context, &o);
    mem_free(context.workspace);
    pool_destroy(device.pool);
    return 0;
}
