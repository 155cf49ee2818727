/* SPDX-License-Identifier: MIT */
/*
 * Rules across options: one function each, listed in the table below. A rule names every option it speaks of
 * with its value and where that came from. Rules that need the model or the data belong to those layers,
 * which add to the same problems.
 */
#include <string.h>

#include "config/table.h"

enum { TAGS_MOST = 100 };

/* "training.steps=10 (configs/a.yaml:3:4)" for the option at this address in c; in c's arena. */
static const char *say(struct config *c, const void *option)
{
    size_t offset = (size_t)((const char *)option - (const char *)c);
    struct str text = {0};
    char *copy;

    for (int i = 0; i < CONFIG_N_ROWS; i++) {
        const struct config_row *row = config_row(i);

        if (row->offset != offset) continue;
        str_addf(&text, "%s.%s=", row->section, row->key);
        config_value_yaml(c, row, &text);
        str_add(&text, " (");
        config_origin_text(&c->sources->origin[i], &text);
        str_add(&text, ")");
    }
    copy = arena_strdup(&c->sources->arena, str_text(&text));
    str_release(&text);
    return copy ? copy : "(out of memory)";
}

static struct config_origin *origin_of(struct config *c, const void *option)
{
    size_t offset = (size_t)((const char *)option - (const char *)c);

    for (int i = 0; i < CONFIG_N_ROWS; i++)
        if (config_row(i)->offset == offset) return &c->sources->origin[i];
    BUG("no option at offset %zu", offset);
}

/* Was `a` given in a place that overrides the one that gave `b`? */
static bool is_later(const struct config *c, const struct config_origin *a, const struct config_origin *b)
{
    if (a->kind == FROM_ARGUMENT || b->kind == FROM_ARGUMENT)
        return a->kind == FROM_ARGUMENT && b->kind != FROM_ARGUMENT;
    return a->kind == FROM_FILE && strcmp(a->name, c->sources->file) == 0 &&
           !(b->kind == FROM_FILE && strcmp(b->name, a->name) == 0);
}

#define RULE(name) static void name(struct config *c, struct config_problems *p)

RULE(log_freq_is_positive)
{
    struct str where = {0};

    if (c->metrics.log_freq > 0) return;
    config_origin_text(origin_of(c, &c->metrics.log_freq), &where);
    config_problem(p, "%s: metrics.log_freq must be greater than 0.", str_text(&where));
    str_release(&where);
}

/* -1 stands for "find out", and what is above 0 for itself; 0 is within the option's range but means nothing.
 */
RULE(no_zero_counts)
{
    const int64_t *options[] = {&c->parallelism.data_parallel_shard_degree, &c->training.global_batch_size,
                                &c->validation.steps};

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (*options[i] == 0) config_problem(p, "%s must be greater than 0, or -1", say(c, options[i]));
}

RULE(names_are_given)
{
    const char *const *options[] = {&c->job.dump_folder,       &c->model.name,          &c->model.flavor,
                                    &c->training.tokenizer,    &c->training.text_field, &c->checkpoint.folder,
                                    &c->metrics.save_tb_folder};

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!**options[i]) config_problem(p, "%s must not be empty", say(c, options[i]));
}

RULE(global_batch_divides)
{
    if (c->training.global_batch_size > 0 && c->training.global_batch_size % c->training.local_batch_size != 0)
        config_problem(p, "%s is not a multiple of %s", say(c, &c->training.global_batch_size),
                       say(c, &c->training.local_batch_size));
}

RULE(data_is_given)
{
    if (!c->training.dataset.n) config_problem(p, "%s: name the text to train on", say(c, &c->training.dataset));
    if (c->training.dataset.n > 1 && config_list_has(&c->training.dataset, "synthetic"))
        config_problem(p, "%s: `synthetic` stands alone", say(c, &c->training.dataset));
    if (strpbrk(c->training.document_separator, "\r\n"))
        config_problem(p, "%s: a separator is one line, without its end", say(c, &c->training.document_separator));
}

/* The fallback stands in for the dataset beside which it was written. Who names another dataset later, on the
 * command line or in a file that includes this one, wants that data or an error. */
RULE(fallback_belongs_to_its_dataset)
{
    const struct config_origin *dataset = origin_of(c, &c->training.dataset);
    const struct config_origin *folder = origin_of(c, &c->training.dataset_path);
    struct config_origin *fallback = origin_of(c, &c->training.dataset_fallback);
    const struct config_origin *later = is_later(c, dataset, fallback)  ? dataset
                                        : is_later(c, folder, fallback) ? folder
                                                                        : NULL;

    (void)p;
    if (!later || !c->training.dataset_fallback.n) return;
    c->training.dataset_fallback.n = 0;
    *fallback = (struct config_origin){.kind = FROM_RULE,
                                       .name = later == dataset ? "training.dataset" : "training.dataset_path"};
}

RULE(tokens_fit_the_vocabulary)
{
    if (strcmp(c->training.tokenizer, "auto") == 0 && c->model.vocab_size.is_set &&
        c->training.tokenizer_vocab_size > c->model.vocab_size.value)
        config_problem(p, "%s is more than %s has room for", say(c, &c->training.tokenizer_vocab_size),
                       say(c, &c->model.vocab_size));
}

/* float64 is for the whole computation or for none of it. The other two follow training.dtype unless they
 * were given. */
RULE(float64_is_whole)
{
    enum dtype *others[] = {&c->training.mixed_precision_param, &c->training.mixed_precision_reduce};
    bool is_whole = c->training.dtype == DTYPE_FLOAT64;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct config_origin *origin = origin_of(c, others[i]);

        if (is_whole && origin->kind == FROM_DEFAULT) {
            *others[i] = DTYPE_FLOAT64;
            *origin = (struct config_origin){.kind = FROM_RULE, .name = "training.dtype"};
        } else if ((*others[i] == DTYPE_FLOAT64) != is_whole) {
            config_problem(p, "%s does not go with %s: float64 is for all of the computation or none",
                           say(c, others[i]), say(c, &c->training.dtype));
        }
    }
}

RULE(validation_has_text)
{
    if (c->validation.enable && !c->validation.dataset.n)
        config_problem(p, "%s needs %s to name text", say(c, &c->validation.enable), say(c, &c->validation.dataset));
}

/* What asks for something to be loaded or saved, while nothing is. */
RULE(checkpoint_is_enabled)
{
    const bool *switches[] = {&c->checkpoint.create_seed_checkpoint, &c->checkpoint.load_only,
                              &c->checkpoint.enable_first_step_checkpoint};

    if (c->checkpoint.enable) return;
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (*switches[i])
            config_problem(p, "%s does nothing while %s", say(c, switches[i]), say(c, &c->checkpoint.enable));
    if (*c->checkpoint.initial_load_path)
        config_problem(p, "%s does nothing while %s", say(c, &c->checkpoint.initial_load_path),
                       say(c, &c->checkpoint.enable));
    if (c->checkpoint.load_step >= 0)
        config_problem(p, "%s does nothing while %s", say(c, &c->checkpoint.load_step), say(c, &c->checkpoint.enable));
}

RULE(seed_checkpoint_is_saved)
{
    if (c->checkpoint.create_seed_checkpoint && c->checkpoint.load_only)
        config_problem(p, "%s saves, which %s forbids", say(c, &c->checkpoint.create_seed_checkpoint),
                       say(c, &c->checkpoint.load_only));
    if (c->checkpoint.create_seed_checkpoint &&
        (c->parallelism.data_parallel_replicate_degree > 1 || c->parallelism.data_parallel_shard_degree > 1))
        config_problem(p, "%s is one rank's work: %s and %s must be 1", say(c, &c->checkpoint.create_seed_checkpoint),
                       say(c, &c->parallelism.data_parallel_replicate_degree),
                       say(c, &c->parallelism.data_parallel_shard_degree));
}

RULE(excluded_parts_exist)
{
    static const char *const parts[] = {"optimizer", "lr_scheduler", "dataloader", "train_state"};
    enum { N = sizeof parts / sizeof *parts };
    const struct config_list *list = &c->checkpoint.exclude_from_loading;

    for (int i = 0; i < list->n; i++) {
        int k = 0;

        while (k < N && strcmp(parts[k], list->item[i]) != 0) k++;
        if (k == N)
            config_problem(p, "%s: \"%.60s\" is none of optimizer, lr_scheduler, dataloader, train_state", say(c, list),
                           list->item[i]);
    }
}

RULE(groups_can_be_read)
{
    for (int i = 0; i < c->optimizer.param_groups.n; i++) {
        struct config_param_group group;
        struct error e = {0};

        if (config_param_group(&group, c->optimizer.param_groups.item[i], &e))
            config_problem(p, "%s: entry %d: %s", say(c, &c->optimizer.param_groups), i + 1, e.message);
    }
}

RULE(tags_have_names)
{
    const struct config_list *tags = &c->metrics.tags;

    if (tags->n > TAGS_MOST) {
        config_problem(p, "metrics.tags has %d entries, and each goes with every row: %d are allowed", tags->n,
                       TAGS_MOST);
        return;
    }
    for (int i = 0; i < tags->n; i++) {
        const char *equals = strchr(tags->item[i], '=');

        if (!equals || equals == tags->item[i])
            config_problem(p, "%s: \"%.60s\" is not name=value", say(c, tags), tags->item[i]);
        for (int k = 0; k < i && equals; k++)
            if (strncmp(tags->item[k], tags->item[i], (size_t)(equals - tags->item[i]) + 1) == 0)
                config_problem(p, "%s: \"%.60s\" is given twice", say(c, tags), tags->item[i]);
    }
}

RULE(traces_fit_their_interval)
{
    if (!c->profiling.enable_profiling) return;
    if (c->profiling.profile_freq < c->profiling.profiler_warmup + c->profiling.profiler_active)
        config_problem(p, "%s is less than %s and %s together", say(c, &c->profiling.profile_freq),
                       say(c, &c->profiling.profiler_warmup), say(c, &c->profiling.profiler_active));
}

void config_check(struct config *c, struct config_problems *p)
{
    static void (*const rules[])(struct config *, struct config_problems *) = {
        log_freq_is_positive,
        no_zero_counts,
        names_are_given,
        global_batch_divides,
        data_is_given,
        fallback_belongs_to_its_dataset,
        tokens_fit_the_vocabulary,
        float64_is_whole,
        validation_has_text,
        checkpoint_is_enabled,
        seed_checkpoint_is_saved,
        excluded_parts_exist,
        groups_can_be_read,
        tags_have_names,
        traces_fit_their_interval,
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) rules[i](c, p);
}

/* ---- with the number of ranks ---- */
/* a * b, or INT64_MAX where that is more; both positive */
static int64_t product(int64_t a, int64_t b)
{
    int64_t result;

    return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
}

static void resolve_mesh(struct config *c, int world, struct config_problems *p)
{
    int64_t *shard = &c->parallelism.data_parallel_shard_degree;
    const int64_t *others[] = {&c->parallelism.data_parallel_replicate_degree, &c->parallelism.context_parallel_degree,
                               &c->parallelism.tensor_parallel_degree, &c->parallelism.pipeline_parallel_degree};
    int64_t without_shard = 1;
    struct str degrees = {0};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        without_shard = product(without_shard, *others[i]);
        if (*others[i] != 1) str_addf(&degrees, "%s, ", say(c, others[i]));
    }
    str_add(&degrees, say(c, shard));
    if (*shard == -1 ? world % without_shard != 0 : product(without_shard, *shard) != world) {
        config_problem(p,
                       "%d ranks cannot be divided by %s: their product must be the number of ranks; change "
                       "a degree or NGPU",
                       world, str_text(&degrees));
    } else if (*shard == -1) {
        *shard = world / without_shard;
        *origin_of(c, shard) = (struct config_origin){.kind = FROM_RULE, .name = "the number of ranks"};
    }
    str_release(&degrees);
}

static void resolve_batch(struct config *c, struct config_problems *p)
{
    int64_t *global = &c->training.global_batch_size;
    int64_t data_ranks =
        product(c->parallelism.data_parallel_replicate_degree, c->parallelism.data_parallel_shard_degree);
    int64_t round = product(c->training.local_batch_size, data_ranks);

    if (*global == -1) {
        *global = round;
        *origin_of(c, global) = (struct config_origin){.kind = FROM_RULE, .name = "training.local_batch_size"};
    } else if (*global % round != 0) {
        config_problem(p, "%s is not a multiple of %s times %lld data ranks, %lld", say(c, global),
                       say(c, &c->training.local_batch_size), (long long)data_ranks, (long long)round);
    }
}

void config_resolve(struct config *c, int world_size, struct config_problems *p)
{
    int n_before = p->n;

    BUG_ON(world_size < 1);
    if (c->checkpoint.create_seed_checkpoint && world_size != 1)
        config_problem(p, "%s is one rank's work, and there are %d: start it with NGPU=1",
                       say(c, &c->checkpoint.create_seed_checkpoint), world_size);
    resolve_mesh(c, world_size, p);
    if (p->n == n_before) resolve_batch(c, p);
}
