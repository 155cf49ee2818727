/* SPDX-License-Identifier: MIT */
/* ctitan data prepare|show: make the token cache of a configuration ahead of a run, and look at what a run would read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "config/config.h"
#include "data/prepare.h"
#include "data/sampler.h"
#include "data/tokenizer.h"
#include "train/signals.h"

static const char USAGE[] =
    "usage: ctitan data prepare [OPTIONS]                        make the token cache that a run needs\n"
    "       ctitan data show [--sample N] [--verify] [OPTIONS]   what a run would read (made first where it is "
    "missing)\n"
    "\n"
    "  --sample N   print the text of sample N of epoch 0, in the order of the run\n"
    "  --verify     read the whole cache and compare its checksum\n"
    "  OPTIONS      those of the configuration: --config NAME|PATH, section.key=value (`ctitan config --help`)\n";

enum { REPORT_EVERY_NS = 200000000 };

struct command {
    bool is_show, verify;
    int64_t sample; /* -1: none */
    int argc;       /* what is left for the configuration */
    char **argv;
    struct log log;
    int64_t last_report_ns;
    struct signals signals;
};

static bool report(void *arg, const char *what, int64_t done, int64_t total)
{
    struct command *c = arg;
    int64_t now = clock_ns();
    char text[160];

    if (signals_pending(&c->signals)) return false;
    if (now - c->last_report_ns < REPORT_EVERY_NS && (done < total || !total)) return true;
    c->last_report_ns = now;
    if (total > 0)
        snprintf(text, sizeof text, "%s: %3d%% of %.1f MB", what, (int)(100 * done / total), (double)total * 1e-6);
    else
        snprintf(text, sizeof text, "%s", what);
    log_status(&c->log, text);
    return true;
}

/* Takes this command's own options out of argv. */
static err_t parse(struct command *c, int argc, char **argv, struct error *e)
{
    c->sample = -1;
    c->argv = argv;
    for (int i = 0; i < argc; i++) {
        char *end;

        if (c->is_show && strcmp(argv[i], "--verify") == 0) {
            c->verify = true;
        } else if (c->is_show && strcmp(argv[i], "--sample") == 0) {
            if (++i == argc) return FAIL(e, ERR_USAGE, "--sample needs a number");
            c->sample = strtoll(argv[i], &end, 10);
            if (*end || end == argv[i] || c->sample < 0)
                return FAIL(e, ERR_USAGE, "--sample %s: not a number from 0 on", argv[i]);
        } else {
            c->argv[c->argc++] = argv[i];
        }
    }
    return ERR_NONE;
}

static void describe_files(const struct data_spec *spec, const struct token_cache_header *h, struct str *out)
{
    str_addf(out, "  documents       %" PRId64 " in %" PRId64 " files, %.3f MB of text\n", h->n_documents, h->n_files,
             (double)h->n_text_bytes * 1e-6);
    for (int i = 0; i < SOURCE_SKIP_COUNT; i++)
        if (h->skipped[i])
            str_addf(out, "  skipped         %" PRId64 " documents: %s\n", h->skipped[i], source_skip_text(i));
    if (spec->source.separator && spec->source.separator[0])
        str_addf(out, "  separator       %s\n", spec->source.separator);
    str_addf(out, "  tokens          %" PRId64 " (%.2f bytes of text each)\n", h->n_tokens,
             (double)h->n_text_bytes / (double)(h->n_tokens ? h->n_tokens : 1));
}

static err_t describe_sample(const struct sampler *s, int64_t place, const struct data_prepared *p, struct str *out,
                             struct error *e)
{
    size_t T = (size_t)s->seq_len;
    int32_t *ids = mem_alloc((4 * T + 1) * sizeof *ids);
    struct tokenizer *t = NULL;
    struct str text = {0};
    int64_t n_valid = 0, sample;
    err_t rc = ids ? ERR_NONE : FAIL(e, ERR_MEMORY, "out of memory for a sample of %d tokens", s->seq_len);

    if (!rc && place >= s->n_samples)
        rc = FAIL(e, ERR_RANGE, "--sample %" PRId64 ": an epoch has %" PRId64 " samples", place, s->n_samples);
    if (rc) goto out;
    sample = sampler_order(s, 0, place);
    rc = sampler_fill(s, sample, ids + 3 * T, ids, ids + T, ids + 2 * T, NULL, &n_valid, e);
    if (!rc && p->tokenizer_path) rc = tokenizer_open(&t, p->tokenizer_path, e);
    if (!rc && t) rc = tokenizer_decode(t, ids, T, &text, e);
    if (rc) goto out;
    str_addf(out, "  sample %" PRId64 "        window %" PRId64 ", %" PRId64 " labels scored:\n", place, sample,
             n_valid);
    str_add_bytes(out, str_text(&text), text.length);
    if (!t)
        for (size_t i = 0; i < T; i++) str_addf(out, "%s%d", i ? " " : "", ids[i]);
    str_add_char(out, '\n');
out:
    tokenizer_close(t);
    str_release(&text);
    mem_free(ids);
    return rc;
}

static err_t describe(const struct command *c, const char *title, const struct data_spec *spec,
                      const struct data_prepared *p, const struct sampler *s, struct str *out, struct error *e)
{
    const struct token_cache_header *h = token_cache_header(s->cache);
    err_t rc = ERR_NONE;

    str_addf(out, "%s\n", title);
    if (p->used_fallback) str_add(out, "  the data is not there: training.dataset_fallback was read instead\n");
    str_addf(out, "  vocabulary      %d (%s)\n", p->vocab_size, p->tokenizer_path ? p->tokenizer_path : "no tokenizer");
    str_addf(out, "  cache           %s%s\n", token_cache_name(s->cache), p->made_cache ? " (made now)" : "");
    if (h) describe_files(spec, h, out);
    str_addf(out, "  samples         %" PRId64 " of %d tokens in an epoch", s->n_samples, s->seq_len);
    str_addf(out, s->n_dropped ? ", %" PRId64 " tokens at the end left out\n" : "\n", s->n_dropped);
    if (c->verify) {
        rc = token_cache_verify(s->cache, e);
        str_add(out, "  verified        the checksum is right\n");
    }
    if (!rc && c->sample >= 0) rc = describe_sample(s, c->sample, p, out, e);
    return rc;
}

/* A data set from description to text. p is filled (the caller releases it), for the next one to take the tokenizer
 * from. */
static err_t handle(struct command *c, const struct config *cfg, bool is_training, const struct data_spec *spec,
                    struct pool *pool, struct data_prepared *p, struct error *e)
{
    const char *title = is_training ? "training" : "validation";
    int seq_len = (int)(is_training ? cfg->training.seq_len : cfg->validation.seq_len);
    struct token_cache *cache = NULL;
    struct sampler s;
    struct str out = {0};
    err_t rc = data_prepare(spec, pool, report, c, p, e);

    log_status(&c->log, "");
    if (!rc) rc = data_open(&cache, p, e);
    if (!rc)
        rc = sampler_init(&s, cache, seq_len, cfg->training.document_mask, is_training && cfg->training.shuffle,
                          (uint64_t)cfg->debug.seed, is_training, e);
    if (!rc && c->is_show) {
        rc = describe(c, title, spec, p, &s, &out, e);
    } else if (!rc) {
        str_addf(&out, "%s: %s, %" PRId64 " samples of %d tokens in %s\n", title, p->made_cache ? "made" : "ready",
                 s.n_samples, seq_len, token_cache_name(cache));
    }
    if (!rc) rc = cli_print(&out, e);
    if (rc) error_prefix(e, rc, "%s data", title);
    token_cache_close(cache);
    str_release(&out);
    return rc;
}

static err_t run(struct command *c, const struct config *cfg, struct error *e)
{
    struct data_spec training = data_spec_training(cfg), validation = data_spec_validation(cfg);
    struct data_prepared prepared = {0}, prepared_validation = {0};
    struct pool *pool = NULL;
    err_t rc = pool_create(&pool, affinity_own_cores(), e);

    if (!rc) rc = handle(c, cfg, true, &training, pool, &prepared, e);
    if (!rc && cfg->validation.enable) {
        if (prepared.tokenizer_path) validation.tokenizer = prepared.tokenizer_path; /* never one of its own */
        rc = handle(c, cfg, false, &validation, pool, &prepared_validation, e);
    }
    data_prepared_release(&prepared);
    data_prepared_release(&prepared_validation);
    pool_destroy(pool);
    return rc;
}

int cli_data(int argc, char **argv, struct error *e)
{
    const char *verb = argc > 1 ? argv[1] : "";
    struct command c = {.is_show = strcmp(verb, "show") == 0};
    struct config_problems problems = {0};
    struct config *cfg = NULL;
    err_t rc;

    if (config_wants_help(argc - 1, argv + 1)) {
        fputs(USAGE, stdout);
        return CLI_OK;
    }
    if (!c.is_show && strcmp(verb, "prepare") != 0) {
        fputs(USAGE, stderr);
        return cli_exit_code(FAIL(e, ERR_USAGE, "expected prepare or show"));
    }
    log_init(&c.log, STDERR_FILENO, -1);
    c.log.can_redraw = isatty(STDERR_FILENO);
    rc = parse(&c, argc - 2, argv + 2, e);
    if (!rc) rc = config_load(&cfg, c.argc, c.argv, &problems, e);
    if (problems.n) rc = cli_config_problems(&problems, e);
    if (!rc) rc = signals_install(&c.signals, e);
    if (!rc) rc = run(&c, cfg, e);
    signals_restore(&c.signals);
    config_destroy(cfg);
    config_problems_release(&problems);
    log_release(&c.log);
    return cli_exit_code(rc);
}
