/* SPDX-License-Identifier: MIT */
/*
 * Action lists are data, so their rules are checked on the data: a small machine walks every list that
 * schedules and passes make, for many sizes, and refuses an action that a rank could not do, does twice or
 * forgets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "parallel/action.h"

enum { MAX_UNITS = 9, MAX_MICROBATCHES = 4 };

struct plan {
    int group_of_unit[MAX_UNITS];
    struct fsdp_facts facts;
    int n_microbatches;
    bool is_forward_only, is_tied; /* tied: the last unit uses the first one's group */
    struct action_list compute, list;
    char what[160];
};

static void make_plan(struct plan *p, int n_units, int n_microbatches, int n_shards, int n_replicas,
                      enum reshard_policy reshard, bool is_tied, bool is_forward_only, bool casts)
{
    static const char *const policies[] = {"default", "always", "never"};
    struct error e = {0};
    err_t rc;

    memset(p, 0, sizeof *p);
    for (int u = 0; u < n_units; u++) p->group_of_unit[u] = u;
    if (is_tied) p->group_of_unit[n_units - 1] = 0;
    p->facts = (struct fsdp_facts){.group_of_unit = p->group_of_unit,
                                   .n_units = n_units,
                                   .n_groups = n_units - is_tied,
                                   .n_shards = n_shards,
                                   .n_replicas = n_replicas,
                                   .casts = casts,
                                   .reshard = reshard};
    p->n_microbatches = n_microbatches;
    p->is_forward_only = is_forward_only;
    p->is_tied = is_tied;
    snprintf(p->what, sizeof p->what, "%d units, %d microbatches, %d shards, %d replicas, reshard %s%s%s%s", n_units,
             n_microbatches, n_shards, n_replicas, policies[reshard], is_tied ? ", tied" : "",
             is_forward_only ? ", forward only" : "", casts ? ", cast" : "");
    rc = is_forward_only ? schedule_forward(&p->compute, n_units, n_microbatches, &e)
                         : schedule_sequential(&p->compute, n_units, n_microbatches, &e);
    if (!rc) rc = fsdp_pass(&p->list, &p->compute, &p->facts, &e);
    if (rc) fail_msg("%s: %s", p->what, e.message);
}

static void release_plan(struct plan *p)
{
    action_list_release(&p->compute);
    action_list_release(&p->list);
}

static void refuse(const struct plan *p, int i, const char *reason)
{
    struct str text = {0};

    action_list_print(&p->list, &text);
    fail_msg("%s: action %d %s in: %s", p->what, i, reason, str_text(&text));
}

static bool is_compute(const struct action *a) { return a->kind <= ACTION_BACKWARD_WEIGHT; }

static int group_of(const struct plan *p, const struct action *a)
{
    return is_compute(a) ? p->group_of_unit[a->index] : a->index;
}

/* ---- the schedules ---- */
/* F of all units, then I and W of all units backwards, microbatch after microbatch; each once. */
static void test_sequential(void **state)
{
    struct action_list l = {0};
    struct error e = {0};
    int i = 0;

    (void)state;
    assert_int_equal(schedule_sequential(&l, 5, 3, &e), ERR_NONE);
    assert_int_equal(l.n, 3 * 5 * 3);
    for (int m = 0; m < 3; m++) {
        for (int u = 0; u < 5; u++, i++)
            assert_true(l.items[i].kind == ACTION_FORWARD && l.items[i].index == u && l.items[i].microbatch == m);
        for (int u = 4; u >= 0; u--, i += 2) {
            assert_true(l.items[i].kind == ACTION_BACKWARD_INPUT && l.items[i].index == u &&
                        l.items[i].microbatch == m);
            assert_true(l.items[i + 1].kind == ACTION_BACKWARD_WEIGHT && l.items[i + 1].index == u &&
                        l.items[i + 1].microbatch == m);
        }
    }
    action_list_release(&l);
    action_list_release(&l);
}

static void test_forward(void **state)
{
    struct action_list l = {0};
    struct error e = {0};

    (void)state;
    assert_int_equal(schedule_forward(&l, 3, 2, &e), ERR_NONE);
    assert_int_equal(l.n, 6);
    for (int i = 0; i < 6; i++)
        assert_true(l.items[i].kind == ACTION_FORWARD && l.items[i].index == i % 3 && l.items[i].microbatch == i / 3);
    action_list_release(&l);
}

static void assert_printed(const struct plan *p, const char *want)
{
    struct str text = {0};

    action_list_print(&p->list, &text);
    assert_string_equal(str_text(&text), want);
    str_release(&text);
}

/* One list of each policy, to read. */
static void test_printed(void **state)
{
    struct plan p;
    struct str text = {0};

    (void)state;
    make_plan(&p, 3, 1, 2, 2, RESHARD_DEFAULT, false, false, false);
    assert_printed(&p, "gather0 gather1 F0.0 free0 gather2 F1.0 F2.0 I2.0 W2.0 free2 reduce2 replicate2 "
                       "gather0 I1.0 W1.0 free1 "
                       "reduce1 replicate1 I0.0 W0.0 free0 reduce0 replicate0");
    release_plan(&p);
    make_plan(&p, 2, 2, 2, 1, RESHARD_NEVER, false, false, false);
    assert_printed(&p, "gather0 gather1 F0.0 F1.0 I1.0 W1.0 reduce1 I0.0 W0.0 reduce0 F0.1 F1.1 I1.1 W1.1 "
                       "free1 reduce1 I0.1 W0.1 free0 reduce0");
    release_plan(&p);
    make_plan(&p, 2, 1, 1, 1, RESHARD_ALWAYS, false, false, false);
    assert_printed(&p, "F0.0 F1.0 I1.0 W1.0 I0.0 W0.0");
    release_plan(&p);
    make_plan(&p, 3, 1, 1, 2, RESHARD_DEFAULT, false, false, true); /* a cast is gathered and freed, not reduced */
    assert_printed(&p, "gather0 gather1 F0.0 free0 gather2 F1.0 F2.0 I2.0 W2.0 free2 replicate2 "
                       "gather0 I1.0 W1.0 free1 replicate1 I0.0 W0.0 free0 replicate0");
    release_plan(&p);
    action_list_print(&(struct action_list){0}, &text);
    assert_string_equal(str_text(&text), "");
}

/* ---- the machine ---- */
static bool is_gathered(const struct plan *p) { return p->facts.n_shards > 1 || p->facts.casts; }

/* The pass only inserts: what is left without its actions is the schedule. */
static void check_schedule_is_kept(const struct plan *p)
{
    int k = 0;

    for (int i = 0; i < p->list.n; i++) {
        if (!is_compute(&p->list.items[i])) continue;
        if (k == p->compute.n || memcmp(&p->list.items[i], &p->compute.items[k], sizeof(struct action)) != 0)
            refuse(p, i, "is not the schedule's");
        k++;
    }
    if (k != p->compute.n) refuse(p, p->list.n, "is missing");
}

/* The group that the next action after i with another group needs; -1: none. */
static int next_other_group(const struct plan *p, int i)
{
    int g = group_of(p, &p->list.items[i]);

    for (i++; i < p->list.n; i++)
        if (is_compute(&p->list.items[i]) && group_of(p, &p->list.items[i]) != g) return group_of(p, &p->list.items[i]);
    return -1;
}

/* A group is gathered before use and the next one ahead of it, never twice, freed only when it is there, and
 * nothing stays at the end. */
static void check_residence(const struct plan *p)
{
    bool is_there[MAX_UNITS] = {false};
    int n_there = 0, most = 0, n_computed = 1, freed_at[MAX_UNITS] = {0};

    for (int i = 0; i < p->list.n; i++) {
        const struct action *a = &p->list.items[i];
        int g = group_of(p, a);

        if (a->kind == ACTION_GATHER) {
            if (is_there[g]) refuse(p, i, "gathers what is there");
            if (freed_at[g] == n_computed) refuse(p, i, "gathers what was freed just before, for nothing");
            is_there[g] = true;
            n_there++;
        } else if (a->kind == ACTION_FREE) {
            if (!is_there[g]) refuse(p, i, "frees what is not there");
            is_there[g] = false;
            freed_at[g] = n_computed;
            n_there--;
        } else if (is_compute(a) && is_gathered(p)) {
            int next = next_other_group(p, i);

            if (!is_there[g]) refuse(p, i, "uses a group that is not gathered");
            if (next >= 0 && !is_there[next]) refuse(p, i, "runs before the next group's gather was started");
        }
        n_computed += is_compute(a);
        if (n_there > most) most = n_there;
    }
    if (n_there) refuse(p, p->list.n, "comes, and groups are still gathered");
    if (!is_gathered(p) && most) refuse(p, 0, "or a later one gathers what is not copied");
    /* the memory that sharding is for: the group in use and the next one, and the tied one, which both ends
     * need */
    if (p->facts.reshard != RESHARD_NEVER && most > 2 + p->is_tied)
        refuse(p, most, "groups at once are too many: some");
}

/* Each group's gradients of each microbatch are reduced once, after the last weight gradient and before the
 * group's next one. */
static void check_reductions(const struct plan *p)
{
    int reduced[MAX_UNITS][MAX_MICROBATCHES] = {{0}}, replicated[MAX_UNITS] = {0};
    bool is_waiting[MAX_UNITS] = {false};

    for (int i = 0; i < p->list.n; i++) {
        const struct action *a = &p->list.items[i];
        int g = group_of(p, a);

        if (a->kind == ACTION_BACKWARD_WEIGHT) {
            if (reduced[g][a->microbatch]) refuse(p, i, "adds to gradients that were reduced already");
            if (replicated[g]) refuse(p, i, "adds to gradients that the replicas have summed already");
            is_waiting[g] = true;
        } else if (a->kind == ACTION_FORWARD && a->index == p->facts.n_units - 1 && !p->is_forward_only) {
            /* the head's forward adds to gradients as well (loss and head are one) */
            if (is_waiting[g] && p->facts.n_shards > 1) refuse(p, i, "mixes the gradients of two microbatches");
        } else if (a->kind == ACTION_REDUCE) {
            if (!is_waiting[g]) refuse(p, i, "reduces nothing");
            is_waiting[g] = false;
            reduced[g][a->microbatch]++;
        } else if (a->kind == ACTION_REPLICATE) {
            if (is_waiting[g] && p->facts.n_shards > 1)
                refuse(p, i, "sums gradients over replicas that are not reduced yet");
            replicated[g]++;
        }
    }
    for (int g = 0; g < p->facts.n_groups; g++) {
        for (int m = 0; m < p->n_microbatches; m++)
            if (reduced[g][m] != (p->facts.n_shards > 1 && !p->is_forward_only))
                refuse(p, g, "is a group that is not reduced once a microbatch");
        if (replicated[g] != (p->facts.n_replicas > 1 && !p->is_forward_only))
            refuse(p, g, "is a group that is not replicated once a step");
    }
}

static int count(const struct plan *p, enum action_kind kind, int g)
{
    int n = 0;

    for (int i = 0; i < p->list.n; i++) n += p->list.items[i].kind == kind && p->list.items[i].index == g;
    return n;
}

/* How often a policy pays for the memory it saves. */
static void check_gathers(const struct plan *p)
{
    int last = p->facts.n_units - 1, m = p->n_microbatches;

    if (!is_gathered(p) || last == 0) return;
    if (p->is_tied && count(p, ACTION_GATHER, 0) != 1)
        refuse(p, 0, "is the tied group, which the whole step needs, gathered once: not so");
    if (p->is_tied || p->is_forward_only) return;
    for (int g = 0; g <= last; g++) {
        /* once for the forward and once for the backward pass of a microbatch; but the last two units stay
         * over the turn, because the next to last is gathered ahead while the last one runs, and so the first
         * two over the border of two microbatches */
        bool twice = p->facts.reshard != RESHARD_NEVER && g < last - 1;
        int want = (twice ? 2 * m : m) - (g < 2 ? m - 1 : 0);

        if (count(p, ACTION_GATHER, g) != want) refuse(p, g, "is a group that is gathered too often or too rarely");
    }
}

static void check_plan(const struct plan *p)
{
    check_schedule_is_kept(p);
    check_residence(p);
    check_reductions(p);
    check_gathers(p);
}

static void test_every_plan(void **state)
{
    (void)state;
    for (int units = 1; units <= MAX_UNITS; units++)
        for (int microbatches = 1; microbatches <= MAX_MICROBATCHES; microbatches++)
            for (int shards = 1; shards <= 4; shards++)
                for (int replicas = 1; replicas <= 2; replicas++)
                    for (int policy = RESHARD_DEFAULT; policy <= RESHARD_NEVER; policy++)
                        for (int kind = 0; kind < 8; kind++) {
                            struct plan p;

                            if (units == 1 && kind & 1) continue;
                            make_plan(&p, units, microbatches, shards, replicas, (enum reshard_policy)policy, kind & 1,
                                      kind & 2, kind & 4);
                            check_plan(&p);
                            release_plan(&p);
                        }
}

/* Lists are made before a run: memory that is out is an error there, and nothing of a half-made list is lost.
 */
static void test_out_of_memory(void **state)
{
    struct action_list compute = {0}, list = {0};
    int group_of_unit[200];
    struct fsdp_facts facts = {
        .group_of_unit = group_of_unit, .n_units = 200, .n_groups = 200, .n_shards = 2, .n_replicas = 2};
    struct error e = {0};

    (void)state;
    for (int u = 0; u < 200; u++) group_of_unit[u] = u;
    for (int n = 0;; n++) {
        err_t rc;

        mem_fault_arm(n);
        rc = schedule_sequential(&compute, 200, 2, &e);
        if (!rc) rc = fsdp_pass(&list, &compute, &facts, &e);
        if (rc) assert_int_equal(rc, ERR_MEMORY);
        assert_int_equal(rc != ERR_NONE, mem_fault_fired());
        action_list_release(&compute);
        action_list_release(&list);
        if (!rc) {
            assert_true(n > 5);
            break;
        }
    }
    mem_fault_arm(0);
    assert_int_equal(schedule_forward(&list, 3, 5, &e), ERR_MEMORY);
    mem_fault_arm(-1);
    action_list_release(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequential), cmocka_unit_test(test_forward),       cmocka_unit_test(test_printed),
        cmocka_unit_test(test_every_plan), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
