/* SPDX-License-Identifier: MIT */
/* Which rank speaks, and what to do when nobody sees it; see metrics.h. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/metrics.h"

int metrics_rank(int world_size, int pp_degree, const int *position_of_stage, int n_stages)
{
    if (pp_degree <= 1 || n_stages <= 0 || !position_of_stage) return 0;
    return world_size / pp_degree * position_of_stage[n_stages - 1];
}

/* false: no list; otherwise *is_shown says whether it has the rank */
static bool read_list(const char *log_rank, int rank, bool *is_shown)
{
    const char *p = log_rank && *log_rank ? log_rank : "0";

    *is_shown = false;
    for (;;) {
        char *end;
        long value = strtol(p, &end, 10);

        if (end == p || value < 0 || value > INT_MAX) return false;
        if (value == rank) *is_shown = true;
        if (*end == '\0') return true;
        if (*end != ',') return false;
        p = end + 1;
    }
}

bool metrics_rank_list_ok(const char *log_rank)
{
    bool ignored;

    return read_list(log_rank, 0, &ignored);
}

bool metrics_rank_is_shown(const char *log_rank, int rank)
{
    bool is_shown;

    return read_list(log_rank, rank, &is_shown) && is_shown;
}

/* Quoted only where a shell would read it otherwise. */
static void add_quoted(struct str *out, const char *argument)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";

    if (*argument && strspn(argument, plain) == strlen(argument)) {
        str_add(out, argument);
        return;
    }
    str_add_char(out, '\'');
    for (const char *p = argument; *p; p++) {
        if (*p == '\'')
            str_add(out, "'\\''");
        else
            str_add_char(out, *p);
    }
    str_add_char(out, '\'');
}

void metrics_rank_warning(struct str *out, const char *log_rank, int rank, int n_arguments,
                          const char *const *arguments)
{
    const char *shown = log_rank && *log_rank ? log_rank : "0";
    struct str list = {0};

    str_addf(&list, "%s,%d", shown, rank);
    str_addf(out, "the step lines come from rank %d, which LOG_RANK=%s does not show; to see them: LOG_RANK=", rank,
             shown);
    if (metrics_rank_is_shown(str_text(&list), rank))
        str_add(out, str_text(&list));
    else /* LOG_RANK is no list of ranks */
        str_addf(out, "%d", rank);
    str_add(out, " ./run_train.sh");
    for (int i = 0; i < n_arguments; i++) {
        str_add_char(out, ' ');
        add_quoted(out, arguments[i]);
    }
    str_release(&list);
}
