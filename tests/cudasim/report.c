/* SPDX-License-Identifier: MIT */
/* Reports: what is wrong with the program under test, one line each on stderr. The first line is worth the most. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { SHOWN = 100 }; /* after so many reports the rest is only counted */

static _Atomic int reports;

static void print(const char *format, va_list arguments)
{
    char line[1024];
    int n = snprintf(line, sizeof line, "cudasim: ");
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, arguments);
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    line[n] = '\n';
    /* one write: lines of several ranks stay whole */
    ssize_t written = write(STDERR_FILENO, line, (size_t)n + 1);
    (void)written;
}

void sim_report(const char *format, ...)
{
    int n = ++reports;
    if (n > SHOWN) return;
    va_list arguments;
    va_start(arguments, format);
    print(format, arguments);
    va_end(arguments);
}

void sim_die(const char *format, ...)
{
    reports++;
    va_list arguments;
    va_start(arguments, format);
    print(format, arguments);
    va_end(arguments);
    fflush(NULL);
    _exit(SIM_EXIT_CODE);
}

int sim_reports(void) { return reports; }
