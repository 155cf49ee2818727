/* SPDX-License-Identifier: MIT */
/*
 * A fixed set of worker threads that share loops.
 *
 * pool_run() calls task(arg, chunk) for every chunk in [0, n_chunks), each exactly once, on the workers and the caller,
 * and returns when all are done. Which thread takes which chunk is open: a task's result must depend on its chunk
 * alone, so that results do not depend on the number of threads. One caller at a time; tasks must not call pool_run on
 * the same pool.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdint.h>

#include "base/error.h"

struct pool;

/* n_threads counts the caller: 1 makes no thread at all. */
err_t pool_create(struct pool **out, int n_threads, struct error *e) MUST_CHECK;
void pool_destroy(struct pool *p);
int pool_threads(const struct pool *p); /* NULL = 1 */

typedef void (*pool_task)(void *arg, int64_t chunk);
void pool_run(struct pool *p, pool_task task, void *arg, int64_t n_chunks); /* p NULL: the caller does it all */

#endif
