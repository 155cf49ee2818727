/* SPDX-License-Identifier: MIT */
/* The functions of NCCL that are used, opened at run time with the types of its own header. */
#ifndef CUDA_NCCL_API_H
#define CUDA_NCCL_API_H

#include <nccl.h>

#include "base/error.h"

#define NCCL_FUNCTIONS(X)                                                                                              \
    X(get_version, ncclGetVersion)                                                                                     \
    X(get_unique_id, ncclGetUniqueId)                                                                                  \
    X(init_rank, ncclCommInitRankConfig)                                                                               \
    X(finalize, ncclCommFinalize)                                                                                      \
    X(destroy, ncclCommDestroy)                                                                                        \
    X(abort, ncclCommAbort)                                                                                            \
    X(get_async_error, ncclCommGetAsyncError)                                                                          \
    X(get_error_string, ncclGetErrorString)                                                                            \
    X(get_last_error, ncclGetLastError)                                                                                \
    X(all_gather, ncclAllGather)                                                                                       \
    X(reduce_scatter, ncclReduceScatter)                                                                               \
    X(all_reduce, ncclAllReduce)                                                                                       \
    X(broadcast, ncclBroadcast)

struct nccl_api {
#define X(member, function) __typeof__(&function) member;
    NCCL_FUNCTIONS(X)
#undef X
};

/* ERR_UNSUPPORTED: no NCCL, or one without a function that is needed. */
err_t nccl_api_open(struct nccl_api *api, struct error *e) MUST_CHECK;

#endif
