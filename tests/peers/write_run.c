/* SPDX-License-Identifier: MIT */
/*
 * One life of a run without a model: writes run.jsonl and event files into a dump folder through the real
 * sinks, with a validation row at every seventh step, a NaN at step 5 and an infinity at step 6.
 *
 * usage: write_run DUMP_FOLDER FIRST_STEP LAST_STEP      FIRST_STEP > 1: a resume, which cuts run.jsonl back
 * first
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/io.h"
#include "sinks/kinds.h"

static const struct tfevents_hparam hparams[] = {{"optimizer.lr", TFEVENTS_NUMBER, NULL, 8e-4},
                                                 {"model.name", TFEVENTS_TEXT, "llama3", 0},
                                                 {"checkpoint.enable", TFEVENTS_BOOL, NULL, 1}};

static struct metric_row row_of(int64_t step, enum metric_row_kind kind)
{
    struct metric_row row = {.run = "peersrun", .kind = kind, .step = step, .wall_s = clock_wall_s()};
    int first = kind == METRIC_ROW_TRAINING ? 0 : METRIC_VALIDATION_LOSS;
    int end = kind == METRIC_ROW_TRAINING ? METRIC_VALIDATION_LOSS : METRIC_COUNT;

    for (int i = first; i < end; i++) metric_row_set(&row, i, (double)((step * 7919 + i * 104729) % 1000) / 7);
    if (kind == METRIC_ROW_TRAINING && step == 5) metric_row_set(&row, METRIC_LOSS, NAN);
    if (kind == METRIC_ROW_TRAINING && step == 6) metric_row_set(&row, METRIC_LOSS, INFINITY);
    return row;
}

static err_t life(const char *dump, int64_t first, int64_t last, struct error *e)
{
    struct arena a = {0};
    struct jsonl_options jsonl = {.path = io_join(&a, dump, "run.jsonl")};
    struct tfevents_options tfevents = {.folder = io_join(&a, dump, "tb/20260101-0000"),
                                        .run = "peersrun",
                                        .first_step = first,
                                        .config_text = "training:\n  steps: 60",
                                        .hparams = hparams,
                                        .n_hparams = 3};
    struct sinks *s = NULL;
    err_t rc = io_make_folders(dump, e);

    if (!rc && first > 1) rc = jsonl_rewind(jsonl.path, first - 1, io_join(&a, dump, "superseded.jsonl"), NULL, e);
    if (!rc) rc = sinks_create(&s, NULL, 0, e);
    if (!rc) rc = sinks_add(s, &sink_ops_jsonl, &jsonl, e);
    if (!rc) rc = sinks_add(s, &sink_ops_tfevents, &tfevents, e);
    for (int64_t step = first; !rc && step <= last; step++) {
        struct metric_row training = row_of(step, METRIC_ROW_TRAINING),
                          validation = row_of(step, METRIC_ROW_VALIDATION);

        sinks_write(s, &training);
        if (step % 7 == 0) sinks_write(s, &validation);
    }
    if (sinks_close(s, INT64_C(60000000000)) && !rc) rc = FAIL(e, ERR_IO, "rows were not delivered");
    arena_release(&a);
    return rc;
}

int main(int argc, char **argv)
{
    struct error e = {0};

    if (argc != 4) return 2;
    if (!life(argv[1], atoll(argv[2]), atoll(argv[3]), &e)) return 0;
    fprintf(stderr, "write_run: %s\n", e.message);
    return 1;
}
