/* SPDX-License-Identifier: MIT */
/*
 * Attention in bfloat16 on the tensor cores (mma.sync, any GPU since sm_80), for heads of 64 or 128 (Dao 2023).
 *
 * Products are of 16 x 16 by 16 x 8 blocks whose parts are spread over a warp's lanes. A warp has 16 rows of scores;
 * what it finds lies in its registers just as the next product wants its first factor, so probabilities never go
 * through shared memory: forward tile of 128 queries, 8 warps; S = q k^T, online softmax, out += P v backward_queries
 * tile of 64 queries, 4 warps; S = q k^T, dP = dout v^T, dq += dS k backward_keys tile of 64 keys, 4 warps; S^T = k
 * q^T, dP^T = v dout^T, dv += P^T dout, dk += dS^T q, for all query heads of the group Probabilities and the gradients
 * of scores are rounded to bfloat16 for the second product, sums are float32.
 *
 * Tiles come into shared memory by cp.async; forward, the next keys come while this tile's scores are found, the next
 * values while the scores of the next keys are. A row's 16 byte chunks lie at (chunk ^ row % 8), so that the eight
 * rows that ldmatrix reads at once are in different banks. 48 KB for heads of 128, 24 KB for 64.
 *
 * Bound by the tensor cores: 4 d operations a pair forward, 14 d backward (scores are found twice). mma.sync reaches
 * some 60% of the 990 TFLOP/s of an H200 at best, the other instructions of a tile leave about half of that: 250 to
 * 350 TFLOP/s forward, less backward, where a block has no second buffer and its neighbour on the multiprocessor must
 * fill the gaps.
 */
#include "kernels/cuda/attention.cuh"

constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;
constexpr int CHUNK = 8; /* elements of 16 bytes */

/* ---- instructions ---- */

static __device__ __forceinline__ float exp2_of(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ unsigned address_of(const bf16 *at) { return (unsigned)__cvta_generic_to_shared(at); }

static __device__ __forceinline__ void copy_async(bf16 *to, const bf16 *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address_of(to)), "l"(from) : "memory");
}
static __device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* All groups of copies but the last N have come. */
template <int N> static __device__ __forceinline__ void wait_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Four matrices of 8 x 8; lane l names row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void load_matrices(unsigned (&m)[4], const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address_of(row))
                 : "memory");
}
static __device__ __forceinline__ void load_transposed(unsigned (&m)[4], const bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address_of(row))
                 : "memory");
}

/* sum[16 x 8] += a[16 x 16] b[16 x 8]. Lane l has of sum rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next. */
static __device__ __forceinline__ void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ unsigned pair_of(float low, float high)
{
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    unsigned bits;

    memcpy(&bits, &two, 4);
    return bits;
}

/* ---- tiles in shared memory: rows of D ---- */

template <int D> static __device__ __forceinline__ int place_in_tile(int row, int chunk)
{
    return row * D + (chunk ^ (row % 8)) * CHUNK;
}

/* Starts to copy rows [row, row + ROWS) of a head into a tile; zeros for rows that are not there. */
template <int D, int ROWS, int THREADS>
static __device__ __forceinline__ void fill_tile(bf16 *tile, const bf16 *from, int64_t ld, int row, int rows)
{
    constexpr int CHUNKS = D / CHUNK;

#pragma unroll
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        const int r = i / CHUNKS, chunk = i % CHUNKS;
        bf16 *to = tile + place_in_tile<D>(r, chunk);

        if (row + r < rows)
            copy_async(to, from + (row + r) * ld + chunk * CHUNK);
        else
            *reinterpret_cast<uint4 *>(to) = make_uint4(0, 0, 0, 0);
    }
}

/* First factor, 16 rows from `row`, 16 columns from `column`; also the second factor of two blocks of 8 columns, from a
 * tile whose rows are what is summed over, if it is loaded transposed. */
template <int D> static __device__ __forceinline__ const bf16 *first_factor(const bf16 *tile, int row, int column)
{
    const int lane = threadIdx.x % WARP;

    return tile + place_in_tile<D>(row + lane % 16, column / CHUNK + lane / 16);
}

/* Second factor of two blocks of 8 columns, the tile's rows from `row`; summed over 16 columns of the tile. */
template <int D> static __device__ __forceinline__ const bf16 *second_factor(const bf16 *tile, int row, int column)
{
    const int lane = threadIdx.x % WARP;

    return tile + place_in_tile<D>(row + lane % 8 + lane / 16 * 8, column / CHUNK + lane / 8 % 2);
}

/* s[16 rows from `row` of x][rows of y] += x y^T; N blocks of 8 rows of y. */
template <int D, int N>
static __device__ __forceinline__ void add_scores(float (&s)[N][4], const bf16 *x, int row, const bf16 *y)
{
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        unsigned a[4];

        load_matrices(a, first_factor<D>(x, row, k));
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            unsigned b[4];

            load_matrices(b, second_factor<D>(y, n * 8, k));
            multiply(s[n], a, b[0], b[1]);
            multiply(s[n + 1], a, b[2], b[3]);
        }
    }
}

/* sum[16 x D] += p[16 x 8 N] y, rounded to bfloat16 as a factor; y has 8 N rows. */
template <int D, int N>
static __device__ __forceinline__ void add_rows(float (&sum)[D / 8][4], const float (&p)[N][4], const bf16 *y)
{
#pragma unroll
    for (int k = 0; k < N; k += 2) {
        const unsigned a[4] = {pair_of(p[k][0], p[k][1]), pair_of(p[k][2], p[k][3]), pair_of(p[k + 1][0], p[k + 1][1]),
                               pair_of(p[k + 1][2], p[k + 1][3])};

#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            unsigned b[4];

            load_transposed(b, first_factor<D>(y, k * 8, n * 8));
            multiply(sum[n], a, b[0], b[1]);
            multiply(sum[n + 1], a, b[2], b[3]);
        }
    }
}

/* to[row of this lane and the one 8 below][D] = factor * sum */
template <int D>
static __device__ __forceinline__ void put_rows(bf16 *to, int64_t ld, int row, int rows, const float (&sum)[D / 8][4],
                                                float factor0, float factor1)
{
    const int column = threadIdx.x % 4 * 2;

#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        if (row < rows)
            *reinterpret_cast<unsigned *>(to + row * ld + n * 8 + column) =
                pair_of(sum[n][0] * factor0, sum[n][1] * factor0);
        if (row + 8 < rows)
            *reinterpret_cast<unsigned *>(to + (row + 8) * ld + n * 8 + column) =
                pair_of(sum[n][2] * factor1, sum[n][3] * factor1);
    }
}

/* Over all threads of a block of WARPS warps; room: 2 * WARPS numbers of shared memory. */
template <int WARPS> static __device__ __forceinline__ void join_range(int *first, int *end, int *room)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        *first = min(*first, __shfl_xor_sync(ALL_LANES, *first, offset));
        *end = max(*end, __shfl_xor_sync(ALL_LANES, *end, offset));
    }
    if (lane == 0) {
        room[warp] = *first;
        room[WARPS + warp] = *end;
    }
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        *first = min(*first, room[w]);
        *end = max(*end, room[WARPS + w]);
    }
    __syncthreads();
}

/* Over the four lanes that share a row. */
static __device__ __forceinline__ float row_most(float x)
{
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}
static __device__ __forceinline__ float row_sum(float x)
{
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* ---- forward ---- */

constexpr int F_WARPS = 8, F_THREADS = F_WARPS * WARP, F_QUERIES = F_WARPS * 16, KEYS = 64;

/* Takes the scores of a tile of keys from `key` into row i of this lane's two: s becomes their exponentials, powers of
 * two from now on; most and total (of this lane's keys) and the row's sums are rescaled. */
template <int D>
static __device__ __forceinline__ void join_scores(float (&s)[KEYS / 8][4], int i, int key, int from, int to,
                                                   float scale, float &most, float &total, float (&sums)[D / 8][4])
{
    const bool is_whole = from <= key && key + KEYS <= to;
    float top = -CUDART_INF_F, base, keep;

#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int at = key + n * 8 + threadIdx.x % 4 * 2 + j;
            float &x = s[n][2 * i + j];

            x = is_whole || (at >= from && at < to) ? x * scale : -CUDART_INF_F;
            top = fmaxf(top, x);
        }
    top = fmaxf(most, row_most(top));
    base = top == -CUDART_INF_F ? 0 : top; /* nothing but -inf so far: exp2 gives zeros */
    keep = exp2_of(most - base);
    most = top;
    total *= keep;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        sums[n][2 * i] *= keep;
        sums[n][2 * i + 1] *= keep;
    }
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float &x = s[n][2 * i + j];

            x = exp2_of(x - base);
            total += x;
        }
}

template <int D>
static __global__ void __launch_bounds__(F_THREADS)
    tensor_forward(const struct attention a, const bf16 *q, const bf16 *k, const bf16 *v, bf16 *out, float *lse)
{
    __shared__ __align__(128) bf16 room[3][KEYS * D]; /* two tiles of keys, one of values; first of all the queries */
    const struct place p = place_of(blockIdx.x, 1, (int)((a.length + F_QUERIES - 1) / F_QUERIES), a.heads);
    const int64_t token = p.sequence * a.length, kv_head = p.head / (a.heads / a.kv_heads);
    const int32_t *starts = a.document_start ? a.document_start + token : NULL;
    const bf16 *queries = q + token * a.ld_q + p.head * D, *keys = k + token * a.ld_k + kv_head * D;
    const bf16 *values = v + token * a.ld_v + kv_head * D;
    const int length = (int)a.length, tile_row = p.tile * F_QUERIES, warp_row = threadIdx.x / WARP * 16;
    const int row = tile_row + warp_row + threadIdx.x % WARP / 4; /* this lane's, and row + 8 */
    const float scale = (float)a.scale * LOG2_E;
    unsigned of_queries[D / 16][4];
    float sums[D / 8][4] = {}, most[2] = {-CUDART_INF_F, -CUDART_INF_F}, total[2] = {0, 0};
    int from[2], to[2], first, end;

    for (int i = 0; i < 2; i++) visible_keys(a, starts, row + 8 * i, &from[i], &to[i]);
    first = min(from[0] < to[0] ? from[0] : length, from[1] < to[1] ? from[1] : length);
    end = max(from[0] < to[0] ? to[0] : 0, from[1] < to[1] ? to[1] : 0);
    join_range<F_WARPS>(&first, &end, reinterpret_cast<int *>(room[2]));

    fill_tile<D, F_QUERIES, F_THREADS>(room[0], queries, a.ld_q, tile_row, length);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < D / 16; i++) load_matrices(of_queries[i], first_factor<D>(room[0], warp_row, i * 16));
    __syncthreads();

    first = first / KEYS * KEYS;
    if (first < end) {
        fill_tile<D, KEYS, F_THREADS>(room[0], keys, a.ld_k, first, length);
        commit_copies();
        fill_tile<D, KEYS, F_THREADS>(room[2], values, a.ld_v, first, length);
        commit_copies();
    }
    for (int key = first, buffer = 0; key < end; key += KEYS, buffer ^= 1) {
        float s[KEYS / 8][4] = {};

        wait_copies<1>(); /* the keys; the values may be under way */
        __syncthreads();
#pragma unroll
        for (int i = 0; i < D / 16; i++)
#pragma unroll
            for (int n = 0; n < KEYS / 8; n += 2) {
                unsigned b[4];

                load_matrices(b, second_factor<D>(room[buffer], n * 8, i * 16));
                multiply(s[n], of_queries[i], b[0], b[1]);
                multiply(s[n + 1], of_queries[i], b[2], b[3]);
            }
        /* all have done with the other buffer before the last values came */
        if (key + KEYS < end) fill_tile<D, KEYS, F_THREADS>(room[buffer ^ 1], keys, a.ld_k, key + KEYS, length);
        commit_copies();
#pragma unroll
        for (int i = 0; i < 2; i++) join_scores<D>(s, i, key, from[i], to[i], scale, most[i], total[i], sums);
        wait_copies<1>(); /* the values; the next keys may be under way */
        __syncthreads();
        add_rows<D, KEYS / 8>(sums, s, room[2]);
        __syncthreads();
        if (key + KEYS < end) fill_tile<D, KEYS, F_THREADS>(room[2], values, a.ld_v, key + KEYS, length);
        commit_copies();
    }
    for (int i = 0; i < 2; i++) {
        const float all = row_sum(total[i]);

        if (lse && threadIdx.x % 4 == 0 && row + 8 * i < length)
            lse[(p.sequence * a.heads + p.head) * a.length + row + 8 * i] = most[i] * LN_2 + logf(all);
        total[i] = all == 0 ? 0 : 1 / all; /* a NaN stays one */
    }
    put_rows<D>(out + token * a.ld_out + p.head * D, a.ld_out, row, length, sums, total[0], total[1]);
}

/* Both passes want whole chunks in all rows. */
static bool fits(const struct attention *a)
{
    return a->d_qk == a->d_v && (a->d_qk == 64 || a->d_qk == 128) && a->ld_q % CHUNK == 0 && a->ld_k % CHUNK == 0 &&
           a->ld_v % CHUNK == 0 && a->ld_out % CHUNK == 0;
}

bool attention_tensor_forward(struct kernel_context *c, const struct attention *a, const bf16 *q, const bf16 *k,
                              const bf16 *v, bf16 *out, float *lse)
{
    const int64_t blocks = a->sequences * a->heads * ((a->length + F_QUERIES - 1) / F_QUERIES);

    if (!fits(a) || !are_aligned(q, k, v, out)) return false;
    launch(c, "attention_forward", a->d_qk == 64 ? tensor_forward<64> : tensor_forward<128>, blocks, F_THREADS, *a, q,
           k, v, out, lse);
    return true;
}

/* ---- backward ---- */

constexpr int B_WARPS = 4, B_THREADS = B_WARPS * WARP, B_ROWS = B_WARPS * 16, B_STEP = 32; /* the other side's rows */

/* s becomes the probability exp2(s - lse) where the key is seen, ds its score's gradient but for the scale. */
static __device__ __forceinline__ void find_gradient(float &s, float &ds, bool is_seen, float scale, float lse,
                                                     float delta)
{
    s = is_seen ? exp2_of(s * scale - lse) : 0;
    ds = is_seen ? s * (ds - delta) : 0;
}

template <int D> static __global__ void __launch_bounds__(B_THREADS) tensor_backward_queries(const backward<bf16> b)
{
    __shared__ __align__(128) bf16 own[2][B_ROWS * D], other[2][B_STEP * D]; /* q and dout; k and v */
    const struct attention a = b.a;
    const struct place p = place_of(blockIdx.x, 1, (int)((a.length + B_ROWS - 1) / B_ROWS), a.heads);
    const int64_t token = p.sequence * a.length, kv_head = p.head / (a.heads / a.kv_heads);
    const int64_t numbers = (p.sequence * a.heads + p.head) * a.length; /* lse and delta of the head */
    const int32_t *starts = a.document_start ? a.document_start + token : NULL;
    const bf16 *keys = b.k + token * a.ld_k + kv_head * D, *values = b.v + token * a.ld_v + kv_head * D;
    const int length = (int)a.length, tile_row = p.tile * B_ROWS, warp_row = threadIdx.x / WARP * 16;
    const int row = tile_row + warp_row + threadIdx.x % WARP / 4; /* this lane's, and row + 8 */
    const float scale = (float)a.scale * LOG2_E;
    float sums[D / 8][4] = {}, lse[2], delta[2];
    int from[2], to[2], first, end;

    for (int i = 0; i < 2; i++) {
        const int at = row + 8 * i;

        visible_keys(a, starts, at, &from[i], &to[i]);
        lse[i] = at < length ? b.lse[numbers + at] * LOG2_E : 0;
        delta[i] = at < length ? b.delta[numbers + at] : 0;
        if (lse[i] == -CUDART_INF_F) to[i] = 0;
    }
    first = min(from[0] < to[0] ? from[0] : length, from[1] < to[1] ? from[1] : length);
    end = max(from[0] < to[0] ? to[0] : 0, from[1] < to[1] ? to[1] : 0);
    join_range<B_WARPS>(&first, &end, reinterpret_cast<int *>(other[0]));
    fill_tile<D, B_ROWS, B_THREADS>(own[0], b.q + token * a.ld_q + p.head * D, a.ld_q, tile_row, length);
    fill_tile<D, B_ROWS, B_THREADS>(own[1], b.dout + token * a.ld_out + p.head * D, a.ld_out, tile_row, length);
    commit_copies();
    for (int key = first / B_STEP * B_STEP; key < end; key += B_STEP) {
        float s[B_STEP / 8][4] = {}, ds[B_STEP / 8][4] = {};

        __syncthreads(); /* the last keys have been used */
        fill_tile<D, B_STEP, B_THREADS>(other[0], keys, a.ld_k, key, length);
        fill_tile<D, B_STEP, B_THREADS>(other[1], values, a.ld_v, key, length);
        commit_copies();
        wait_copies<0>();
        __syncthreads();
        add_scores<D, B_STEP / 8>(s, own[0], warp_row, other[0]);
        add_scores<D, B_STEP / 8>(ds, own[1], warp_row, other[1]);
#pragma unroll
        for (int n = 0; n < B_STEP / 8; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int at = key + n * 8 + threadIdx.x % 4 * 2 + j % 2, i = j / 2;

                find_gradient(s[n][j], ds[n][j], at >= from[i] && at < to[i], scale, lse[i], delta[i]);
            }
        add_rows<D, B_STEP / 8>(sums, ds, other[0]);
    }
    wait_copies<0>(); /* where no key was seen, those of the queries are still under way */
    put_rows<D>(b.dq + token * a.ld_q + p.head * D, a.ld_q, row, length, sums, (float)a.scale, (float)a.scale);
}

template <int D> static __global__ void __launch_bounds__(B_THREADS) tensor_backward_keys(const backward<bf16> b)
{
    __shared__ __align__(128) bf16 own[2][B_ROWS * D], other[2][B_STEP * D]; /* k and v; q and dout */
    const struct attention a = b.a;
    const struct place p = place_of(blockIdx.x, 1, (int)((a.length + B_ROWS - 1) / B_ROWS), a.kv_heads);
    const int64_t token = p.sequence * a.length, group = a.heads / a.kv_heads;
    const int32_t *starts = a.document_start ? a.document_start + token : NULL;
    const int length = (int)a.length, tile_key = p.tile * B_ROWS, warp_key = threadIdx.x / WARP * 16;
    const int key = tile_key + warp_key + threadIdx.x % WARP / 4;                  /* this lane's, and key + 8 */
    const int64_t last = a.window > 0 ? tile_key + B_ROWS - 1 + a.window : length; /* queries from here on see no key */
    const float scale = (float)a.scale * LOG2_E;
    float of_keys[D / 8][4] = {}, of_values[D / 8][4] = {};

    fill_tile<D, B_ROWS, B_THREADS>(own[0], b.k + token * a.ld_k + p.head * D, a.ld_k, tile_key, length);
    fill_tile<D, B_ROWS, B_THREADS>(own[1], b.v + token * a.ld_v + p.head * D, a.ld_v, tile_key, length);
    commit_copies();
    for (int64_t head = p.head * group; head < (p.head + 1) * group; head++) {
        const bf16 *queries = b.q + token * a.ld_q + head * D, *douts = b.dout + token * a.ld_out + head * D;
        const int64_t numbers = (p.sequence * a.heads + head) * a.length;

        for (int row = a.causal ? tile_key : 0; row < length && row < last; row += B_STEP) {
            float s[B_STEP / 8][4] = {}, ds[B_STEP / 8][4] = {};

            __syncthreads(); /* the last queries have been used */
            fill_tile<D, B_STEP, B_THREADS>(other[0], queries, a.ld_q, row, length);
            fill_tile<D, B_STEP, B_THREADS>(other[1], douts, a.ld_out, row, length);
            commit_copies();
            wait_copies<0>();
            __syncthreads();
            add_scores<D, B_STEP / 8>(s, own[0], warp_key, other[0]);
            add_scores<D, B_STEP / 8>(ds, own[1], warp_key, other[1]);
#pragma unroll
            for (int n = 0; n < B_STEP / 8; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) { /* this lane's columns: queries */
                    const int at = row + n * 8 + threadIdx.x % 4 * 2 + j;
                    const float lse = at < length ? b.lse[numbers + at] * LOG2_E : -CUDART_INF_F;
                    const float delta = at < length ? b.delta[numbers + at] : 0;
                    int from, to;

                    visible_keys(a, starts, at, &from, &to);
                    if (lse == -CUDART_INF_F) to = 0;
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        find_gradient(s[n][2 * i + j], ds[n][2 * i + j], key + 8 * i >= from && key + 8 * i < to, scale,
                                      lse, delta);
                }
            add_rows<D, B_STEP / 8>(of_values, s, other[1]);
            add_rows<D, B_STEP / 8>(of_keys, ds, other[0]);
        }
    }
    wait_copies<0>(); /* where no query was there, those of the keys are still under way */
    put_rows<D>(b.dk + token * a.ld_k + p.head * D, a.ld_k, key, length, of_keys, (float)a.scale, (float)a.scale);
    put_rows<D>(b.dv + token * a.ld_v + p.head * D, a.ld_v, key, length, of_values, 1, 1);
}

bool attention_tensor_backward(struct kernel_context *c, const backward<bf16> &b)
{
    const int64_t tiles = b.a.sequences * ((b.a.length + B_ROWS - 1) / B_ROWS);
    const bool is_64 = b.a.d_qk == 64;

    if (!fits(&b.a) || !are_aligned(b.q, b.k, b.v, b.dout, b.dq, b.dk, b.dv)) return false;
    launch(c, "attention_backward", is_64 ? tensor_backward_queries<64> : tensor_backward_queries<128>,
           tiles * b.a.heads, B_THREADS, b);
    launch(c, "attention_backward", is_64 ? tensor_backward_keys<64> : tensor_backward_keys<128>, tiles * b.a.kv_heads,
           B_THREADS, b);
    return true;
}
