/* SPDX-License-Identifier: MIT */
/* Published vectors of each hash, and that pieces give what the whole gives, at every alignment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"

/* RFC 3720, appendix B.4, and the check value of the CRC catalogues. */
static void test_crc32c_vectors(void **state)
{
    static const unsigned char scsi_read[48] = {0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                                0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
                                                0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
                                                0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    unsigned char bytes[32];

    (void)state;
    assert_int_equal(hash_crc32c(0, "", 0), 0);
    assert_int_equal(hash_crc32c(0, "123456789", 9), 0xe3069283u);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(hash_crc32c(0, bytes, sizeof bytes), 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(hash_crc32c(0, bytes, sizeof bytes), 0x62a8ab43u);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    assert_int_equal(hash_crc32c(0, bytes, sizeof bytes), 0x46dd794eu);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
    assert_int_equal(hash_crc32c(0, bytes, sizeof bytes), 0x113fdb5cu);
    assert_int_equal(hash_crc32c(0, scsi_read, sizeof scsi_read), 0xd9963a56u);
}

/* Bit by bit, as the polynomial says. */
static uint32_t plain_crc32c(const unsigned char *p, size_t n)
{
    uint32_t crc = 0xffffffffu;

    for (; n; n--) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static void test_crc32c_in_pieces(void **state)
{
    struct rng_key key = rng_key_of(3, "crc");
    unsigned char bytes[80];

    (void)state;
    for (int i = 0; i < 80; i++) bytes[i] = (unsigned char)rng_below(key, (uint64_t)i, 256);
    for (size_t first = 0; first < 9; first++)
        for (size_t n = 0; first + n <= sizeof bytes; n++) {
            uint32_t want = plain_crc32c(bytes + first, n);

            assert_int_equal(hash_crc32c(0, bytes + first, n), want);
            for (size_t cut = 0; cut <= n; cut += 3)
                assert_int_equal(hash_crc32c(hash_crc32c(0, bytes + first, cut), bytes + first + cut, n - cut), want);
        }
}

/* draft-eastlake-fnv, appendix C. */
static void test_fnv_vectors(void **state)
{
    (void)state;
    assert_true(hash_fnv(HASH_FNV_START, "", 0) == 0xcbf29ce484222325u);
    assert_true(hash_fnv(HASH_FNV_START, "a", 1) == 0xaf63dc4c8601ec8cu);
    assert_true(hash_fnv(HASH_FNV_START, "foobar", 6) == 0x85944171f73967e8u);
    assert_true(hash_fnv_text(HASH_FNV_START, "foobar") == 0x85944171f73967e8u);
    assert_true(hash_fnv(hash_fnv(HASH_FNV_START, "foo", 3), "bar", 3) == 0x85944171f73967e8u);
    assert_true(hash_fnv(HASH_FNV_START, "\0", 1) == 0xaf63bd4c8601b7dfu);
}

/* Outputs of the SplitMix64 generator for the seed 1234567: its state grows by the golden gamma, hash_mix is
 * its finaliser. */
static void test_mix_vectors(void **state)
{
    static const uint64_t want[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                    4593380528125082431u, 16408922859458223821u};
    uint64_t x = 1234567;

    (void)state;
    for (int i = 0; i < 5; i++) {
        x += 0x9e3779b97f4a7c15u;
        assert_true(hash_mix(x) == want[i]);
    }
    assert_true(hash_mix(0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c_vectors),
        cmocka_unit_test(test_crc32c_in_pieces),
        cmocka_unit_test(test_fnv_vectors),
        cmocka_unit_test(test_mix_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
