/* SPDX-License-Identifier: MIT */
/* Registering parameters while a model is built; see module.h. */
#include <stdio.h>
#include <string.h>

#include "nn/module.h"

struct parameter *parameter_list_add(struct parameter_list *list, const char *prefix, const char *suffix, int n_dims,
                                     int64_t dim0, int64_t dim1, enum parameter_init init, double std, double cut)
{
    struct parameter *p = arena_alloc(list->arena, sizeof *p), **items = list->items;

    if (list->n == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 64;
        items = arena_array(list->arena, (size_t)list->capacity, sizeof *items);
        if (items && list->n) memcpy(items, list->items, (size_t)list->n * sizeof *items);
    }
    if (!p || !items) {
        list->failed = true;
        list->capacity = list->n;
        return &list->dummy;
    }
    list->items = items;
    *p = (struct parameter){.n_dims = n_dims,
                            .dim = {dim0, n_dims > 1 ? dim1 : 1},
                            .init = init,
                            .init_std = std,
                            .init_cut = cut,
                            .trainable = true};
    snprintf(p->name, sizeof p->name, "%s%s%s", prefix, prefix[0] ? "." : "", suffix);
    list->items[list->n++] = p;
    return p;
}
