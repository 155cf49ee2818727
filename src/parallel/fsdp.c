/* SPDX-License-Identifier: MIT */
/* The pass that inserts gathers, frees and reductions; see action.h. */
#include "base/mem.h"
#include "parallel/action.h"

struct pass {
    struct action_list *out;
    const struct action_list *in;
    const struct fsdp_facts *facts;
    bool *is_gathered; /* [n_groups] */
    int n_microbatches;
    int *last_of_microbatch,
        *last_of_list; /* [n_groups][n_microbatches] and [n_groups]: the last action that adds to gradients */
};

static int group_at(const struct pass *p, int i) { return p->facts->group_of_unit[p->in->items[i].index]; }

/* The next action after i that uses group g; in->n if there is none. */
static int next_use(const struct pass *p, int i, int g)
{
    for (i++; i < p->in->n && group_at(p, i) != g;) i++;
    return i;
}

static err_t gather(struct pass *p, int g, int microbatch, struct error *e)
{
    if (p->is_gathered[g]) return ERR_NONE;
    p->is_gathered[g] = true;
    return action_list_add(p->out, ACTION_GATHER, g, microbatch, e);
}

/* Gathers what action i needs, and what the next action with another group needs. */
static err_t gather_ahead(struct pass *p, int i, struct error *e)
{
    int g = group_at(p, i), next = i + 1;
    err_t rc = gather(p, g, p->in->items[i].microbatch, e);

    while (next < p->in->n && group_at(p, next) == g) next++;
    if (!rc && next < p->in->n) rc = gather(p, group_at(p, next), p->in->items[next].microbatch, e);
    return rc;
}

/* Would the group, freed after action i, be gathered again before anything else runs? So it is when its next use comes
 * next, or when one other group is used in between: that one's first action gathers one group ahead. Freeing would cost
 * a gather and save no memory. */
static bool is_needed_soon(const struct pass *p, int i, int next)
{
    for (int k = i + 2; k < next; k++)
        if (group_at(p, k) != group_at(p, i + 1)) return false;
    return true;
}

static bool should_free(const struct pass *p, int i, int next)
{
    const struct action *a = &p->in->items[i];
    bool is_last_unit = a->index == p->facts->n_units - 1;

    if (next == p->in->n) return true;
    if (is_needed_soon(p, i, next)) return false;
    if (a->kind == ACTION_FORWARD) {
        if (p->in->items[next].microbatch == a->microbatch && p->in->items[next].kind == ACTION_FORWARD)
            return false; /* tied weights */
        if (p->facts->reshard == RESHARD_ALWAYS) return true;
        if (p->in->items[next].microbatch != a->microbatch) return true; /* forward only: the next microbatch */
        return p->facts->reshard == RESHARD_DEFAULT && !is_last_unit;
    }
    return p->in->items[next].microbatch != a->microbatch;
}

static bool writes_gradients(const struct action *a) { return a->kind == ACTION_BACKWARD_WEIGHT; }

/* Finds the last action that adds to the gradients of each group: of each microbatch, and of the whole list. */
static err_t find_last_gradients(struct pass *p, struct error *e)
{
    size_t n_groups = (size_t)p->facts->n_groups;

    for (int i = 0; i < p->in->n; i++)
        if (p->in->items[i].microbatch >= p->n_microbatches) p->n_microbatches = p->in->items[i].microbatch + 1;
    p->last_of_microbatch = mem_zalloc(n_groups * (size_t)p->n_microbatches, sizeof(int));
    p->last_of_list = mem_zalloc(n_groups, sizeof(int));
    if (!p->last_of_microbatch || !p->last_of_list) return FAIL(e, ERR_MEMORY, "out of memory for the sharding pass");
    for (int i = 0; i < p->in->n; i++) {
        if (!writes_gradients(&p->in->items[i])) continue;
        p->last_of_microbatch[group_at(p, i) * p->n_microbatches + p->in->items[i].microbatch] = i;
        p->last_of_list[group_at(p, i)] = i;
    }
    return ERR_NONE;
}

static err_t after(struct pass *p, int i, struct error *e)
{
    const struct action *a = &p->in->items[i];
    int g = group_at(p, i);
    err_t rc = ERR_NONE;

    if (p->is_gathered[g] && should_free(p, i, next_use(p, i, g))) {
        p->is_gathered[g] = false;
        rc = action_list_add(p->out, ACTION_FREE, g, a->microbatch, e);
    }
    if (rc || !writes_gradients(a)) return rc;
    if (p->facts->n_shards > 1 && i == p->last_of_microbatch[g * p->n_microbatches + a->microbatch])
        rc = action_list_add(p->out, ACTION_REDUCE, g, a->microbatch, e);
    if (!rc && p->facts->n_replicas > 1 && i == p->last_of_list[g])
        rc = action_list_add(p->out, ACTION_REPLICATE, g, a->microbatch, e);
    return rc;
}

err_t fsdp_pass(struct action_list *out, const struct action_list *compute, const struct fsdp_facts *facts,
                struct error *e)
{
    struct pass p = {
        .out = out, .in = compute, .facts = facts, .is_gathered = mem_zalloc((size_t)facts->n_groups, sizeof(bool))};
    err_t rc = p.is_gathered ? find_last_gradients(&p, e) : FAIL(e, ERR_MEMORY, "out of memory for the sharding pass");

    for (int i = 0; i < compute->n && !rc; i++) {
        const struct action *a = &compute->items[i];

        if (facts->n_shards > 1 || facts->casts) rc = gather_ahead(&p, i, e);
        if (!rc) rc = action_list_add(out, a->kind, a->index, a->microbatch, e);
        if (!rc) rc = after(&p, i, e);
    }
    mem_free(p.is_gathered);
    mem_free(p.last_of_microbatch);
    mem_free(p.last_of_list);
    return rc;
}
