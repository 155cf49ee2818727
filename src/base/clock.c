/* SPDX-License-Identifier: MIT */
/* Clocks; see clock.h. */
#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

int64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double clock_wall_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void clock_sleep_ns(int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    if (ns > 0) nanosleep(&t, NULL);
}

void clock_iso(double wall_s, char *out)
{
    /* rounded: the double nearest to a whole millisecond may lie just below it */
    double all_ms = floor(wall_s * 1e3 + 0.5), whole_s = floor(all_ms / 1e3);
    time_t seconds;
    struct tm tm;
    char text[24];

    if (!(whole_s >= -62135596800.0 && whole_s < 253402300800.0)) whole_s = all_ms = 0; /* no year of four digits */
    seconds = (time_t)whole_s;
    gmtime_r(&seconds, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, CLOCK_ISO_BYTES, "%s.%03dZ", text, (int)(all_ms - whole_s * 1e3));
}
