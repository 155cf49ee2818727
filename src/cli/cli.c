/* SPDX-License-Identifier: MIT */
/* What all subcommands share; see cli.h. */
#include "cli/cli.h"

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
