/* SPDX-License-Identifier: MIT */
/* Checks on several ranks; see rank.h. */
#include "tests/support/rank.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "comm/local.h"

bool rank_check_at(struct rank_test *t, bool ok, const char *file, int line, const char *format, ...)
{
    char text[4096];
    va_list args;

    if (ok) return true;
    t->failures++;
    if (t->failures > 10) return false;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "[rank %d of %d] %s:%d: failed: %s\n", t->comm->rank, t->comm->size, file, line, text);
    return false;
}

struct rank_thread {
    pthread_t thread;
    struct rank_test test;
    rank_body body;
};

static void *run_thread(void *arg)
{
    struct rank_thread *thread = arg;

    thread->body(&thread->test);
    comm_destroy(thread->test.comm);
    return NULL;
}

void ranks_as_threads(int size, double timeout_s, rank_body body, void *arg)
{
    struct comm_options options = {.init_timeout_s = timeout_s};
    struct comm **comms = calloc((size_t)size, sizeof(struct comm *));
    struct rank_thread *threads = calloc((size_t)size, sizeof *threads);
    struct error e = {0};
    int failures = 0;

    if (comm_local_create(size, &options, comms, &e)) fail_msg("%s", e.message);
    for (int i = 0; i < size; i++) {
        threads[i] = (struct rank_thread){.test = {.comm = comms[i], .arg = arg}, .body = body};
        if (pthread_create(&threads[i].thread, NULL, run_thread, &threads[i])) fail_msg("cannot start thread %d", i);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(threads[i].thread, NULL);
        failures += threads[i].test.failures;
    }
    free(threads);
    free(comms);
    if (failures) fail_msg("%d checks failed on %d ranks", failures, size);
}

void ranks_as_processes(struct comm *world, rank_body body, void *arg)
{
    struct rank_test test = {.comm = world, .arg = arg};
    int64_t failures;
    struct error e = {0};

    body(&test);
    failures = test.failures;
    if (comm_all_reduce(world, "failed checks", &failures, 1, DTYPE_INT64, COMM_SUM, NULL, &e))
        fail_msg("%s", e.message);
    if (failures) fail_msg("%d checks failed on %d ranks", (int)failures, world->size);
}

void ranks_find_plugin(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    for (int up = 0; up < 3 && n > 0; up++) {
        path[n] = '\0';
        n = strrchr(path, '/') - path;
    }
    path[n > 0 ? n : 0] = '\0';
    setenv("CTITAN_PLUGIN_PATH", path, 0);
}
