/* SPDX-License-Identifier: MIT */
/* What all subcommands share; see cli.h. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

err_t cli_config_problems(const struct config_problems *p, struct error *e)
{
    fprintf(stderr, "%s\n", str_text(&p->text));
    return FAIL(e, ERR_CONFIG, "%d problem%s", p->n, p->n == 1 ? "" : "s");
}

err_t cli_print(struct str *text, struct error *e)
{
    err_t rc = str_ok(text, e);

    if (!rc && (fwrite(str_text(text), 1, text->length, stdout) != text->length || fflush(stdout)))
        rc = FAIL(e, ERR_IO, "cannot write to standard output: %s", strerror(errno));
    str_clear(text);
    return rc;
}

err_t cli_help(const char *usage, struct error *e)
{
    struct str text = {0};
    err_t rc;

    str_add(&text, usage);
    config_help(&text);
    rc = cli_print(&text, e);
    str_release(&text);
    return rc;
}

int cli_exit_code(err_t rc)
{
    switch (rc) {
    case ERR_NONE: return CLI_OK;
    case ERR_USAGE:
    case ERR_CONFIG:
    case ERR_UNSUPPORTED: return CLI_USAGE;
    case ERR_STOPPED: return CLI_STOPPED;
    default: return CLI_FAILURE;
    }
}
