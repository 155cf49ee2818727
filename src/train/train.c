/* SPDX-License-Identifier: MIT */
/* The training loop: steps, with validation, checkpoints and the answer to a request to stop between them. */
#include "train/trainer.h"

/* Has any rank been asked to stop? The ranks agree, so that all stop after the same step. */
static err_t stop_requested(struct trainer *t, bool *is_requested, struct error *e)
{
    int64_t signal_number = signals_pending(t->spec.signals);
    err_t rc = comm_all_reduce(t->mesh.world, "agree to stop", &signal_number, 1, DTYPE_INT64, COMM_MAX, NULL, e);

    if (rc) return error_prefix(e, rc, "after step %lld", (long long)t->step);
    *is_requested = signal_number != 0;
    if (signal_number)
        log_info(t->spec.log, "%s received: stopping after step %lld", signals_name((int)signal_number),
                 (long long)t->step);
    return ERR_NONE;
}

static bool is_multiple(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

static bool must_validate(const struct trainer *t)
{
    return t->cfg->validation.enable && (t->step == 1 || is_multiple(t->step, t->cfg->validation.freq));
}

static bool saves(const struct trainer *t)
{
    return t->cfg->checkpoint.enable && !t->cfg->checkpoint.load_only && !t->spec.is_dry;
}

static bool is_save_due(const struct trainer *t)
{
    const struct config_checkpoint *c = &t->cfg->checkpoint;

    return saves(t) && (is_multiple(t->step, c->interval) || (t->step == 1 && c->enable_first_step_checkpoint));
}

static err_t save_if_due(struct trainer *t, bool is_last, bool is_stopped, struct error *e)
{
    const struct config_checkpoint *c = &t->cfg->checkpoint;
    err_t rc;

    if (!saves(t) || !(is_last || is_stopped || is_save_due(t))) return ERR_NONE;
    rc = trainer_save(t, is_last && c->last_save_model_only, e);
    if (rc && rc != ERR_IO) return error_prefix(e, rc, "checkpoint of step %lld", (long long)t->step);
    if (!rc) return rc;
    /* A disk that is full or away for a while: earlier checkpoints are whole, and an end now would lose what was
     * trained since. */
    if (!is_last && !is_stopped) {
        log_error(t->spec.log, "no checkpoint of step %lld: %s; training goes on, and the next is tried when it is due",
                  (long long)t->step, e->message);
        return ERR_NONE;
    }
    error_prefix(e, rc, "%s after step %lld, but its checkpoint cannot be saved", is_last ? "done" : "stopped",
                 (long long)t->step);
    return trainer_tell_once(t, e);
}

/* Initial parameters as step 0, for runs on any mesh to begin with. */
static err_t save_seed(struct trainer *t, struct error *e)
{
    err_t rc = saves(t) ? trainer_save(t, true, e) : ERR_NONE;

    if (rc == ERR_IO) return trainer_tell_once(t, e);
    if (!rc)
        log_info(t->spec.log,
                 "the seed is there: start without checkpoint.create_seed_checkpoint, on any mesh, to train from it");
    return rc;
}

static err_t stopped(const struct trainer *t, struct error *e)
{
    const struct config_checkpoint *c = &t->cfg->checkpoint;
    long long step = t->step, steps = t->cfg->training.steps;

    if (saves(t)) return FAIL(e, ERR_STOPPED, "stopped after step %lld of %lld; start again to go on", step, steps);
    return FAIL(e, ERR_INTERRUPTED, "stopped after step %lld of %lld; nothing was saved, because %s", step, steps,
                !c->enable     ? "checkpoint.enable is false"
                : c->load_only ? "checkpoint.load_only is true"
                               : "this is a dry run");
}

err_t train_run(struct trainer *t, struct error *e)
{
    bool is_stopped = false, is_last = t->step >= t->cfg->training.steps;
    err_t rc = ERR_NONE;

    metrics_exclude_end(t->metrics);
    if (t->cfg->checkpoint.create_seed_checkpoint) return save_seed(t, e);
    if (is_last)
        log_info(t->spec.log, "the run has done its %lld steps: raise training.steps to go on", (long long)t->step);
    else if (t->start.lacks_validation && must_validate(t))
        rc = train_validate(t, e);
    if (rc) return rc;
    while (!is_last && !is_stopped) {
        rc = train_step(t, e);
        if (rc) return rc;
        if (t->step == t->start.step + 1) trainer_be_patient(t, false);
        if (t->step == t->start.step + 2) trainer_compare_memory(t);
        is_last = t->step >= t->cfg->training.steps;
        rc = stop_requested(t, &is_stopped, e);
        if (!rc && (is_last || is_stopped || must_validate(t) || is_save_due(t))) rc = trainer_settle(t, e);
        if (!rc && must_validate(t) && (is_last || !is_stopped))
            rc = train_validate(t, e); /* else when the run goes on */
        if (!rc) rc = save_if_due(t, is_last, is_stopped, e);
        if (rc) return rc;
    }
    return is_stopped && !is_last ? stopped(t, e) : ERR_NONE;
}
