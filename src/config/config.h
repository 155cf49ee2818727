/* SPDX-License-Identifier: MIT */
/*
 * The configuration of a run: read from YAML and arguments, checked, then const.
 *
 * Options are declared once, in fields.def; struct config below is made from it
 * (cfg->training.local_batch_size). All problems of a configuration are collected in struct config_problems
 * and reported together: higher layers add theirs (a model's divisibility rules, a data set that is not
 * there) to the same collector before the run starts.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/str.h"

struct config_list {
    const char **item; /* n texts, owned by the configuration */
    int n;
};
struct config_int {
    int64_t value;
    bool is_set; /* false: null */
};
struct config_real {
    double value;
    bool is_set;
};
struct config_bool {
    bool value;
    bool is_set;
};

/* enum config_optimizer { CONFIG_OPTIMIZER_ADAMW, ... }; and so on */
#define CHOICES(type, ...) enum type { __VA_ARGS__ };
#define CHOICE(id, name, status) id,
#include "config/fields.def"

/* struct config_training { ... } training; and so on */
#define SECTION(name, path, help) struct config_##name {
#define END(name)                                                                                                      \
    }                                                                                                                  \
    name;
#define INT(name, def, min, max, resume, status, help) int64_t name;
#define REAL(name, def, min, max, resume, status, help) double name;
#define BOOL(name, def, resume, status, help) bool name;
#define TEXT(name, def, resume, status, help) const char *name;
#define SECRET(name, resume, status, help) const char *name;
#define LIST(name, def, resume, status, help) struct config_list name;
#define ENUM(name, type, def, resume, status, help) enum type name;
#define DTYPE(name, list, def, resume, status, help) enum dtype name;
#define MAYBE_INT(name, min, max, resume, status, help) struct config_int name;
#define MAYBE_REAL(name, min, max, resume, status, help) struct config_real name;
#define MAYBE_BOOL(name, resume, status, help) struct config_bool name;
struct config {
#include "config/fields.def"
    struct config_sources *sources; /* where each value came from, and the memory of all texts */
};

/* ---- problems: everything that is wrong, told in one go ---- */
struct config_problems {
    struct str text; /* one line each */
    int n;
};
/* Adds a line: where and what, which value, what to do. No newline at the end. */
void config_problem(struct config_problems *p, const char *format, ...) PRINTF_LIKE(2, 3);
/* Success if there is none; else ERR_CONFIG with all of them, as far as they fit into a message. */
err_t config_problems_check(const struct config_problems *p, struct error *e) MUST_CHECK;
void config_problems_release(struct config_problems *p);

/* ---- reading ---- */
/*
 * argv[0 .. argc) are the arguments after the command's name:
 *   --config NAME|PATH          last one wins; without it CONFIG of the environment; without that all
 * defaults
 *   --module NAME               model.name, as MODULE of the environment does
 *   section.key=value  --section.key=value  --section.key value  --section.flag  --section.no-flag
 * Problems go to p (all of them; ERR_CONFIG is returned when there is any); *out is then NULL. Other failures
 * are e's alone.
 */
err_t config_load(struct config **out, int argc, char **argv, struct config_problems *p, struct error *e) MUST_CHECK;
/* The same for YAML text in memory, without environment; name stands for the file in messages. */
err_t config_from_text(struct config **out, const char *yaml, size_t n, const char *name, struct config_problems *p,
                       struct error *e) MUST_CHECK;
void config_destroy(struct config *c);
bool config_wants_help(int argc, char **argv); /* --help or -h is among the arguments */

/* Fills in what depends on the number of ranks: data_parallel_shard_degree -1 and global_batch_size -1 become
 * numbers; the rules that need the world's size are checked. Call once, before the configuration is const. */
void config_resolve(struct config *c, int world_size, struct config_problems *p);

/* ---- asking ---- */
const char *config_file(const struct config *c); /* the file it was read from, "" = none */
/* Appends a line for each value that needs a feature this build lacks; returns their number. */
int config_missing_features(const struct config *c, struct str *out);
/* 64 bits over all FIXED options: equal for runs that may go on from each other's checkpoints. */
uint64_t config_hash(const struct config *c);

/* An entry of optimizer.param_groups: "REGEX: weight_decay=0 lr_factor=0.5". pattern has pattern_length
 * bytes, inside of text. */
struct config_param_group {
    const char *pattern;
    int pattern_length;
    struct config_real weight_decay, lr_factor; /* not set: as for all */
};
err_t config_param_group(struct config_param_group *out, const char *text, struct error *e) MUST_CHECK;

/* ---- writing ---- */
void config_print(const struct config *c, bool with_origins,
                  struct str *out);                              /* YAML that reads back to the same values */
void config_write_json(const struct config *c, struct str *out); /* as one JSON value; secrets are "***" */
void config_help(struct str *out);                               /* every option, one or two lines each */
void config_docs(struct str *out);                               /* docs/config.md */

/* ---- resuming ---- */
/* What an earlier configuration means for this start; the words in capitals are those of fields.def. */
enum config_earlier {
    CONFIG_EARLIER_RUN,       /* it goes on from there: FIXED and FIXED_DATA must be the same, TOLD are told */
    CONFIG_EARLIER_SEED,      /* it begins with a step 0 made then, no data seen: FIXED must be the same */
    CONFIG_EARLIER_PARAMETERS /* it takes another run's parameters and nothing else: FIXED are told */
};

/* Compares with `json`, which config_write_json wrote (`where` names it in texts): a problem for each option that
 * must be the same and is not, a line of `told` for each that is told and differs. Options that `json` does not
 * know are taken at their default. */
void config_compare(const struct config *c, const char *json, size_t n, const char *where, enum config_earlier earlier,
                    struct config_problems *p, struct str *told);

#endif
