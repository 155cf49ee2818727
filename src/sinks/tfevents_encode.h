/* SPDX-License-Identifier: MIT */
/* TensorBoard's records: one protobuf Event each, framed with its length and masked checksums. Private to
 * sinks/ and their tests; see tfevents.proto for the messages. */
#ifndef SINKS_TFEVENTS_ENCODE_H
#define SINKS_TFEVENTS_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "metrics/metrics.h"
#include "sinks/kinds.h"

/* CRC-32C, rotated right by 15 and shifted by a constant, as TFRecord files store it. */
uint32_t tfevents_masked_crc(const void *bytes, size_t n);

/* Appends: u64 length, u32 checksum of it, the bytes, u32 checksum of them; all little-endian. */
void tfevents_add_record(struct str *out, const void *bytes, size_t n);

/* simple_value is float32: finite numbers beyond its range become its largest, NaN and infinities stay. */
float tfevents_float(double value);

void tfevents_add_version(struct str *out, double wall_s);             /* first record of a file */
void tfevents_add_start(struct str *out, double wall_s, int64_t step); /* SessionLog START */
void tfevents_add_row(struct str *out, const struct metric_row *row);  /* one Event, many values */
void tfevents_add_text(struct str *out, const struct sink_text *text); /* plugin "text", Markdown */
void tfevents_add_hparams(struct str *out, double wall_s, const struct tfevents_options *o); /* two Events */

#endif
