/* SPDX-License-Identifier: MIT */
/* The CPU device; see cpu.h. Segments come from mmap, so that given-back memory leaves the process and RSS tells the
 * truth. */
#include "device/cpu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "device/immediate.h"

static void cpu_close(struct device *d) { mem_free(d); }

static err_t cpu_segment_alloc(struct device *d, size_t bytes, void **out, struct error *e)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)d;
    *out = NULL;
    if (p == MAP_FAILED) return FAIL(e, ERR_MEMORY, "the system gives no %zu bytes: %s", bytes, strerror(errno));
    if (bytes >= (8u << 20)) madvise(p, bytes, MADV_HUGEPAGE); /* fewer page faults; harmless where it is not allowed */
    *out = p;
    return ERR_NONE;
}

static void cpu_segment_free(struct device *d, void *p, size_t bytes)
{
    (void)d;
    munmap(p, bytes);
}

static err_t cpu_copy(struct device *d, void *to, const void *from, size_t bytes, struct stream *s, struct error *e)
{
    (void)d, (void)s, (void)e;
    memcpy(to, from, bytes);
    return ERR_NONE;
}

static err_t cpu_copy_2d(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes,
                         size_t rows, struct stream *s, struct error *e)
{
    (void)d, (void)s, (void)e;
    for (size_t i = 0; i < rows; i++) memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, bytes);
    return ERR_NONE;
}

static err_t cpu_fill_zero(struct device *d, void *p, size_t bytes, struct stream *s, struct error *e)
{
    (void)d, (void)s, (void)e;
    memset(p, 0, bytes);
    return ERR_NONE;
}

static const struct device_ops device_ops_cpu = {
    .name = "cpu",
    .gives_zeros = true,
    .close = cpu_close,
    .segment_alloc = cpu_segment_alloc,
    .segment_free = cpu_segment_free,
    .host_alloc = immediate_host_alloc,
    .host_free = immediate_host_free,
    .copy = cpu_copy,
    .copy_2d = cpu_copy_2d,
    .fill_zero = cpu_fill_zero,
    .synchronize = immediate_synchronize,
    .stream_create = immediate_stream_create,
    .stream_destroy = immediate_stream_destroy,
    .stream_wait = immediate_stream_wait,
    .stream_synchronize = immediate_stream_synchronize,
    .event_create = immediate_event_create,
    .event_destroy = immediate_event_destroy,
    .event_record = immediate_event_record,
    .event_synchronize = immediate_event_synchronize,
    .event_is_done = immediate_event_is_done,
};

/* "AMD EPYC 7713" from /proc/cpuinfo; "CPU" where it says nothing. */
static void cpu_model_name(char *out, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];

    snprintf(out, size, "CPU");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon += 1 + strspn(colon + 1, " ");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(out, size, "%s", colon);
        break;
    }
    if (f) fclose(f);
}

err_t cpu_device_create(struct device **out, const struct device_options *options, struct error *e)
{
    struct device *d = mem_zalloc(1, sizeof *d);

    *out = d;
    if (!d) return FAIL(e, ERR_MEMORY, "out of memory while opening the CPU device");
    d->ops = &device_ops_cpu;
    cpu_model_name(d->properties.name, sizeof d->properties.name);
    d->properties.is_immediate = true;
    d->properties.memory_bytes = sensor_memory_limit_bytes() / (options->local_size > 0 ? options->local_size : 1);
    return ERR_NONE;
}
