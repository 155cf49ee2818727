/* SPDX-License-Identifier: MIT */
/*
 * Embedding lookup and its gradient.
 *
 * embedding_forward: a block copies the row of one token, 16 bytes a thread at a time, and goes on to other tokens.
 * Bound by memory: 4 bytes an element of bfloat16 (8 of float32), and less where rows are still in a cache.
 *
 * embedding_backward_weight: each row of the table gets the tokens that name it in their order, whatever the order of
 * blocks. `link_tokens` finds for each token the next one that names the same row (block: 256 tokens, which look at
 * all later ones through shared memory, four compares for one 16 byte read): T^2 / 2 compares, 2 billion and 0.2 ms
 * for 65536 tokens. Then the block of each token that is the first of its row walks down the links and keeps the row's
 * sums in registers: the gradient is read once, a row of the table read and written once, so bound by memory: 2 bytes
 * (4) an element of dy and 8 (8) of each row that is named. A row that is named by a great part of the tokens is a
 * chain of reads, some 0.3 us each. Links take 8 bytes a token of the workspace; more tokens than fit go one part
 * after another.
 */
#include "kernels/cuda/device.cuh"

constexpr int THREADS = 256;

/* E: whatever moves the bits; width: elements of E in a row. */
template <class E>
static __global__ void __launch_bounds__(THREADS)
    copy_rows(int64_t tokens_n, int width, const int32_t *tokens, const E *table, E *y)
{
    for (int64_t token = blockIdx.x; token < tokens_n; token += gridDim.x) {
        const E *from = table + (int64_t)tokens[token] * width;

        for (int i = threadIdx.x; i < width; i += blockDim.x) y[token * width + i] = from[i];
    }
}

/* Whole warps, as many as a row has work for. */
static int threads_for(int64_t width)
{
    const int64_t threads = (width + WARP - 1) / WARP * WARP;

    return (int)(threads < THREADS ? threads : THREADS);
}

template <class T>
static void embedding_forward(struct kernel_context *c, int64_t t, int64_t d, int64_t v, const int32_t *tokens,
                              const void *table, void *y)
{
    const int width = (int)d, vectors = (int)(d / PACK<T>);

    (void)v;
    if (d == 0) return;
    if (d % PACK<T> == 0 && are_aligned(table, y))
        launch(c, "embedding_forward", copy_rows<uint4>, blocks_for(t, 1), threads_for(vectors), t, vectors, tokens,
               (const uint4 *)table, (uint4 *)y);
    else
        launch(c, "embedding_forward", copy_rows<T>, blocks_for(t, 1), threads_for(width), t, width, tokens,
               (const T *)table, (T *)y);
}
LAUNCHERS(embedding_forward,
          (struct kernel_context * c, int64_t t, int64_t d, int64_t v, const int32_t *tokens, const void *table,
           void *y),
          (c, t, d, v, tokens, table, y))

/* next[t]: the first later token of the same row, or n. is_later[next[t]] = 1; the rest of is_later was zeroed. */
static __global__ void __launch_bounds__(THREADS)
    link_tokens(int n, const int32_t *tokens, int32_t *next, int32_t *is_later)
{
    __shared__ __align__(16) int32_t tile[THREADS];
    const int first = blockIdx.x * THREADS, t = first + threadIdx.x;
    const int32_t mine = t < n ? tokens[t] : -1; /* no token is negative */
    int found = n;

    for (int start = first; start < n; start += THREADS) {
        __syncthreads(); /* the last tile has been read */
        tile[threadIdx.x] = start + (int)threadIdx.x < n ? tokens[start + threadIdx.x] : -2;
        __syncthreads();
        for (int i = 0; i < THREADS && found == n; i += 4) { /* of four the last first, so that the first stays */
            const int4 four = *reinterpret_cast<const int4 *>(&tile[i]);

            if (four.w == mine && start + i + 3 > t) found = start + i + 3;
            if (four.z == mine && start + i + 2 > t) found = start + i + 2;
            if (four.y == mine && start + i + 1 > t) found = start + i + 1;
            if (four.x == mine && start + i > t) found = start + i;
        }
    }
    if (t >= n) return;
    next[t] = found;
    if (found < n) is_later[found] = 1;
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    add_rows(int n, int64_t d, int strips, const int32_t *tokens, const int32_t *next, const int32_t *is_later,
             const T *dy, wide_of<T> *dtable)
{
    typedef wide_of<T> W;
    const int64_t first = blockIdx.x / strips, column = ((int64_t)(blockIdx.x % strips) * blockDim.x + threadIdx.x) * N;
    W sum[N], g[N];
    W *row;

    if (is_later[first] || column >= d) return;
    row = dtable + tokens[first] * d + column;
    load(sum, row);
    for (int token = (int)first; token < n;) {
        const int after = next[token];

        read(g, dy + token * d + column);
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] += g[k];
        token = after;
    }
    store(row, sum);
}

template <class T>
static void embedding_backward_weight(struct kernel_context *c, int64_t t, int64_t d, int64_t v, const int32_t *tokens,
                                      const void *dy, wide *dtable)
{
    typedef wide_of<T> W;
    constexpr int64_t MOST_TOKENS = 1 << 20;
    const bool aligned = d % PACK<T> == 0 && are_aligned(dy, dtable);
    const int width = aligned ? PACK<T> : 1, threads = threads_for((d + width - 1) / width);
    const int64_t strips = blocks_for(d, (int64_t)threads * width);
    const int64_t room = (int64_t)(c->workspace_bytes / (2 * sizeof(int32_t)));
    const int64_t most = room < MOST_TOKENS ? room : MOST_TOKENS;
    int32_t *next = (int32_t *)c->workspace, *is_later = next + most;

    (void)v;
    if (t == 0 || d == 0 || !has_workspace(c, "embedding_backward_weight", 2 * sizeof(int32_t))) return;
    for (int64_t start = 0; start < t && !c->failed; start += most) {
        const int n = (int)(t - start < most ? t - start : most);

        kernel_check(c, "embedding_backward_weight",
                     cudaMemsetAsync(is_later, 0, (size_t)n * sizeof *is_later, kernel_stream(c)));
        launch(c, "embedding_backward_weight", link_tokens, blocks_for(n, THREADS), THREADS, n, tokens + start, next,
               is_later);
        launch(c, "embedding_backward_weight", aligned ? add_rows<T, PACK<T>> : add_rows<T, 1>, n * strips, threads, n,
               d, (int)strips, tokens + start, (const int32_t *)next, (const int32_t *)is_later,
               (const T *)dy + start * d, (W *)dtable);
    }
}
LAUNCHERS(embedding_backward_weight,
          (struct kernel_context * c, int64_t t, int64_t d, int64_t v, const int32_t *tokens, const void *dy,
           wide *dtable),
          (c, t, d, v, tokens, dy, dtable))
