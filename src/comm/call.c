/* SPDX-License-Identifier: MIT */
/* Packing and printing of calls; see call.h. */
#include "comm/call.h"

#include <string.h>

enum { NAME_WORD = 4 };
_Static_assert((CALL_WORDS - NAME_WORD) * 8 == CALL_NAME_BYTES, "the name fills the words after the numbers");

const char *call_kind_name(enum call_kind kind)
{
    static const char *const names[] = {
#define X(id, name) name,
        COMM_CALLS(X)
#undef X
    };
    return (unsigned)kind < CALL_KIND_COUNT ? names[kind] : "an unknown call";
}

void call_pack(const struct call *call, uint64_t words[CALL_WORDS])
{
    memset(words, 0, CALL_WORDS * sizeof *words);
    words[0] = (uint64_t)call->kind | (uint64_t)call->type << 8 | (uint64_t)call->op << 16 |
               (uint64_t)(uint32_t)call->root << 32;
    words[1] = call->count;
    words[2] = call->sequence;
    strncpy((char *)&words[NAME_WORD], call->name, CALL_NAME_BYTES - 1);
}

void call_print(struct str *out, const uint64_t words[CALL_WORDS])
{
    enum call_kind kind = (enum call_kind)(words[0] & 0xff);
    unsigned type = words[0] >> 8 & 0xff, op = words[0] >> 16 & 0xff;
    unsigned long long count = words[1];
    const char *type_name = type < DTYPE_COUNT ? dtype_name((enum dtype)type) : "?";
    char name[CALL_NAME_BYTES];

    memcpy(name, &words[NAME_WORD], sizeof name);
    name[sizeof name - 1] = '\0';
    str_add(out, call_kind_name(kind));
    if (kind != CALL_NONE) str_addf(out, " \"%s\"", name);
    if (kind == CALL_ALL_GATHER) str_addf(out, " (%llu %s a rank)", count, type_name);
    if (kind == CALL_REDUCE_SCATTER)
        str_addf(out, " (%s of %llu %s a rank)", comm_operator_name((enum comm_operator)op), count, type_name);
    if (kind == CALL_ALL_REDUCE)
        str_addf(out, " (%s of %llu %s)", comm_operator_name((enum comm_operator)op), count, type_name);
    if (kind == CALL_BROADCAST) str_addf(out, " (%llu bytes from rank %d)", count, (int)(words[0] >> 32));
}
