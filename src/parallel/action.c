/* SPDX-License-Identifier: MIT */
/* Lists of actions; see action.h. */
#include "parallel/action.h"

#include "base/mem.h"

static const char *const kind_names[] = {
#define X(id, name) [id] = name,
    ACTION_KINDS(X)
#undef X
};

err_t action_list_add(struct action_list *l, enum action_kind kind, int index, int microbatch, struct error *e)
{
    if (l->n == l->capacity) {
        int capacity = l->capacity ? 2 * l->capacity : 256;
        struct action *items = mem_resize(l->items, (size_t)capacity, sizeof *items);

        if (!items) return FAIL(e, ERR_MEMORY, "out of memory for a schedule of %d actions", capacity);
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->n++] = (struct action){kind, index, microbatch};
    return ERR_NONE;
}

void action_list_release(struct action_list *l)
{
    mem_free(l->items);
    *l = (struct action_list){0};
}

void action_list_print(const struct action_list *l, struct str *out)
{
    for (int i = 0; i < l->n; i++) {
        const struct action *a = &l->items[i];

        str_addf(out, "%s%s%d", i ? " " : "", kind_names[a->kind], a->index);
        if (a->kind <= ACTION_BACKWARD_WEIGHT) str_addf(out, ".%d", a->microbatch);
    }
}
