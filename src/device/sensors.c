/* SPDX-License-Identifier: MIT */
/* What the operating system says of this process's memory; see the end of device.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"

/* The number after `key` in /proc/self/status, in bytes; the file gives kB. */
static int64_t status_bytes(const char *key)
{
    FILE *f = fopen("/proc/self/status", "r");
    int64_t bytes = -1;
    char line[256];

    while (f && bytes < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) bytes = strtoll(line + strlen(key), NULL, 10) * 1024;
    if (f) fclose(f);
    return bytes;
}

int64_t sensor_resident_bytes(void) { return status_bytes("VmRSS:"); }
int64_t sensor_resident_peak_bytes(void) { return status_bytes("VmHWM:"); }

/* A limit file of cgroup version 2 or 1; -1 where it is missing or says "max". */
static int64_t limit_file_bytes(const char *path)
{
    FILE *f = fopen(path, "r");
    long long bytes = -1;

    if (f && fscanf(f, "%lld", &bytes) != 1) bytes = -1;
    if (f) fclose(f);
    return bytes;
}

/* The smallest limit on the way from this process's cgroup (version 2) to the root. */
static int64_t cgroup2_limit_bytes(void)
{
    FILE *f = fopen("/proc/self/cgroup", "r");
    char line[4096], path[4200];
    int64_t least = -1, limit;

    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "0::", 3) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        for (char *group = line + 3, *slash; (slash = strrchr(group, '/')); *slash = '\0') {
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
            limit = limit_file_bytes(path);
            if (limit >= 0 && (least < 0 || limit < least)) least = limit;
            if (slash == group) break;
        }
    }
    if (f) fclose(f);
    return least;
}

int64_t sensor_memory_limit_bytes(void)
{
    int64_t total = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
    int64_t limits[] = {cgroup2_limit_bytes(), limit_file_bytes("/sys/fs/cgroup/memory.max"),
                        limit_file_bytes("/sys/fs/cgroup/memory/memory.limit_in_bytes")};

    for (int i = 0; i < 3; i++)
        if (limits[i] >= 0 && limits[i] < total) total = limits[i];
    return total;
}
