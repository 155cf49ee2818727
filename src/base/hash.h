/* SPDX-License-Identifier: MIT */
/* Checksums and hashes. None of them is cryptographic: they detect accidents, not attackers. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli, RFC 3720 appendix B.4): crc = 0 to start, or an earlier result to go on. Uses SSE4.2 where
 * present. */
uint32_t hash_crc32c(uint32_t crc, const void *bytes, size_t n);

/* FNV-1a, 64 bit (draft-eastlake-fnv): for identities and keys. h = HASH_FNV_START to start. */
#define HASH_FNV_START 0xcbf29ce484222325u
uint64_t hash_fnv(uint64_t h, const void *bytes, size_t n);
uint64_t hash_fnv_text(uint64_t h, const char *s);

/* SplitMix64's finaliser (Steele, Lea, Flood 2014): spreads the bits of x. */
uint64_t hash_mix(uint64_t x);

#endif
