/* SPDX-License-Identifier: MIT */
/*
 * Subcommands of the program: one file each, cli/<name>.c, declared once in commands.def.
 *
 * A command gets argv with its own name at argv[0]. It returns an exit code; a message left in e is printed by main
 * after the command's name. Results go to stdout, everything else to stderr.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/error.h"
#include "base/str.h"
#include "config/config.h"

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILURE = 1,
    CLI_USAGE = 2,    /* wrong command line or configuration */
    CLI_STOPPED = 75, /* stopped on request with a checkpoint: start again to go on (EX_TEMPFAIL, for requeueing) */
};

#define COMMAND(name, help) int cli_##name(int argc, char **argv, struct error *e);
#define PLANNED(name)
#include "cli/commands.def"
#undef COMMAND
#undef PLANNED

/* Prints every problem to stderr, however many there are, and leaves their number in e. ERR_CONFIG. */
err_t cli_config_problems(const struct config_problems *p, struct error *e) MUST_CHECK;

/* Writes a command's result to stdout at once and empties it. ERR_MEMORY when the text could not be built, ERR_IO. */
err_t cli_print(struct str *text, struct error *e) MUST_CHECK;

/* --help of a command that reads a configuration: its usage, then every option. */
err_t cli_help(const char *usage, struct error *e) MUST_CHECK;

/* The exit code for a failed call: CLI_USAGE for usage and configuration errors, CLI_STOPPED for ERR_STOPPED, else
 * CLI_FAILURE: also for a stop with nothing saved, because a job that is requeued for it would begin anew each time. */
int cli_exit_code(err_t rc);

#endif
