/* SPDX-License-Identifier: MIT */
/* A rank of a training that fails, walks away or stays away in the middle of a step: the other, a thread beside it,
 * ends with a message that names it, within comm.train_timeout_seconds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "comm/fault.h"
#include "tests/support/configs.h"
#include "tests/support/rank.h"
#include "tests/support/temp.h"
#include "train/trainer.h"

enum { RANKS = 2 };

struct plan {
    const struct config *cfg;
    struct comm_fault fault;
    int after; /* how many collectives of the training are well */
    err_t rc[RANKS];
    struct error e[RANKS];
};

static void train(struct rank_test *t)
{
    struct plan *p = t->arg;
    int rank = t->comm->rank;
    struct error *e = &p->e[rank];
    struct trainer *trainer = mem_zalloc(1, sizeof *trainer);
    struct trainer_spec spec = {.cfg = p->cfg};
    struct log log;
    err_t rc = comm_fault_create(t->comm, &p->fault, &t->comm, e);

    rank_check_at(t, rc == ERR_NONE, __FILE__, __LINE__, "fault: %s", e->message);
    log_init(&log, -1, rank);
    spec.log = &log;
    spec.world = t->comm;
    if (!rc) rc = trainer_open(trainer, &spec, e);
    rank_check_at(t, rc == ERR_NONE, __FILE__, __LINE__, "set-up: %s", e->message);
    if (rank == p->fault.world_rank) p->fault.nth = p->fault.calls + p->after;
    if (!rc) rc = train_run(trainer, e);
    if (rc) comm_abort(t->comm, e->message);
    p->rc[rank] = rc;
    trainer_close_sinks(trainer);
    trainer_close(trainer);
    mem_free(trainer);
    log_release(&log);
}

static void fail_in(struct config *cfg, enum comm_fault_action action, int guilty, int after)
{
    struct plan p = {.cfg = cfg, .fault = {.action = action, .world_rank = guilty, .delay_s = 2.5}, .after = after};
    const struct error *other = &p.e[1 - guilty];
    char text[64];

    ranks_as_threads(RANKS, 60, train, &p);
    assert_int_not_equal(p.rc[guilty], ERR_NONE);
    assert_int_equal(p.rc[1 - guilty], action == COMM_FAULT_DELAY ? ERR_TIMEOUT : ERR_PEER);
    snprintf(text, sizeof text, action == COMM_FAULT_DELAY ? "rank %d did not arrive within 1 s" : "rank %d ", guilty);
    if (!strstr(other->message, text)) fail_msg("\"%s\" is not in: %s", text, other->message);
    if (!strstr(other->message, "step ")) fail_msg("no step in: %s", other->message);
}

static void test_failures(void **state)
{
    const enum comm_fault_action actions[] = {COMM_FAULT_FAIL, COMM_FAULT_LEAVE, COMM_FAULT_DELAY};
    struct config_problems problems = {0};
    struct temp folder;
    char dump[TEMP_PATH_BYTES + 32];
    struct config *cfg;

    (void)state;
    temp_make(&folder);
    snprintf(dump, sizeof dump, "job.dump_folder=%s/dump", folder.folder);
    cfg = config_of_arguments(TEXTS("training.dataset=synthetic", "training.seq_len=16", "training.local_batch_size=1",
                                    "training.steps=50", "model.dim=32", "model.n_layers=2", "model.n_heads=2",
                                    "model.ffn_dim=64", "model.vocab_size=300", "training.tokenizer=byte",
                                    "device.threads=1", "comm.train_timeout_seconds=1", dump));
    config_resolve(cfg, RANKS, &problems);
    if (problems.n) fail_msg("%s", str_text(&problems.text));
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < (actions[i] == COMM_FAULT_DELAY ? 2 : 6); k++)
            fail_in(cfg, actions[i], k % 2, 60 + 7 * k); /* in step 3 and later */
    config_destroy(cfg);
    config_problems_release(&problems);
    temp_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failures)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
