/* SPDX-License-Identifier: MIT */
/* Ranks as threads for tests; see world.h. */
#include "tests/support/world.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "comm/local.h"

struct rank {
    struct comm *comm;
    world_task task;
    void *arg;
    struct error error;
    err_t rc;
};

static void *rank_main(void *arg)
{
    struct rank *r = arg;

    r->rc = r->task(r->comm, r->arg, &r->error);
    if (r->rc) comm_abort(r->comm, r->error.message);
    comm_destroy(r->comm);
    return NULL;
}

err_t world_try(int size, world_task task, void *arg, struct error *e)
{
    struct comm_options options = {.init_timeout_s = 60};
    struct comm **comms = mem_zalloc((size_t)size, sizeof *comms);
    struct rank *ranks = mem_zalloc((size_t)size, sizeof *ranks);
    pthread_t *threads = mem_zalloc((size_t)size, sizeof *threads);
    err_t rc = comm_local_create(size, &options, comms, e);

    for (int i = 0; i < size && !rc; i++) {
        ranks[i] = (struct rank){.comm = comms[i], .task = task, .arg = arg};
        if (pthread_create(&threads[i], NULL, rank_main, &ranks[i])) BUG("no thread for rank %d", i);
    }
    for (int i = 0; i < size && !rc; i++) pthread_join(threads[i], NULL);
    for (int pass = 0; pass < 2 && !rc; pass++) /* a rank's own failure before those it caused in others */
        for (int i = 0; i < size && !rc; i++)
            if (ranks[i].rc && (pass || ranks[i].rc != ERR_PEER)) {
                rc = ranks[i].rc;
                *e = ranks[i].error;
            }
    mem_free(threads);
    mem_free(ranks);
    mem_free(comms);
    return rc;
}

void world_run(int size, world_task task, void *arg)
{
    struct error e = {0};

    if (world_try(size, task, arg, &e)) fail_msg("%s (%s:%d)", e.message, e.file, e.line);
}
