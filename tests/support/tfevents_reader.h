/* SPDX-License-Identifier: MIT */
/*
 * A reader of event files that shares nothing with the writer: its own checksum (bit by bit) and its own walk
 * over the protobuf wire format. Failures fail the running cmocka test.
 */
#ifndef SUPPORT_TFEVENTS_READER_H
#define SUPPORT_TFEVENTS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tfevents_point {
    char tag[96];
    char text[512]; /* of a text value, cut */
    char plugin[16];
    bool has_value;
    float value;
    double wall_s;
    int64_t step;
};

struct tfevents_read {
    struct tfevents_point points[4096];
    int n_points;
    int n_records, n_versions, n_starts;
    int64_t start_step; /* of the last START */
    char first[32];     /* file_version of the first record */
    size_t whole_bytes; /* where the last whole record ends */
};

uint32_t tfevents_reader_masked_crc(const uint8_t *bytes, size_t n);
void tfevents_read_bytes(struct tfevents_read *out, const uint8_t *bytes, size_t n); /* adds to a zeroed out */
void tfevents_read_file(struct tfevents_read *out, const char *path);

#endif
