/* SPDX-License-Identifier: MIT */
/*
 * Memory shared by the processes of a host, and who of them is alive; see job.h.
 *
 * Memory is a memfd that others open through /proc/<pid>/fd: no name to clean up after a crash, no limit of
 * /dev/shm (64 MiB in many containers), no need for a folder for temporary files. A rank's lock is a robust
 * mutex: the kernel marks it when its owner dies, whatever the signal, even while the dead process is still a
 * zombie.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mpi/job.h"

static err_t map(struct mapping *m, struct error *e)
{
    m->address = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->address != MAP_FAILED) return ERR_NONE;
    m->address = NULL;
    return FAIL(e, ERR_MEMORY, "cannot map %zu bytes of memory shared by ranks: %s", m->bytes, strerror(errno));
}

err_t mapping_create(struct mapping *m, size_t bytes, struct error *e)
{
    *m = (struct mapping){.bytes = bytes};
    m->fd = memfd_create("ctitan", MFD_CLOEXEC);
    if (m->fd < 0 || ftruncate(m->fd, (off_t)bytes))
        return FAIL(e, ERR_MEMORY, "cannot make %zu bytes of memory shared by ranks: %s", bytes, strerror(errno));
    return map(m, e);
}

struct mapping_name mapping_name_of(const struct mapping *m)
{
    return (struct mapping_name){.pid = getpid(), .fd = m->fd};
}

err_t mapping_open(struct mapping *m, struct mapping_name name, size_t bytes, struct error *e)
{
    char path[64];

    *m = (struct mapping){.bytes = bytes, .fd = -1};
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)name.pid, (long long)name.fd);
    m->fd = open(path, O_RDWR | O_CLOEXEC);
    if (m->fd < 0)
        return FAIL(e, ERR_COMM,
                    "cannot share memory with process %lld of this host (%s: %s); ranks in separate "
                    "containers can run as separate "
                    "hosts: set CTITAN_MPI_HOSTS to the number of ranks on this host",
                    (long long)name.pid, path, strerror(errno));
    return map(m, e);
}

void mapping_close_fd(struct mapping *m)
{
    if (m->fd >= 0) close(m->fd);
    m->fd = -1;
}

void mapping_release(struct mapping *m)
{
    if (!m->bytes) return;
    if (m->address) munmap(m->address, m->bytes);
    mapping_close_fd(m);
    *m = (struct mapping){.fd = -1};
}

size_t host_board_bytes(int size) { return sizeof(struct host_board) + (size_t)size * sizeof(struct host_rank); }

err_t host_board_init(struct host_board *b, int size, struct error *e)
{
    pthread_mutexattr_t attributes;
    int status = 0;

    b->size = size;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i < size && !status; i++) status = pthread_mutex_init(&b->ranks[i].alive, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return status ? FAIL(e, ERR_COMM, "cannot make locks for the %d ranks of this host: %s", size, strerror(status))
                  : ERR_NONE;
}

err_t host_board_enter(struct host_board *b, int local_rank, int world_rank, struct error *e)
{
    struct host_rank *own = &b->ranks[local_rank];
    int status = pthread_mutex_lock(&own->alive);

    if (status) return FAIL(e, ERR_COMM, "cannot take the lock of rank %d: %s", world_rank, strerror(status));
    own->pid = getpid();
    own->world_rank = world_rank;
    atomic_store(&own->state, HOST_RUNNING);
    return ERR_NONE;
}

void host_board_leave(struct host_board *b, int local_rank)
{
    atomic_store(&b->ranks[local_rank].state, HOST_CLOSED);
    pthread_mutex_unlock(&b->ranks[local_rank].alive);
}

void host_board_find_dead(struct host_board *b, int local_rank)
{
    char text[256];

    for (int i = 0; i < b->size; i++) {
        struct host_rank *other = &b->ranks[i];
        int status;

        if (i == local_rank || atomic_load(&other->state) != HOST_RUNNING) continue;
        status = pthread_mutex_trylock(&other->alive);
        if (status == EBUSY) continue;
        if (status == EOWNERDEAD) {
            snprintf(text, sizeof text,
                     "rank %d died: its process %d has ended without a word (killed, or out of memory?)",
                     other->world_rank, other->pid);
            shared_job_fail(&b->job, ERR_COMM, other->world_rank, text);
        }
        if (status == 0 || status == EOWNERDEAD) pthread_mutex_unlock(&other->alive);
    }
}
