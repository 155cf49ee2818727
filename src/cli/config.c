/* SPDX-License-Identifier: MIT */
/* ctitan config check|print|docs: what a configuration comes to, without a GPU and without a launch. */
#include "config/config.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"
#include "models/model.h"

static const char USAGE[] = "usage: ctitan config check [OPTIONS]   report every problem of a configuration, "
                            "and what this build lacks\n"
                            "       ctitan config print [OPTIONS]   show every value and where it came from\n"
                            "       ctitan config docs              print docs/config.md\n"
                            "\n";

static err_t docs(struct error *e)
{
    struct str text = {0};
    err_t rc;

    config_docs(&text);
    rc = cli_print(&text, e);
    str_release(&text);
    return rc;
}

static void add_verdict(const struct config *c, struct str *out)
{
    struct str missing = {0};
    int n = config_missing_features(c, &missing);

    if (*config_file(c)) str_addf(out, "%s: ", config_file(c));
    str_add(out, "no problems\n");
    if (n) {
        str_addf(out, "but `train` will refuse it, because this build lacks %s:\n%s",
                 n == 1 ? "one thing" : "some things", str_text(&missing));
    }
    if (missing.failed) out->failed = true;
    str_release(&missing);
}

static err_t check_or_print(bool is_print, int argc, char **argv, struct error *e)
{
    struct config_problems problems = {0};
    struct model_spec model;
    struct config *c = NULL;
    struct str text = {0};
    err_t rc = config_load(&c, argc, argv, &problems, e);

    if (!rc && !is_print) model_spec_resolve(&model, c, &problems);
    if (problems.n) rc = cli_config_problems(&problems, e);
    if (rc) goto out;
    if (is_print)
        config_print(c, true, &text);
    else
        add_verdict(c, &text);
    rc = cli_print(&text, e);
out:
    str_release(&text);
    config_destroy(c);
    config_problems_release(&problems);
    return rc;
}

int cli_config(int argc, char **argv, struct error *e)
{
    const char *verb = argc > 1 ? argv[1] : "";

    if (config_wants_help(argc - 1, argv + 1)) return cli_exit_code(cli_help(USAGE, e));
    if (strcmp(verb, "check") == 0) return cli_exit_code(check_or_print(false, argc - 2, argv + 2, e));
    if (strcmp(verb, "print") == 0) return cli_exit_code(check_or_print(true, argc - 2, argv + 2, e));
    if (strcmp(verb, "docs") == 0 && argc == 2) return cli_exit_code(docs(e));
    fputs(USAGE, stderr);
    return cli_exit_code(FAIL(e, ERR_USAGE, "expected check, print or docs; --help lists every option"));
}
