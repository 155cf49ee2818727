/* SPDX-License-Identifier: MIT */
/* Spreading loops over the device's threads; see cpu.h. */
#include "kernels/cpu/cpu.h"

#include <stdatomic.h>

struct pool *cpu_pool(const struct kernel_context *c) { return c->device ? c->device->pool : NULL; }

struct ranges {
    int64_t n, grain;
    range_task task;
    range_sum sum;
    void *arg;
    double *partial; /* [ranges], of sums */
};

static void run_range(void *arg, int64_t chunk)
{
    const struct ranges *r = arg;
    int64_t begin = chunk * r->grain, end = begin + r->grain < r->n ? begin + r->grain : r->n;

    if (r->sum)
        r->partial[chunk] = r->sum(r->arg, begin, end);
    else
        r->task(r->arg, begin, end);
}

void cpu_for_ranges(struct kernel_context *c, int64_t n, int64_t grain, range_task task, void *arg)
{
    struct ranges r = {.n = n, .grain = grain, .task = task, .arg = arg};

    pool_run(cpu_pool(c), run_range, &r, (n + grain - 1) / grain);
}

int64_t cpu_rows_grain(int64_t width)
{
    enum { RANGE_ELEMENTS = 8192 };

    return width >= RANGE_ELEMENTS ? 1 : RANGE_ELEMENTS / (width < 1 ? 1 : width);
}

double cpu_sum_ranges(struct kernel_context *c, int64_t n, int64_t grain, range_sum task, void *arg)
{
    double partial[SUM_RANGES], sum = 0;
    int64_t least = (n + SUM_RANGES - 1) / SUM_RANGES;
    struct ranges r = {.n = n, .grain = grain > least ? grain : least, .sum = task, .arg = arg, .partial = partial};
    int64_t n_ranges;

    if (n <= 0) return 0;
    n_ranges = (n + r.grain - 1) / r.grain;
    pool_run(cpu_pool(c), run_range, &r, n_ranges);
    for (int64_t i = 0; i < n_ranges; i++) sum += partial[i];
    return sum;
}

struct items {
    atomic_int_fast64_t next;
    int64_t n;
    char *workspace;
    size_t scratch_bytes;
    item_task task;
    void *arg;
};

static void run_worker(void *arg, int64_t worker)
{
    struct items *s = arg;
    void *scratch = s->workspace + (size_t)worker * s->scratch_bytes;
    int64_t item;

    while ((item = atomic_fetch_add(&s->next, 1)) < s->n) s->task(s->arg, item, scratch);
}

void cpu_for_items(struct pool *p, int64_t n, void *workspace, size_t scratch_bytes, item_task task, void *arg)
{
    struct items s = {.n = n, .workspace = workspace, .scratch_bytes = scratch_bytes, .task = task, .arg = arg};
    int64_t workers = pool_threads(p);

    pool_run(p, run_worker, &s, workers < n ? workers : n);
}
