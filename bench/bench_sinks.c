/* SPDX-License-Identifier: MIT */
/*
 * What a logged step with 15 scalars costs the training thread: the median of single calls, a millisecond
 * apart as steps are, so that waking the writer thread is in it. bench/peers/logger_bench.py measures the
 * same of TensorBoard's writer. Prints one JSON line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "sinks/kinds.h"

enum { N_STEPS = 1000, N_SCALARS = 15, PACE_NS = 1000000 };

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static int64_t median(int64_t *values)
{
    qsort(values, N_STEPS, sizeof *values, by_value);
    return values[N_STEPS / 2];
}

static struct metric_row fifteen(int64_t step)
{
    struct metric_row row = {.run = "benchrun", .step = step, .wall_s = clock_wall_s()};

    for (int i = 0; i < N_SCALARS; i++) metric_row_set(&row, i, 1.0 / (double)(step + i));
    return row;
}

static int fail(const struct error *e)
{
    fprintf(stderr, "bench_sinks: %s\n", e->message);
    return 1;
}

int main(void)
{
    static int64_t write_ns[N_STEPS], step_ns[N_STEPS];
    char folder[] = "/tmp/ctitan-bench.XXXXXX";
    struct tfevents_options options = {.folder = folder, .run = "benchrun", .first_step = 1};
    struct metrics_spec spec = {.run = "benchrun", .log_freq = 1, .flops_per_token = 1e9, .peak_flops = 1e12};
    struct metrics *m = NULL;
    struct sinks *s = NULL;
    struct str line = {0};
    struct error e = {0};

    if (!mkdtemp(folder)) return 1;
    if (metrics_open(&m, &spec, &e) || sinks_create(&s, NULL, 0, &e) || sinks_add(s, &sink_ops_tfevents, &options, &e))
        return fail(&e);
    metrics_exclude_end(m);
    for (int i = 0; i < 2 * N_STEPS; i++) {
        struct metric_row row = fifteen(i + 1);
        int64_t start;

        clock_sleep_ns(PACE_NS);
        start = clock_ns();
        if (i % 2) {
            metrics_step(m, &(struct step_facts){.step = i, .loss_sum = 1, .n_valid = 1, .n_tokens = 1});
            if (metrics_collect(m, &row, NULL, &e)) return fail(&e);
        }
        sinks_write(s, &row);
        (i % 2 ? step_ns : write_ns)[i / 2] = clock_ns() - start;
    }
    metrics_close(m);
    if (sinks_close(s, INT64_C(60000000000))) return 1;
    json_open(&line, '{');
    json_member_text(&line, "bench", "sinks");
    json_member_int(&line, "scalars", N_SCALARS);
    json_member_number(&line, "write_us", (double)median(write_ns) / 1e3);
    json_member_number(&line, "collect_and_write_us", (double)median(step_ns) / 1e3);
    json_close(&line, '}');
    puts(str_text(&line));
    str_release(&line);
    return io_remove_tree(folder, &e) ? fail(&e) : 0;
}
