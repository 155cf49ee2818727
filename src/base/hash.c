/* SPDX-License-Identifier: MIT */
/* Checksums and hashes; see hash.h. */
#include "base/hash.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const unsigned char *p, size_t n)
{
    uint64_t c = crc, word;

    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        c = _mm_crc32_u64(c, word);
    }
    crc = (uint32_t)c;
    for (; n; n--) crc = _mm_crc32_u8(crc, *p++);
    return crc;
}
#endif

static uint32_t crc32c_plain(uint32_t crc, const unsigned char *p, size_t n)
{
    for (; n; n--) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return crc;
}

uint32_t hash_crc32c(uint32_t crc, const void *bytes, size_t n)
{
    crc = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~crc32c_sse42(crc, bytes, n);
#endif
    return ~crc32c_plain(crc, bytes, n);
}

uint64_t hash_fnv(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;

    for (; n; n--) h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

uint64_t hash_fnv_text(uint64_t h, const char *s) { return hash_fnv(h, s, strlen(s)); }

uint64_t hash_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
