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
    time_t seconds = (time_t)floor(wall_s);
    int milliseconds = (int)((wall_s - floor(wall_s)) * 1000);
    struct tm tm;
    char text[24];

    gmtime_r(&seconds, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, CLOCK_ISO_BYTES, "%s.%03dZ", text, milliseconds);
}
