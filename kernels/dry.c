/* SPDX-License-Identifier: MIT */
/* Kernels that do nothing, for code that is run to see what it takes; see kernels_dry in kernels.h. */
#include "kernels/kernels.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define KERNEL(name, family, arguments, help)                                                                          \
    static void nothing_##name arguments {}
#include "kernels.def"
#undef KERNEL
#pragma GCC diagnostic pop

struct kernels kernels_dry(const struct kernels *like)
{
    struct kernels k = *like;

#define KERNEL(name, family, arguments, help) k.name = nothing_##name;
#include "kernels.def"
#undef KERNEL
    return k;
}
