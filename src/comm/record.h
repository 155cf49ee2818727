/* SPDX-License-Identifier: MIT */
/* A decorator that keeps a list of the calls made through a communicator and through those split from it:
 * tests assert traffic with it. */
#ifndef COMM_RECORD_H
#define COMM_RECORD_H

#include "comm/call.h"
#include "comm/comm.h"

struct comm_record_entry {
    enum call_kind kind; /* CALL_NONE: a split, whose new group has `size` ranks */
    char name[CALL_NAME_BYTES];
    int size;     /* ranks of the group */
    size_t count; /* as passed: elements, or bytes of a broadcast */
    enum dtype type;
    enum comm_operator op;
    int root;
    size_t bytes; /* this rank must send to others at least: (size - 1) / size of the whole buffer, twice that
                     for all_reduce */
    err_t result;
};

/* One per rank: ranks that are threads must not share one. Zeroed = empty. */
struct comm_record {
    struct comm_record_entry *entries;
    int n, capacity;
};

void comm_record_clear(struct comm_record *r); /* memory kept */
void comm_record_release(struct comm_record *r);
/* Counts entries of this kind whose name begins with prefix ("" = all). */
int comm_record_count(const struct comm_record *r, enum call_kind kind, const char *prefix);
size_t comm_record_bytes(const struct comm_record *r, enum call_kind kind, const char *prefix);

/* Owns inner, also on error. */
err_t comm_record_create(struct comm *inner, struct comm_record *record, struct comm **out, struct error *e) MUST_CHECK;

#endif
