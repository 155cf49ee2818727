/* SPDX-License-Identifier: MIT */
/* The manifest refuses whatever could lead a reader astray, and merges the reports of ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/manifest.h"

#define GOOD                                                                                                           \
    "{\"ctitan_checkpoint\":1,\"run_id\":\"aaaa1111\",\"model\":\"m\",\"binary\":\"b\",\"saved_at\":"                  \
    "\"now\",\n"                                                                                                       \
    "\"state\":{\"step\":1,\"tokens_seen\":2,\"epoch\":0,\"sample\":3,\"shuffle_seed\":-6,\"seed\":4,"                 \
    "\"optimizer_step\":1,"                                                                                            \
    "\"schedule_step\":1,\"data_hash\":-8,\"tokenizer_hash\":9,\"healthy\":true},\n\"mesh\":{\"world\":2,\"axes\":{"   \
    "\"dp_shard\":2}},\n\"config\":"                                                                                   \
    "{\"a\":[1,2]},\n"                                                                                                 \
    "\"files\":[{\"name\":\"f0\",\"bytes\":100,\"crc32c\":1},\n{\"name\":\"f1\",\"bytes\":40,\"crc32c\":2}]"           \
    ",\n"                                                                                                              \
    "\"tensors\":[{\"name\":\"w\",\"kind\":\"parameters\",\"dtype\":\"float32\",\"shape\":[3,2],\"pieces\":"           \
    "["                                                                                                                \
    "{\"file\":0,\"rows\":[0,2],\"offset\":84,\"bytes\":16,\"crc32c\":5},"                                             \
    "{\"file\":1,\"rows\":[2,1],\"offset\":32,\"bytes\":8,\"crc32c\":6}]}],\n\"manifest_crc32c\":0}\n"

static err_t parse(const char *text, struct error *e)
{
    struct manifest m;
    size_t n = strlen(text);
    char *exact = malloc(n + 1); /* a sanitizer sees a read past the end */
    err_t rc;

    assert_non_null(exact);
    memcpy(exact, text, n);
    rc = manifest_parse(&m, exact, n, "manifest.json", e);
    if (!rc) manifest_release(&m);
    free(exact);
    return rc;
}

static void test_good(void **state)
{
    struct str again = {0};
    struct manifest m;
    struct error e;

    (void)state;
    if (manifest_parse(&m, GOOD, strlen(GOOD), "manifest.json", &e)) fail_msg("%s", e.message);
    assert_int_equal(m.n_tensors, 1);
    assert_int_equal(m.tensors[0].n_pieces, 2);
    assert_int_equal(m.tensors[0].pieces[1].first_row, 2);
    assert_int_equal(m.state.shuffle_seed, (uint64_t)-6);
    assert_int_equal(m.state.data_hash, (uint64_t)-8);
    assert_int_equal(m.state.tokenizer_hash, 9);
    assert_string_equal(m.config_json, "{\"a\":[1,2]}");
    assert_string_equal(m.axes[0].name, "dp_shard");
    manifest_write(&m, &again);
    assert_memory_equal(again.text, GOOD, strlen(GOOD) - 3); /* all but the checksum's value */
    manifest_release(&m);
    str_release(&again);
}

/* GOOD with `from` replaced by `to` must be refused, with `says` in the message. */
static void test_refused(void **state)
{
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"{\"ctitan", "[{\"ctitan", "line"},
        {"\"ctitan_checkpoint\":1", "\"ctitan_checkpoint\":2", "format version 2"},
        {"\"ctitan_checkpoint\":1", "\"version\":1", "not a checkpoint"},
        {"\"aaaa1111\"", "\"../../etc\"", "run id"},
        {"\"aaaa1111\"", "\"\"", "run id"},
        {"\"aaaa1111\"", "\"aaaaaaaaaaaaaaaa\"", "run id"},
        {"\"model\":\"m\"", "\"model\":7", "manifest"},
        {"\"step\":1", "\"step\":-1", "negative"},
        {"\"step\":1", "\"step\":1.5", "state"},
        {"\"step\":1", "\"step\":99999999999999999999", "line"},
        {"\"healthy\":true", "\"healthy\":1", "state"},
        {"\"world\":2", "\"world\":0", "world"},
        {"\"dp_shard\":2", "\"dp_shard\":0", "dp_shard"},
        {"\"name\":\"f0\"", "\"name\":\"../f0\"", "not the name of a file"},
        {"\"name\":\"f0\"", "\"name\":\"..\"", "not the name of a file"},
        {"\"name\":\"f0\"", "\"name\":\"\"", "not the name of a file"},
        {"\"bytes\":100", "\"bytes\":-1", "out of range"},
        {"\"bytes\":100", "\"bytes\":99", "outside the file f0"},
        {"\"crc32c\":1}", "\"crc32c\":4294967296}", "out of range"},
        {"\"kind\":\"parameters\"", "\"kind\":\"gradients\"", "unknown kind"},
        {"\"float32\"", "\"float33\"", "unknown kind"},
        {"\"float32\"", "\"float64\"", "does not fit"},
        {"[3,2]", "[3,2,1,1,1]", "dimensions"},
        {"[3,2]", "[-3,2]", "dimension 0"},
        {"[3,2]", "[4611686018427387904,4611686018427387904]", "dimension"},
        {"[3,2]", "[4,2]", "3 of 4 rows"},
        {"[3,2]", "[2,2]", "3 of 2 rows"},
        {"[3,2]", "[]", "does not fit"},
        {"\"rows\":[2,1]", "\"rows\":[1,1]", "stored twice"},
        {"\"rows\":[0,2]", "\"rows\":[1,1]", "missing"},
        {"\"rows\":[2,1]", "\"rows\":[2,0]", "out of range"},
        {"\"rows\":[2,1]", "\"rows\":[2,9223372036854775807]", "out of range"},
        {"\"rows\":[2,1]", "\"rows\":[2,1,0]", "w"},
        {"\"file\":1", "\"file\":2", "out of range"},
        {"\"file\":1", "\"file\":-1", "out of range"},
        {"\"offset\":84", "\"offset\":85", "outside the file"},
        {"\"offset\":84", "\"offset\":9223372036854775807", "outside the file"},
        {"\"bytes\":16", "\"bytes\":17", "does not fit"},
        {"\"files\":[", "\"files\":7,\"x\":[", "list"},
        {"\"step\":1", "\"step\":1,\"step\":2", "line"},
    };
    char text[4096];
    struct error e;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(GOOD, cases[i].from);

        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - GOOD), GOOD, cases[i].to, at + strlen(cases[i].from));
        if (parse(text, &e) != ERR_FORMAT) fail_msg("not refused: %s -> %s", cases[i].from, cases[i].to);
        if (!strstr(e.message, cases[i].says) || !strstr(e.message, "manifest.json"))
            fail_msg("%s -> %s: the message is '%s'", cases[i].from, cases[i].to, e.message);
    }
}

static void test_cut_anywhere(void **state)
{
    char text[] = GOOD;
    struct error e;

    (void)state;
    for (size_t n = sizeof text - 3; n > 0; n--) {
        text[n] = '\0';
        assert_int_equal(parse(text, &e), ERR_FORMAT);
    }
}

#define PART(file, first, n, offset, bytes)                                                                            \
    "{\"unhealthy\":false,\"files\":[{\"name\":\"" file "\",\"bytes\":40,\"crc32c\":1}],\"tensors\":[{\"name\":\"w\"," \
    "\"kind\":\"parameters\",\"dtype\":\"float32\",\"shape\":[3,2],\"pieces\":[{\"file\":0,\"rows\":"                  \
    "[" #first "," #n "],\"offset\":" #offset ",\"bytes\":" #bytes ",\"crc32c\":1}]}]}"

static err_t merge(const char *a, const char *b, struct manifest *m, struct error *e)
{
    err_t rc;

    memset(m, 0, sizeof *m);
    rc = manifest_part_merge(m, a, strlen(a), e);
    if (!rc) rc = manifest_part_merge(m, b, strlen(b), e);
    return rc ? rc : manifest_finish(m, "step-1", e);
}

static void test_merge(void **state)
{
    struct manifest m;
    struct error e;

    (void)state;
    /* in any order */
    if (merge(PART("b", 2, 1, 8, 8), PART("a", 0, 2, 8, 16), &m, &e)) fail_msg("%s", e.message);
    assert_int_equal(m.n_tensors, 1);
    assert_int_equal(m.tensors[0].n_pieces, 2);
    assert_int_equal(m.tensors[0].pieces[0].file, 1);
    manifest_release(&m);
    /* both ranks wrote the same rows, one of them none */
    assert_int_equal(merge(PART("a", 0, 2, 8, 16), PART("b", 0, 2, 8, 16), &m, &e), ERR_FORMAT);
    assert_non_null(strstr(e.message, "stored twice"));
    manifest_release(&m);
    assert_int_equal(merge(PART("a", 0, 1, 8, 8), PART("b", 2, 1, 8, 8), &m, &e), ERR_FORMAT);
    assert_non_null(strstr(e.message, "missing"));
    manifest_release(&m);
}

static void test_out_of_memory(void **state)
{
    struct manifest m;
    struct error e;
    bool fired = true;

    (void)state;
    for (long n = 0; fired; n++) {
        err_t rc;

        mem_fault_arm(n);
        rc = manifest_parse(&m, GOOD, strlen(GOOD), "x", &e);
        fired = mem_fault_fired();
        mem_fault_arm(-1);
        assert_int_equal(rc, fired ? ERR_MEMORY : ERR_NONE);
        if (!rc) manifest_release(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),  cmocka_unit_test(test_refused),       cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_merge), cmocka_unit_test(test_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
