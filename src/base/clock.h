/* SPDX-License-Identifier: MIT */
/* Two clocks: durations always come from the monotonic one, dates always from the wall clock in UTC. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

int64_t clock_ns(void);    /* monotonic, nanoseconds since some start */
double clock_wall_s(void); /* seconds since 1970-01-01T00:00:00Z */
void clock_sleep_ns(int64_t ns);

/* "2026-01-31T12:00:00.123Z" (ISO 8601, UTC, to the nearest millisecond); out holds at least CLOCK_ISO_BYTES. What is
 * no time of the years 1 to 9999 is written as 1970-01-01T00:00:00.000Z. */
enum { CLOCK_ISO_BYTES = 32 };
void clock_iso(double wall_s, char *out);

#endif
