/* SPDX-License-Identifier: MIT */
/* Reading event files in tests; see tfevents_reader.h. */
#include "tests/support/tfevents_reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/io.h"

/* CRC-32C by its definition: reflected polynomial 0x82f63b78. */
uint32_t tfevents_reader_masked_crc(const uint8_t *bytes, size_t n)
{
    uint32_t crc = 0xffffffffu;

    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

struct field {
    int number, wire;
    uint64_t integer; /* wire 0, 1, 5 */
    const uint8_t *bytes;
    size_t n; /* wire 2 */
};

static uint64_t little_endian(const uint8_t *p, int n)
{
    uint64_t value = 0;

    for (int i = n - 1; i >= 0; i--) value = value << 8 | p[i];
    return value;
}

static uint64_t varint(const uint8_t **p, const uint8_t *end)
{
    uint64_t value = 0;

    for (int shift = 0;; shift += 7) {
        assert_true(*p < end && shift < 64);
        value |= (uint64_t)(**p & 0x7f) << shift;
        if (!(*(*p)++ & 0x80)) return value;
    }
}

static bool next_field(const uint8_t **p, const uint8_t *end, struct field *f)
{
    uint64_t key;

    if (*p == end) return false;
    key = varint(p, end);
    *f = (struct field){.number = (int)(key >> 3), .wire = (int)(key & 7)};
    if (f->wire == 0) {
        f->integer = varint(p, end);
    } else if (f->wire == 2) {
        f->n = varint(p, end);
        assert_true(f->n <= (size_t)(end - *p));
        f->bytes = *p;
        *p += f->n;
    } else {
        int n = f->wire == 1 ? 8 : 4;

        assert_true(f->wire == 1 || f->wire == 5);
        assert_true(end - *p >= n);
        f->integer = little_endian(*p, n);
        *p += n;
    }
    return true;
}

static void copy_text(char *out, size_t size, const struct field *f)
{
    snprintf(out, size, "%.*s", (int)f->n, (const char *)f->bytes);
}

/* Metadata{plugin_data=1{plugin_name=1}} */
static void read_metadata(struct tfevents_point *point, struct field metadata)
{
    struct field f, g;

    for (const uint8_t *p = metadata.bytes; next_field(&p, metadata.bytes + metadata.n, &f);)
        for (const uint8_t *q = f.bytes; f.number == 1 && next_field(&q, f.bytes + f.n, &g);)
            if (g.number == 1) copy_text(point->plugin, sizeof point->plugin, &g);
}

static void read_value(struct tfevents_point *point, struct field value)
{
    struct field f, g;
    uint32_t bits;

    for (const uint8_t *p = value.bytes; next_field(&p, value.bytes + value.n, &f);) {
        if (f.number == 1) copy_text(point->tag, sizeof point->tag, &f);
        if (f.number == 9) read_metadata(point, f);
        if (f.number == 2) {
            assert_int_equal(f.wire, 5);
            bits = (uint32_t)f.integer;
            memcpy(&point->value, &bits, 4);
            point->has_value = true;
        }
        for (const uint8_t *q = f.bytes; f.number == 8 && next_field(&q, f.bytes + f.n, &g);)
            if (g.number == 8) copy_text(point->text, sizeof point->text, &g);
    }
}

static void read_event(struct tfevents_read *out, const uint8_t *bytes, size_t n)
{
    struct field f, g;
    double wall_s = 0;
    int64_t step = 0;
    int first_point = out->n_points;

    for (const uint8_t *p = bytes; next_field(&p, bytes + n, &f);) {
        if (f.number == 1) memcpy(&wall_s, &f.integer, 8);
        if (f.number == 2) step = (int64_t)f.integer;
        if (f.number == 3) {
            if (out->n_records == 0) copy_text(out->first, sizeof out->first, &f);
            out->n_versions++;
        }
        for (const uint8_t *q = f.bytes; f.number == 5 && next_field(&q, f.bytes + f.n, &g);) {
            assert_true(out->n_points < (int)(sizeof out->points / sizeof *out->points));
            out->points[out->n_points] = (struct tfevents_point){0};
            if (g.number == 1) read_value(&out->points[out->n_points++], g);
        }
        for (const uint8_t *q = f.bytes; f.number == 7 && next_field(&q, f.bytes + f.n, &g);)
            if (g.number == 1 && g.integer == 1) out->n_starts++, out->start_step = -1;
    }
    if (out->start_step == -1) out->start_step = step;
    for (int i = first_point; i < out->n_points; i++) {
        out->points[i].step = step;
        out->points[i].wall_s = wall_s;
    }
    out->n_records++;
}

void tfevents_read_bytes(struct tfevents_read *out, const uint8_t *bytes, size_t n)
{
    size_t at = 0;

    while (n - at >= 12) {
        uint64_t length = little_endian(bytes + at, 8);

        assert_int_equal(little_endian(bytes + at + 8, 4), tfevents_reader_masked_crc(bytes + at, 8));
        if (n - at < 16 || length > n - at - 16) return;
        assert_int_equal(little_endian(bytes + at + 12 + length, 4),
                         tfevents_reader_masked_crc(bytes + at + 12, length));
        read_event(out, bytes + at + 12, length);
        at += 16 + length;
        out->whole_bytes = at;
    }
}

void tfevents_read_file(struct tfevents_read *out, const char *path)
{
    struct error error;
    struct str all = {0};

    if (io_read_file(path, &all, &error)) fail_msg("%s", error.message);
    tfevents_read_bytes(out, (const uint8_t *)str_text(&all), all.length);
    str_release(&all);
}
