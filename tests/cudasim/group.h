/* SPDX-License-Identifier: MIT */
/*
 * Ranks that share a file in /dev/shm: what collectives of processes, or of threads of one process, are made of.
 *
 * The file holds a word that counts changes (everyone who waits sleeps on it), for each rank what it does, a slot of
 * data, and for each pair of ranks a box. All that happens between ranks is written data, then a counter, then the
 * word.
 *
 * Who waits calls group_wait with the simulator's mutex held; it is let go while waiting.
 */
#ifndef CUDASIM_GROUP_H
#define CUDASIM_GROUP_H

#include "sim.h"

#include <stdatomic.h>

enum { GROUP_RANKS = 64, GROUP_SLOT = 1 << 20, GROUP_BOX = 256 << 10, GROUP_TEXT = 200 };

struct group_member {
    _Atomic int process;
    _Atomic uint64_t phase;  /* barriers that it reached */
    char doing[GROUP_TEXT];  /* in words */
    char called[GROUP_TEXT]; /* the collective at which it is, as all must call it alike */
    uint64_t kind, count;    /* the same for the computer */
    _Atomic bool is_waiting;
};
/* From one rank to another. */
struct group_box {
    _Atomic uint64_t written, taken; /* pieces */
    uint64_t bytes, type;            /* of the whole message */
};
struct group_shared {
    _Atomic uint32_t changes;
    _Atomic uint32_t n, joined, left, waiting, aborted;
    _Atomic uint64_t seed; /* of rank 0, for what all ranks must choose alike */
    struct group_member members[GROUP_RANKS];
};
struct group {
    struct group_shared *shared;
    struct group_box *boxes;
    uint8_t *slots, *box_data;
    size_t mapped_bytes;
    int rank, n;
    char path[160];
    _Atomic bool is_aborted; /* by this rank */
    bool has_lost_peer;      /* a process is gone, or a rank aborted */
};

/* Opens the file and joins; others may not be there yet. False: the file cannot be made (errno). */
bool group_open(struct group *g, const char *name, int rank, int n);
void group_close(struct group *g);
bool group_is_complete(const struct group *g);
void group_changed(struct group *g); /* wakes who waits */
/* Sleeps until something changes, or for a while. since: what group_changes was before the condition was looked at. */
uint32_t group_changes(const struct group *g);
void group_sleep(struct group *g, uint32_t since);
/* Waits until is_so(argument). False: the rank gave up (is_aborted). Reports when the time is out. */
bool group_wait(struct group *g, bool (*is_so)(const struct group *g, const void *argument), const void *argument);
bool group_barrier(struct group *g);        /* false: gave up */
void group_look_for_peers(struct group *g); /* sets has_lost_peer */
uint8_t *group_slot(const struct group *g, int rank);
struct group_box *group_box(const struct group *g, int from, int to, uint8_t **data);

/* out[i] = out[i] op in[i], rounded to the type each time; ncclDataType_t and ncclRedOp_t (no average). */
void reduce_into(int type, int op, void *out, const void *in, uint64_t n);
void reduce_divide(int type, void *out, int by, uint64_t n);
size_t reduce_type_bytes(int type); /* 0: unknown */

#endif
