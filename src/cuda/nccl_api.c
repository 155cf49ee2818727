/* SPDX-License-Identifier: MIT */
/* Opening NCCL; see nccl_api.h. */
#include "cuda/nccl_api.h"

#include "cuda/library.h"

err_t nccl_api_open(struct nccl_api *api, struct error *e)
{
    static const char file[] = "libnccl.so.2";
    void *library = NULL;
    err_t rc = cuda_library_open(file, "nccl", "communication between GPUs", &library, e);

#define X(member, function)                                                                                            \
    if (!rc) rc = cuda_library_symbol(library, file, #function, (void **)&api->member, e);
    NCCL_FUNCTIONS(X)
#undef X
    return rc;
}
