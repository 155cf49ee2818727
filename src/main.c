/* SPDX-License-Identifier: MIT */
/* The table of subcommands. Each lives in cli/<name>.c; only this file prints a command's error and decides the exit
 * code. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv, struct error *e);
    const char *help;
} commands[] = {
#define COMMAND(name, help) {#name, cli_##name, help},
#define PLANNED(name)
#include "cli/commands.def"
#undef COMMAND
#undef PLANNED
};

static const char *const planned[] = {
#define COMMAND(name, help)
#define PLANNED(name) #name,
#include "cli/commands.def"
#undef COMMAND
#undef PLANNED
};

enum { n_commands = (int)(sizeof commands / sizeof *commands), n_planned = (int)(sizeof planned / sizeof *planned) };

static void usage(FILE *out)
{
    fputs("usage: ctitan COMMAND [arguments]      (ctitan COMMAND --help explains one)\n\n", out);
    for (int i = 0; i < n_commands; i++) fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].help);
    fputs("\nNot built yet:", out);
    for (int i = 0; i < n_planned; i++) fprintf(out, " %s", planned[i]);
    fputs("\n\nTo train in several processes use ./run_train.sh, which starts `ctitan train` under mpirun.\n", out);
}

/* The exit code of what went well, unless what it printed was lost. */
static int close_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return CLI_OK;
    fprintf(stderr, "ctitan: cannot write to standard output: %s\n", strerror(errno));
    return CLI_FAILURE;
}

int main(int argc, char **argv)
{
    struct error e = {0};
    int status;

    if (argc >= 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0))
        return printf("ctitan %s\n", CTITAN_VERSION), close_output();
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0))
        return usage(stdout), close_output();
    for (int i = 0; argc >= 2 && i < n_commands; i++) {
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        status = commands[i].run(argc - 1, argv + 1, &e);
        if (e.message[0]) fprintf(stderr, "ctitan %s: %s\n", argv[1], e.message);
        return status == CLI_OK ? close_output() : status;
    }
    for (int i = 0; argc >= 2 && i < n_planned; i++) {
        if (strcmp(argv[1], planned[i]) != 0) continue;
        fprintf(stderr, "ctitan %s: this command is not built yet; `ctitan --help` lists those that are\n", argv[1]);
        return CLI_USAGE;
    }
    if (argc >= 2) fprintf(stderr, "ctitan: unknown command \"%s\"\n\n", argv[1]);
    usage(stderr);
    return CLI_USAGE;
}
