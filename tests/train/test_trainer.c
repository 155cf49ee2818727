/* SPDX-License-Identifier: MIT */
/*
 * A whole life of a rank (set-up, two steps, validation, checkpoints, end) in which memory runs out:
 * allocations of the host fail once each. The life ends with an error that says so or does without that
 * memory; nothing is left behind, no other rank waits for ever, and the folder serves the next life.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "tests/support/configs.h"
#include "tests/support/temp.h"
#include "tests/support/world.h"
#include "train/trainer.h"

static struct config *config_for(const char *folder, int n_ranks)
{
    struct config_problems problems = {0};
    struct config *c;
    char yaml[4096];

    snprintf(yaml, sizeof yaml,
             "job: {dump_folder: %s}\n"
             "model: {dim: 8, n_layers: 1, n_heads: 2, n_kv_heads: 1, ffn_dim: 8, vocab_size: 258}\n"
             "training: {steps: 2, seq_len: 8, local_batch_size: 1, global_batch_size: 2, dataset: [%s/text], "
             "tokenizer: byte,\n"
             "    tokenizer_vocab_size: 257, cache_folder: %s/cache}\n"
             "validation: {enable: true, dataset: [%s/text], seq_len: 8, local_batch_size: 1, steps: 1, freq: 1}\n"
             "optimizer: {param_groups: ['norm: weight_decay=0']}\n"
             "checkpoint: {enable: true, interval: 1, keep_latest_k: 1}\n"
             "metrics: {log_freq: 1, enable_tensorboard: true, tags: [a=b]}\n"
             "device: {threads: 1}\n",
             folder, folder, folder, folder);
    c = config_of_text(yaml);
    config_resolve(c, n_ranks, &problems);
    if (problems.n) fail_msg("%s", str_text(&problems.text));
    config_problems_release(&problems);
    return c;
}

/* One folder, and what the lives in it share. */
struct scene {
    struct temp t;
    struct config *c;
    int n_finished, n_failed;
};

static void open_scene(struct scene *s, int n_ranks)
{
    memset(s, 0, sizeof *s);
    temp_make(&s->t);
    temp_write_text(&s->t, "text", "some text for a run that is told again and again that there is no memory");
    s->c = config_for(s->t.folder, n_ranks);
}

static void close_scene(struct scene *s)
{
    mem_fault_arm(-1);
    config_destroy(s->c);
    temp_remove(&s->t);
}

/* As job.c does it, without its log. */
static err_t live(struct comm *world, void *arg, struct error *e)
{
    struct scene *s = arg;
    struct trainer_spec spec = {.cfg = s->c, .world = world, .started_ns = clock_ns()};
    struct trainer *t = calloc(1, sizeof *t);
    err_t rc = trainer_open(t, &spec, e);

    if (!rc) rc = train_run(t, e);
    if (!rc && t->step != 2) rc = FAIL(e, ERR_RANGE, "ended after step %lld of 2", (long long)t->step);
    if (rc) comm_abort(world, e->message);
    trainer_close_sinks(t);
    trainer_close(t);
    free(t);
    return rc;
}

/* A life in which allocation n fails; false: there were not so many. Odd ones begin without what the former
 * left, some without the cache. */
static bool live_without(struct scene *s, long n, int n_ranks)
{
    struct error e = {0};
    bool has_fired;
    err_t rc;

    if (n % 2 &&
        (io_remove_tree(temp_path(&s->t, "checkpoint"), &e) || io_remove_tree(temp_path(&s->t, "run.json"), &e)))
        fail_msg("%s", e.message);
    if (n % 4 == 1 && io_remove_tree(temp_path(&s->t, "cache"), &e)) fail_msg("%s", e.message);
    mem_fault_arm(n);
    rc = world_try(n_ranks, live, s, &e);
    has_fired = mem_fault_fired();
    mem_fault_arm(-1);
    if (rc && !strstr(e.message, "memory")) fail_msg("allocation %ld: error %s: %s", n, error_code_name(rc), e.message);
    if (rc && !has_fired) fail_msg("%s", e.message);
    s->n_failed += rc != ERR_NONE;
    s->n_finished += rc == ERR_NONE;
    return has_fired;
}

static void test_alone(void **state)
{
    struct scene s;
    long n = 20; /* later than what makes the ranks' threads */

    (void)state;
    open_scene(&s, 1);
    while (live_without(&s, n, 1)) n += n < 200 ? 1 : 1 + n % 29; /* set-up whole, of the rest a sample */
    assert_true(s.n_failed > 100 && s.n_finished > 0);
    close_scene(&s);
}

static void test_two_ranks(void **state)
{
    struct scene s;
    long n = 40;

    (void)state;
    open_scene(&s, 2);
    while (live_without(&s, n, 2)) n += 1 + n % 29;
    assert_true(s.n_failed > 10 && s.n_finished > 0);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_two_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
