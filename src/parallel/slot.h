/* SPDX-License-Identifier: MIT */
/* Private to parallel/: what the executor holds for one unit and one microbatch, and for one microbatch's input. */
#ifndef PARALLEL_SLOT_H
#define PARALLEL_SLOT_H

#include "nn/exec.h"

struct slot {
    void *frame;                     /* host, for the whole run */
    void *stash, *kept, *out, *dout; /* device blocks, NULL when not in flight; dout is the gradient of out */
    size_t stash_used;
};

enum { INPUTS = 4 }; /* arrays of a microbatch */

struct batch_buffers {
    int32_t *tokens, *labels, *positions, *document_start; /* device, `bytes` each, in the executor's `inputs` */
    size_t bytes;
    struct batch_view view;
};

#endif
