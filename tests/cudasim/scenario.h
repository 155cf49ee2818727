/* SPDX-License-Identifier: MIT */
/*
 * Tests of the simulator by scenarios. Each runs in a process of its own (the test program starts itself again),
 * because a report ends the process with 86. A planted bug names the words that its report must contain; its good
 * twin must end with 0 and without a line from the simulator.
 */
#ifndef CUDASIM_SCENARIO_H
#define CUDASIM_SCENARIO_H

#include <stdio.h>
#include <stdlib.h>

struct scenario {
    const char *name;
    void (*run)(void);
    const char *report;      /* words of the report, NULL: silent */
    const char *environment; /* "CUDASIM_SEED=3 CUDASIM_DATA=0"; NULL: as it is */
    int processes;           /* that run it at the same time; 0: one */
};
/* Rows of one process each. */
#define GOOD_IN(name_, environment_)                                                                                   \
    {                                                                                                                  \
        .name = #name_, .run = name_, .environment = environment_                                                      \
    }
#define GOOD(name_) GOOD_IN(name_, NULL)
#define BUG(name_, report_)                                                                                            \
    {                                                                                                                  \
        .name = #name_, .run = name_, .report = report_                                                                \
    }
/* The body of main. */
int scenarios_main(int argc, char **argv, const struct scenario *all, size_t n);
int scenario_rank(void);         /* of this process among those that run the scenario */
const char *scenario_file(void); /* a path that the processes of the scenario share and may write; removed at the end */

#define CHECK(condition)                                                                                               \
    do                                                                                                                 \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    while (0)
#define OK(call) CHECK((call) == 0)

#endif
