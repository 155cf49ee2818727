/* SPDX-License-Identifier: MIT */
/*
 * Scaled dot product attention for every shape and type, by tiles in shared memory (Dao et al. 2022). Nothing is
 * larger than a tile; results do not depend on the order of blocks.
 *
 * Mapping: a block of 16 x 16 threads has a tile of TILE queries (or keys) of one head and goes over the tiles of keys
 * (queries) that any of them may see. A thread has R x R scores and R x C results, in registers; the factors of
 * a product come through shared memory, DEPTH at a time. Results wider than 16 C are shared out to more
 * blocks, each of which finds the scores again. forward: tile of queries; scores, online softmax, out += P v.
 * backward, with P = exp(scale q k^T - lse), delta = sum(dout * out), dS = scale P * (dout v^T - delta):
 * `backward_queries`: tile of queries; dq += dS k. `backward_keys`: tile of keys; the query heads of its group one
 * after another; dv += P^T dout, dk += dS^T q.
 *
 * Bound by arithmetic: each pair of a query and a key costs 2 (d_qk + d_v) operations forward, 2 (5 d_qk + 4 d_v)
 * backward (scores are found twice), in float32 whatever the compute type. Per multiply-add 0.5 words come out of
 * shared memory, most of them for many lanes at once, so that about half of the 67 TFLOP/s can be had. This is what
 * runs where the tensor cores' kernels do not apply.
 */
#include <type_traits>

#include "kernels/cuda/attention.cuh"

constexpr int SIDE = 16, THREADS = SIDE * SIDE; /* a block is SIDE x SIDE threads, two rows of them a warp */
constexpr int DEPTH = 16;

/* Columns of a result in a thread, SIDE apart: two for narrow heads, eight for the others. */
constexpr int FEW = 2, MANY = 8;

/* Queries or keys of a tile: what fits into 48 KB of shared memory. */
template <class W> constexpr int TILE = sizeof(W) == 8 ? 32 : 64;

template <class W, int C> struct tiles {
    enum { N = TILE<W>, R = N / SIDE, LD = N + 16 / (int)sizeof(W) };
    W left[DEPTH][LD], right[DEPTH][LD]; /* factors of scores, transposed */
    W p[N][LD];                          /* of the second product: probabilities or their gradients, transposed */
    W rows[DEPTH][SIDE * C];             /* and its other factor */
    int first[N], end[N];                /* keys that each query of the tile may see */
};

/* A matrix of one head in memory: rows of d elements, ld apart; n rows. */
template <class T> struct matrix {
    T *at;
    int64_t ld;
    int n, d;
};

template <class T>
static __device__ __forceinline__ matrix<T> rows_of(T *base, int64_t ld, int64_t token, int64_t head, int64_t d,
                                                    int64_t n)
{
    return {base + token * ld + head * d, ld, (int)n, (int)d};
}

/* s[i][j] += sum of x[x_row + R ty + i][k] * y[y_row + R tx + j][k] over k. Rows that are not there count as zeros. */
template <class T, class W, int R, int C>
static __device__ __forceinline__ void add_scores(W (&s)[R][R], const matrix<const T> &x, int x_row,
                                                  const matrix<const T> &y, int y_row, tiles<W, C> &t)
{
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;

    for (int start = 0; start < x.d; start += DEPTH) {
        const int k = start + tx;

        __syncthreads();
        for (int row = ty; row < TILE<W>; row += SIDE) {
            t.left[tx][row] = k < x.d && x_row + row < x.n ? to_wide(x.at[(x_row + row) * x.ld + k]) : (W)0;
            t.right[tx][row] = k < x.d && y_row + row < y.n ? to_wide(y.at[(y_row + row) * y.ld + k]) : (W)0;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            W a[R], b[R];

            load(a, &t.left[i][ty * R]);
            load(b, &t.right[i][tx * R]);
#pragma unroll
            for (int u = 0; u < R; u++)
#pragma unroll
                for (int v = 0; v < R; v++) s[u][v] += a[u] * b[v];
        }
    }
}

/* Which of a slice's SIDE * C columns is the c-th of thread tx: VEC of them are side by side, to be loaded at once. */
template <class W, int C> constexpr int VEC = C < PACK<W> ? C : PACK<W>;
template <class W, int C> static __device__ __forceinline__ int column_of(int tx, int c)
{
    return c / VEC<W, C> * SIDE * VEC<W, C> + tx * VEC<W, C> + c % VEC<W, C>;
}

/* sum[i][c] += sum of t.p[k][R ty + i] * x[x_row + k][column + column_of(tx, c)] over the N rows k of a tile. */
template <class T, class W, int R, int C>
static __device__ __forceinline__ void add_rows(W (&sum)[R][C], const matrix<const T> &x, int x_row, int column,
                                                tiles<W, C> &t)
{
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;

    for (int start = 0; start < TILE<W>; start += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < DEPTH * SIDE * C; i += THREADS) {
            const int row = x_row + start + i / (SIDE * C), at = column + i % (SIDE * C);

            t.rows[i / (SIDE * C)][i % (SIDE * C)] = row < x.n && at < x.d ? to_wide(x.at[row * x.ld + at]) : (W)0;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            W a[R];

            load(a, &t.p[start + i][ty * R]);
#pragma unroll
            for (int c = 0; c < C; c += VEC<W, C>) {
                W b[VEC<W, C>];

                load(b, &t.rows[i][column_of<W, C>(tx, c)]);
#pragma unroll
                for (int u = 0; u < R; u++)
#pragma unroll
                    for (int v = 0; v < VEC<W, C>; v++) sum[u][c + v] += a[u] * b[v];
            }
        }
    }
}

/* to[row + R ty + i][column + column_of(tx, c)] = factor[i] * sum[i][c] */
template <class T, class W, int R, int C>
static __device__ __forceinline__ void put_rows(const matrix<T> &to, int row, int column, const W (&sum)[R][C],
                                                const W (&factor)[R])
{
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;

#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            const int at = column + column_of<W, C>(tx, c), r = row + R * ty + i;

            if (r < to.n && at < to.d) to.at[r * to.ld + at] = narrowed<T>(sum[i][c] * factor[i]);
        }
}

/* The keys that queries [row, row + N) of a sequence may see, one by one in t.first and t.end, together in *first and
 * *end. starts: document_start of the sequence, or NULL. */
template <class W, int C>
static __device__ __forceinline__ void find_keys(const struct attention &a, const int32_t *starts, int row,
                                                 tiles<W, C> &t, int *first, int *end)
{
    __syncthreads(); /* the last tile of queries is done with */
    if (threadIdx.x < TILE<W>)
        visible_keys(a, starts, row + (int)threadIdx.x, &t.first[threadIdx.x], &t.end[threadIdx.x]);
    __syncthreads();
    *first = (int)a.length;
    *end = 0;
    for (int i = 0; i < TILE<W>; i++) {
        if (t.first[i] >= t.end[i]) continue;
        *first = min(*first, t.first[i]);
        *end = max(*end, t.end[i]);
    }
}

/* Over the SIDE threads that have the same rows. */
template <class W> static __device__ __forceinline__ W side_sum(W x)
{
#pragma unroll
    for (int offset = SIDE / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

template <class W> static __device__ __forceinline__ W side_most(W x)
{
#pragma unroll
    for (int offset = SIDE / 2; offset > 0; offset /= 2) x = larger(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}

/* ---- forward ---- */

template <class T, int C>
static __global__ void __launch_bounds__(THREADS)
    forward_queries(struct attention a, int slices, const T *q, const T *k, const T *v, T *out, wide_of<T> *lse)
{
    typedef wide_of<T> W;
    constexpr int N = TILE<W>, R = N / SIDE;
    __shared__ __align__(16) tiles<W, C> t;
    const struct place p = place_of(blockIdx.x, slices, (int)((a.length + N - 1) / N), a.heads);
    const int64_t token = p.sequence * a.length, kv_head = p.head / (a.heads / a.kv_heads);
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE, row = p.tile * N;
    const matrix<const T> queries = rows_of(q, a.ld_q, token, p.head, a.d_qk, a.length);
    const matrix<const T> keys = rows_of(k, a.ld_k, token, kv_head, a.d_qk, a.length);
    const matrix<const T> values = rows_of(v, a.ld_v, token, kv_head, a.d_v, a.length);
    W most[R], sum[R], result[R][C] = {};
    int first, end;

    for (int i = 0; i < R; i++) most[i] = (W)-CUDART_INF_F, sum[i] = 0;
    find_keys(a, a.document_start ? a.document_start + token : NULL, row, t, &first, &end);
    for (int key = first / N * N; key < end; key += N) {
        W s[R][R] = {};

        add_scores(s, queries, row, keys, key, t);
#pragma unroll
        for (int i = 0; i < R; i++) {
            const int from = t.first[ty * R + i], to = t.end[ty * R + i];
            W top = (W)-CUDART_INF_F, base, keep;

#pragma unroll
            for (int j = 0; j < R; j++) {
                const int at = key + tx * R + j;

                s[i][j] = at >= from && at < to ? s[i][j] * (W)a.scale : (W)-CUDART_INF_F;
                top = larger(top, s[i][j]);
            }
            top = larger(most[i], side_most(top));
            base = top == -CUDART_INF_F ? (W)0 : top; /* nothing but -inf so far: exp gives zeros */
            keep = exp_for<T>(most[i] - base);
            most[i] = top;
            sum[i] *= keep; /* of this thread's keys */
#pragma unroll
            for (int c = 0; c < C; c++) result[i][c] *= keep;
#pragma unroll
            for (int j = 0; j < R; j++) {
                const W weight = exp_for<T>(s[i][j] - base);

                sum[i] += weight;
                t.p[tx * R + j][ty * R + i] = weight;
            }
        }
        add_rows(result, values, key, p.slice * SIDE * C, t);
    }
#pragma unroll
    for (int i = 0; i < R; i++) {
        const int at = row + ty * R + i;
        const W total = side_sum(sum[i]);

        if (lse && p.slice == 0 && tx == 0 && at < a.length)
            lse[(p.sequence * a.heads + p.head) * a.length + at] = most[i] + log(total);
        sum[i] = total == 0 ? (W)0 : 1 / total; /* a NaN stays one */
    }
    put_rows(rows_of(out, a.ld_out, token, p.head, a.d_v, a.length), row, p.slice * SIDE * C, result, sum);
}

/* Blocks of a launch over tiles of all sequences and heads; slices of a result that is d wide. */
template <class W> static int64_t tiles_in(const struct attention *a) { return (a->length + TILE<W> - 1) / TILE<W>; }
static bool is_narrow(int64_t d) { return d <= FEW * SIDE; }
static int slices_of(int64_t d) { return is_narrow(d) ? 1 : (int)((d + MANY * SIDE - 1) / (MANY * SIDE)); }

template <class T>
static void attention_forward(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                              const void *v, void *out, wide *lse)
{
    typedef wide_of<T> W;
    const int slices = slices_of(a->d_v);

    if constexpr (std::is_same_v<T, bf16>)
        if (attention_tensor_forward(c, a, (const T *)q, (const T *)k, (const T *)v, (T *)out, (W *)lse)) return;
    launch(c, "attention_forward", is_narrow(a->d_v) ? forward_queries<T, FEW> : forward_queries<T, MANY>,
           a->sequences * a->heads * tiles_in<W>(a) * slices, THREADS, *a, slices, (const T *)q, (const T *)k,
           (const T *)v, (T *)out, (W *)lse);
}
LAUNCHERS(attention_forward,
          (struct kernel_context * c, const struct attention *a, const void *q, const void *k, const void *v, void *out,
           wide *lse),
          (c, a, q, k, v, out, lse))

/* ---- backward ---- */

/* delta[head, i]: sum of dout * out over d_v; a warp each, heads numbered through the sequences. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    find_delta(struct attention a, int64_t rows, const T *out, const T *dout, wide_of<T> *delta)
{
    const int64_t warp = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / WARP,
                  step = (int64_t)gridDim.x * (THREADS / WARP);

    for (int64_t row = warp; row < rows; row += step) {
        const int64_t i = row % a.length, head = row / a.length % a.heads, sequence = row / a.length / a.heads;
        const int64_t at = (sequence * a.length + i) * a.ld_out + head * a.d_v;
        wide_of<T> sum = 0;

        for (int d = threadIdx.x % WARP; d < a.d_v; d += WARP) sum += to_wide(dout[at + d]) * to_wide(out[at + d]);
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0) delta[row] = sum;
    }
}

/* The matrices of one query head and its key-value head. */
template <class T> struct heads {
    matrix<const T> q, k, v, dout;
    const wide_of<T> *lse, *delta; /* [length] */
};

template <class T>
static __device__ __forceinline__ heads<T> heads_of(const backward<T> &b, int64_t sequence, int64_t head)
{
    const struct attention a = b.a;
    const int64_t token = sequence * a.length, kv_head = head / (a.heads / a.kv_heads);
    const int64_t row = (sequence * a.heads + head) * a.length;

    return {rows_of(b.q, a.ld_q, token, head, a.d_qk, a.length),
            rows_of(b.k, a.ld_k, token, kv_head, a.d_qk, a.length),
            rows_of(b.v, a.ld_v, token, kv_head, a.d_v, a.length),
            rows_of(b.dout, a.ld_out, token, head, a.d_v, a.length),
            b.lse + row,
            b.delta + row};
}

/* Probabilities of a tile of queries and a tile of keys, in s, and in ds the gradients of their scores. */
template <class T, class W, int R, int C>
static __device__ __forceinline__ void find_gradients(W (&s)[R][R], W (&ds)[R][R], const struct attention &a,
                                                      const heads<T> &h, int row, int key, tiles<W, C> &t)
{
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;

    add_scores(s, h.q, row, h.k, key, t);
    add_scores(ds, h.dout, row, h.v, key, t);
#pragma unroll
    for (int i = 0; i < R; i++) {
        const int at = row + ty * R + i, from = t.first[ty * R + i], to = t.end[ty * R + i];
        const W lse = at < h.q.n ? h.lse[at] : (W)0, delta = at < h.q.n ? h.delta[at] : (W)0;

#pragma unroll
        for (int j = 0; j < R; j++) {
            const int of_key = key + tx * R + j;
            const bool is_seen = of_key >= from && of_key < to && lse != -CUDART_INF_F;
            const W weight = is_seen ? exp_for<T>(s[i][j] * (W)a.scale - lse) : (W)0;

            ds[i][j] = is_seen ? (W)a.scale * weight * (ds[i][j] - delta) : (W)0;
            s[i][j] = weight;
        }
    }
}

template <class T, int C>
static __global__ void __launch_bounds__(THREADS) backward_queries(const backward<T> b, int slices)
{
    typedef wide_of<T> W;
    constexpr int N = TILE<W>, R = N / SIDE;
    __shared__ __align__(16) tiles<W, C> t;
    const struct attention a = b.a;
    const struct place p = place_of(blockIdx.x, slices, (int)((a.length + N - 1) / N), a.heads);
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE, row = p.tile * N;
    const int64_t token = p.sequence * a.length;
    const heads<T> h = heads_of(b, p.sequence, p.head);
    W result[R][C] = {}, ones[R];
    int first, end;

    find_keys(a, a.document_start ? a.document_start + token : NULL, row, t, &first, &end);
    for (int key = first / N * N; key < end; key += N) {
        W s[R][R] = {}, ds[R][R] = {};

        find_gradients(s, ds, a, h, row, key, t);
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++) t.p[tx * R + j][ty * R + i] = ds[i][j];
        add_rows(result, h.k, key, p.slice * SIDE * C, t);
    }
    for (int i = 0; i < R; i++) ones[i] = 1;
    put_rows(rows_of(b.dq, a.ld_q, token, p.head, a.d_qk, a.length), row, p.slice * SIDE * C, result, ones);
}

template <class T, int C>
static __global__ void __launch_bounds__(THREADS) backward_keys(const backward<T> b, int slices)
{
    typedef wide_of<T> W;
    constexpr int N = TILE<W>, R = N / SIDE;
    __shared__ __align__(16) tiles<W, C> t;
    const struct attention a = b.a;
    const struct place p = place_of(blockIdx.x, slices, (int)((a.length + N - 1) / N), a.kv_heads);
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE, key = p.tile * N, column = p.slice * SIDE * C;
    const int64_t token = p.sequence * a.length, group = a.heads / a.kv_heads;
    const int64_t last =
        a.window > 0 ? key + N - 1 + a.window : a.length; /* queries from here on see none of the keys */
    W dk[R][C] = {}, dv[R][C] = {}, ones[R];

    for (int64_t head = p.head * group; head < (p.head + 1) * group; head++) {
        const heads<T> h = heads_of(b, p.sequence, head);

        for (int row = a.causal ? key : 0; row < a.length && row < last; row += N) {
            W s[R][R] = {}, ds[R][R] = {};
            int first, end;

            find_keys(a, a.document_start ? a.document_start + token : NULL, row, t, &first, &end);
            if (first >= key + N || end <= key) continue;
            find_gradients(s, ds, a, h, row, key, t);
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < R; j++) t.p[ty * R + i][tx * R + j] = s[i][j];
            add_rows(dv, h.dout, row, column, t);
            __syncthreads(); /* all have used the probabilities */
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < R; j++) t.p[ty * R + i][tx * R + j] = ds[i][j];
            add_rows(dk, h.q, row, column, t);
        }
    }
    for (int i = 0; i < R; i++) ones[i] = 1;
    put_rows(rows_of(b.dk, a.ld_k, token, p.head, a.d_qk, a.length), key, column, dk, ones);
    put_rows(rows_of(b.dv, a.ld_v, token, p.head, a.d_v, a.length), key, column, dv, ones);
}

/* The sequences and heads of b, for whose deltas the workspace has room. */
template <class T> static void backward_part(struct kernel_context *c, const backward<T> &b, const T *out)
{
    typedef wide_of<T> W;
    const struct attention *a = &b.a;
    const int64_t rows = a->sequences * a->heads * a->length, blocks = a->sequences * tiles_in<W>(a);
    const int64_t most = a->d_qk > a->d_v ? a->d_qk : a->d_v;
    const int slices_q = slices_of(a->d_qk), slices = slices_of(most);

    launch(c, "attention_backward", find_delta<T>, blocks_for(rows, THREADS / WARP), THREADS, *a, rows, out, b.dout,
           (W *)c->workspace);
    if constexpr (std::is_same_v<T, bf16>)
        if (attention_tensor_backward(c, b)) return;
    launch(c, "attention_backward", is_narrow(a->d_qk) ? backward_queries<T, FEW> : backward_queries<T, MANY>,
           blocks * a->heads * slices_q, THREADS, b, slices_q);
    launch(c, "attention_backward", is_narrow(most) ? backward_keys<T, FEW> : backward_keys<T, MANY>,
           blocks * a->kv_heads * slices, THREADS, b, slices);
}

template <class T>
static void attention_backward(struct kernel_context *c, const struct attention *a, const void *q, const void *k,
                               const void *v, const void *out, const wide *lse, const void *dout, void *dq, void *dk,
                               void *dv)
{
    typedef wide_of<T> W;
    const int64_t group = a->heads / a->kv_heads, room = (int64_t)(c->workspace_bytes / sizeof(W));
    const int64_t rows = group * a->length; /* of a key-value head */
    int64_t sequences, kv_heads;

    if (a->sequences * a->length == 0 || !has_workspace(c, "attention_backward", (size_t)rows * sizeof(W))) return;
    kv_heads = room / rows < a->kv_heads ? room / rows : a->kv_heads;
    sequences = kv_heads < a->kv_heads ? 1 : room / (rows * kv_heads);
    for (int64_t s = 0; s < a->sequences; s += sequences)
        for (int64_t head = 0; head < a->kv_heads; head += kv_heads) {
            const int64_t token = s * a->length, at_q = token * a->ld_q + head * group * a->d_qk;
            const int64_t at_k = token * a->ld_k + head * a->d_qk, at_v = token * a->ld_v + head * a->d_v;
            const int64_t at_out = token * a->ld_out + head * group * a->d_v;
            backward<T> b = {*a,
                             (const T *)q + at_q,
                             (const T *)k + at_k,
                             (const T *)v + at_v,
                             (const T *)dout + at_out,
                             (const W *)lse + (s * a->heads + head * group) * a->length,
                             (const W *)c->workspace,
                             (T *)dq + at_q,
                             (T *)dk + at_k,
                             (T *)dv + at_v};

            b.a.sequences = a->sequences - s < sequences ? a->sequences - s : sequences;
            b.a.kv_heads = a->kv_heads - head < kv_heads ? a->kv_heads - head : kv_heads;
            b.a.heads = b.a.kv_heads * group;
            if (a->document_start) b.a.document_start = a->document_start + token;
            backward_part(c, b, (const T *)out + at_out);
        }
}
LAUNCHERS(attention_backward,
          (struct kernel_context * c, const struct attention *a, const void *q, const void *k, const void *v,
           const void *out, const wide *lse, const void *dout, void *dq, void *dk, void *dv),
          (c, a, q, k, v, out, lse, dout, dq, dk, dv))
