/* SPDX-License-Identifier: MIT */
/* ctitan train: reads the configuration, refuses what cannot be trained, runs the job, and leaves the outcome for the
 * launcher. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "cli/cli.h"
#include "config/config.h"
#include "metrics/metrics.h"
#include "models/model.h"
#include "train/job.h"

static const char USAGE[] = "usage: ctitan train [--config NAME|PATH] [section.key=value ...]\n\n"
                            "Trains a model with the ranks that mpirun or srun started, alone without them, or with "
                            "comm.mode=local_tensor as threads.\n"
                            "./run_train.sh is the usual way to start it. Options, with their defaults:\n\n";

/* Everything that is wrong, in one go, before any rank starts. */
static err_t load(struct config **cfg, int argc, char **argv, struct error *e)
{
    struct config_problems problems = {0};
    struct model_spec model;
    struct str missing = {0};
    err_t rc = config_load(cfg, argc, argv, &problems, e);

    if (!rc) model_spec_resolve(&model, *cfg, &problems);
    if (problems.n)
        rc = job_is_first() ? cli_config_problems(&problems, e)
                            : ERR_CONFIG; /* every rank finds the same: rank 0 says it */
    if (!rc && config_missing_features(*cfg, &missing) > 0)
        rc = FAIL(e, ERR_UNSUPPORTED, "this build lacks what the configuration asks for:\n%s", str_text(&missing));
    config_problems_release(&problems);
    str_release(&missing);
    return rc;
}

/* The launcher cannot see a rank's exit code through mpirun: rank 0 writes it down. */
static void leave_outcome(int code)
{
    const char *path = getenv("CTITAN_OUTCOME_FILE");
    FILE *f;

    if (!path || !path[0] || !job_is_first() || !(f = fopen(path, "w"))) return;
    fprintf(f, "%d\n", code);
    fclose(f);
}

int cli_train(int argc, char **argv, struct error *e)
{
    struct job job = {.n_arguments = argc - 1, .arguments = (const char *const *)argv + 1, .started_ns = clock_ns()};
    err_t rc;
    int code;

    if (config_wants_help(argc - 1, argv + 1)) return cli_exit_code(cli_help(USAGE, e));
    rc = load(&job.cfg, argc - 1, argv + 1, e);
    if (rc && !job_is_first()) e->message[0] = '\0';
    if (!rc && !metrics_rank_list_ok(getenv("LOG_RANK"))) {
        rc = ERR_USAGE;
        if (job_is_first()) FAIL(e, rc, "LOG_RANK=%.100s is not a list of ranks, such as 0 or 0,3", getenv("LOG_RANK"));
    }
    if (!rc) rc = job_run(&job, e);
    config_destroy(job.cfg);
    code = cli_exit_code(rc);
    leave_outcome(code);
    return code;
}
