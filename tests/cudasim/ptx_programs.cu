/* SPDX-License-Identifier: MIT */
/* Small programs in CUDA C++ as people write them: what nvcc makes of them is right in the simulator. */
#include "ptx_values.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

static cudaStream_t stream;
static int wrong;

static void ok(cudaError_t e)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s\n", cudaGetErrorString(e));
    exit(1);
}

template <typename T> struct Array {
    T *device, *host;
    size_t n;
    explicit Array(size_t count) : n(count)
    {
        ok(cudaMallocHost((void **)&host, n * sizeof(T)));
        ok(cudaMalloc((void **)&device, n * sizeof(T)));
        memset((void *)host, 0, n * sizeof(T));
    }
    ~Array()
    {
        ok(cudaFreeHost(host));
        ok(cudaFree(device));
    }
    T *put()
    {
        ok(cudaMemcpyAsync(device, host, n * sizeof(T), cudaMemcpyHostToDevice, stream));
        return device;
    }
    void get()
    {
        ok(cudaMemcpyAsync(host, device, n * sizeof(T), cudaMemcpyDeviceToHost, stream));
        ok(cudaStreamSynchronize(stream));
    }
    T &operator[](size_t i) { return host[i]; }
};

static void expect(const char *what, int i, double value, double wanted, double tolerance = 0)
{
    bool is_right = value == wanted || (value != value && wanted != wanted) ||
                    std::fabs(value - wanted) <= tolerance * (std::fabs(wanted) + 1e-3);
    if (!is_right && wrong++ < 10) fprintf(stderr, "%s: value %d: %.9g, not %.9g\n", what, i, value, wanted);
}

static int finish()
{
    int n = wrong;
    ok(cudaStreamDestroy(stream));
    return n;
}
static void begin() { ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }

/* ---- functions, local arrays, structures, variables ---- */
struct Six {
    int a;
    float b[5];
};
__constant__ float table[8] = {1, 2, 3, 5, 8, 13, 21, 34};
__device__ unsigned counter = 5;
__device__ int zeros[3];
__host__ __device__ __noinline__ float twice_and(float a, int *p)
{
    *p += (int)a;
    return a * 2 + *p;
}
__host__ __device__ __noinline__ Six changed(Six s, int k)
{
    s.a += k;
    s.b[k % 5] = 3 + s.b[(k + 1) % 5];
    return s;
}
__host__ __device__ __noinline__ int nested(int x) { return x > 3 ? changed(Six{x, {1, 2, 3, 4, 5}}, x).a : x - 1; }
__host__ __device__ float functions_of(const float *t, float x, Six s, int i)
{
    int local[8], q;
    for (int k = 0; k < 8; k++) local[(k + i) % 8] = k * i;
    q = local[i & 7];
    float r = twice_and(x, &q) + t[q & 7];
    Six other = changed(s, (q & 0xff) + i);
    float sum = 0;
    for (int k = 0; k < 5; k++) sum += other.b[(k * i) % 5];
    return r + sum + other.a + nested(i % 7) + (i % 2 ? nested(i) : nested(i + 1));
}
__global__ void functions(float *out, const float *in, Six s)
{
    int i = threadIdx.x;
    out[i] = functions_of(table, in[i], s, i);
    if (i < 3) atomicAdd(&counter, (unsigned)(i + zeros[i]));
    if (i == 77) printf("no thread is here %d\n", i);
    if (i == 5) printf("five %d %s %.2f %c %lld%%\n", i, "text", 1.25, 'x', 1234567890123ll);
}
__global__ void read_counter(unsigned *out) { *out = counter; }
extern "C" int ptx_functions(void)
{
    begin();
    Array<float> in(64), out(64);
    Six s = {4, {1, 2, 3, 4, 5}};
    float t[8] = {1, 2, 3, 5, 8, 13, 21, 34};
    for (int i = 0; i < 64; i++) in[i] = i * 1.5f - 20;
    functions<<<1, 64, 0, stream>>>(out.device, in.put(), s);
    out.get();
    for (int i = 0; i < 64; i++) expect("functions", i, out[i], functions_of(t, in[i], s, i));
    Array<unsigned> count(1);
    read_counter<<<1, 1, 0, stream>>>(count.device);
    count.get();
    expect("counter", 0, count[0], 5 + 0 + 1 + 2);
    return finish();
}

/* ---- ways that part and meet ---- */
__host__ __device__ int collatz(unsigned n)
{
    int steps = 0;
    for (; n != 1; steps++) {
        if (steps > 500) break;
        if (n % 2) {
            n = 3 * n + 1;
            if (n % 16 == 0) continue;
            n += 0;
        } else
            n /= 2;
        switch (n % 7) {
        case 1: steps += 2; break;
        case 2: steps -= 1; /* fall through */
        case 5: steps += 1; break;
        default: break;
        }
    }
    return steps;
}
__global__ void diverging(int *out)
{
    int i = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int n = i * blockDim.x * blockDim.y * blockDim.z + thread;
    if (n % 5 == 3) {
        out[n] = -1;
        return;
    }
    out[n] = collatz(n + 1);
}
extern "C" int ptx_divergence(void)
{
    begin();
    dim3 grid(2, 3, 2), block(5, 3, 3);
    Array<int> out(12 * 45);
    diverging<<<grid, block, 0, stream>>>(out.device);
    out.get();
    for (int i = 0; i < 12 * 45; i++) expect("diverging", i, out[i], i % 5 == 3 ? -1 : collatz(i + 1));
    return finish();
}

/* ---- lanes of a warp together ---- */
__global__ void lanes(unsigned *out)
{
    unsigned l = threadIdx.x % 32, i = threadIdx.x, x = l * l + 3, all = 0xffffffffu;
    unsigned *o = out + 32 * i;
    o[0] = __shfl_sync(all, x, 5);
    o[1] = __shfl_sync(all, x, l + 3, 8);
    o[2] = __shfl_up_sync(all, x, 2);
    o[3] = __shfl_down_sync(all, x, 3, 16);
    o[4] = __shfl_xor_sync(all, x, 9);
    o[5] = __ballot_sync(all, l % 3 == 0);
    o[6] = __any_sync(all, l == 40) + 2 * __all_sync(all, l < 40) + 4 * __uni_sync(all, 1);
    o[7] = __match_any_sync(all, l % 5);
    int same;
    o[8] = __match_all_sync(all, 7, &same) + same;
    o[9] = __reduce_add_sync(all, x);
    o[10] = __reduce_max_sync(all, (int)l - 10);
    o[11] = __reduce_xor_sync(all, x);
    o[12] = __activemask();
    o[13] = __syncthreads_count(l % 4 == 1);
    o[14] = __syncthreads_or(i == 40) + 2 * __syncthreads_and(i < 64);
    if (l < 16)
        o[15] = __shfl_xor_sync(0xffffu, x, 1) + __activemask();
    else
        o[15] = __shfl_down_sync(0xffff0000u, x, 1);
    unsigned tile = l / 8 * 8;
    o[16] = __reduce_add_sync(0xffu << tile, x); /* four masks in one instruction */
    unsigned long long wide = __shfl_xor_sync(all, (unsigned long long)x << 33 | l, 1);
    o[17] = (unsigned)(wide >> 33) + (unsigned)wide;
    unsigned mask_lt;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask_lt));
    o[18] = mask_lt;
    o[19] = __popc(mask_lt) + blockDim.x;
}
extern "C" int ptx_lanes(void)
{
    begin();
    Array<unsigned> out(64 * 32);
    lanes<<<1, 64, 0, stream>>>(out.put());
    out.get();
    auto x = [](unsigned l) { return l * l + 3; };
    unsigned sum = 0, parity = 0;
    for (unsigned l = 0; l < 32; l++) {
        sum += x(l);
        parity ^= x(l);
    }
    for (unsigned i = 0; i < 64; i++) {
        unsigned l = i % 32, ballot = 0, match = 0, tile = 0;
        for (unsigned k = 0; k < 32; k++) {
            ballot |= (unsigned)(k % 3 == 0) << k;
            match |= (unsigned)(k % 5 == l % 5) << k;
            if (k / 8 == l / 8) tile += x(k);
        }
        unsigned wanted[20] = {x(5),
                               x(l / 8 * 8 + (l + 3) % 8),
                               l < 2 ? x(l) : x(l - 2),
                               l % 16 + 3 > 15 ? x(l) : x(l + 3),
                               x(l ^ 9),
                               ballot,
                               2 + 4,
                               match,
                               0xffffffffu + 1,
                               sum,
                               21,
                               parity,
                               0xffffffffu,
                               16,
                               1 + 2,
                               l < 16    ? x(l ^ 1) + 0xffff
                               : l == 31 ? x(31)
                                         : x(l + 1),
                               tile,
                               x(l ^ 1) + (l ^ 1),
                               (1u << l) - 1,
                               l + 64};
        for (int k = 0; k < 20; k++) expect("lanes", (int)(100 * k + i), out[32 * i + k], wanted[k]);
    }
    return finish();
}

/* ---- pairs of halves ---- */
__global__ void halves(float *out, const __nv_bfloat162 *x, const __half2 *y, const __nv_fp8x2_e4m3 *q)
{
    int i = threadIdx.x;
    float *o = out + 32 * i;
    __nv_bfloat162 a = x[i], b = x[(i + 1) % 32], c = x[(i + 2) % 32];
    __half2 d = y[i], e = y[(i + 1) % 32];
    auto put = [&](int k, float2 v) {
        o[k] = v.x;
        o[k + 1] = v.y;
    };
    put(0, __bfloat1622float2(__hadd2(a, b)));
    put(2, __bfloat1622float2(__hfma2(a, b, c)));
    put(4, __bfloat1622float2(__hmax2(a, b)));
    put(6, __half22float2(__hmul2(d, e)));
    put(8, __half22float2(__hsub2(d, e)));
    put(10, (float2)q[i]);
    o[12] = __hlt(a.x, b.x);
    o[13] = __hge(d.x, e.y);
    o[14] = __bfloat162float(__habs(a.y)) + __bfloat162float(__hneg(a.x));
    o[15] = __bfloat162float(__float2bfloat16_rn(o[0] * 1.001f));
}
extern "C" int ptx_halves(void)
{
    begin();
    Array<float> out(32 * 32);
    Array<__nv_bfloat162> x(32);
    Array<__half2> y(32);
    Array<__nv_fp8x2_e4m3> q(32);
    for (int i = 0; i < 32; i++) {
        x[i] = __floats2bfloat162_rn(i * 0.37f - 5, 3 - i * 1.77f);
        y[i] = __floats2half2_rn(i * 0.37f - 5, 3 - i * 1.77f);
        q[i] = __nv_fp8x2_e4m3(make_float2(i * 3.3f, -i * 0.01f));
    }
    halves<<<1, 32, 0, stream>>>(out.device, x.put(), y.put(), q.put());
    ok(cudaStreamSynchronize(stream));
    ok(cudaMemcpyAsync(out.host, out.device, 16 * 4, cudaMemcpyDeviceToHost, stream));
    for (int i = 0; i < 32; i++)
        ok(cudaMemcpyAsync(out.host + 32 * i, out.device + 32 * i, 16 * 4, cudaMemcpyDeviceToHost, stream));
    ok(cudaStreamSynchronize(stream));
    for (int i = 0; i < 32; i++) {
        float2 a = __bfloat1622float2(x[i]), b = __bfloat1622float2(x[(i + 1) % 32]),
               c = __bfloat1622float2(x[(i + 2) % 32]);
        float2 d = __half22float2(y[i]), e = __half22float2(y[(i + 1) % 32]), f = (float2)q[i];
        auto bf = [](double v) { return __bfloat162float(__double2bfloat16(v)); };
        auto hf = [](double v) { return __half2float(__double2half(v)); };
        float sum = bf((double)a.x + b.x);
        float wanted[16] = {sum,
                            bf((double)a.y + b.y),
                            bf(fma((double)a.x, b.x, c.x)),
                            bf(fma((double)a.y, b.y, c.y)),
                            fmaxf(a.x, b.x),
                            fmaxf(a.y, b.y),
                            hf((double)d.x * e.x),
                            hf((double)d.y * e.y),
                            hf((double)d.x - e.x),
                            hf((double)d.y - e.y),
                            f.x,
                            f.y,
                            a.x < b.x ? 1.f : 0.f,
                            d.x >= e.y ? 1.f : 0.f,
                            fabsf(a.y) - a.x,
                            bf(sum * 1.001f)};
        for (int k = 0; k < 16; k++) expect("halves", 100 * k + i, out[32 * i + k], wanted[k]);
    }
    return finish();
}

/* ---- atomics ---- */
__global__ void atomics(unsigned *u, float *f, double *d, unsigned long long *l, __nv_bfloat162 *h, float2 *v)
{
    __shared__ unsigned s;
    __shared__ float sf;
    if (!threadIdx.x) s = 0, sf = 0;
    __syncthreads();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&u[0], i);
    atomicMax(&u[1], i);
    atomicMin((int *)&u[2], -(int)i);
    atomicOr(&u[3], 1u << i % 32);
    atomicAnd(&u[4], ~(1u << i % 8));
    atomicXor(&u[5], i);
    atomicInc(&u[6], 9);
    atomicExch(&u[7], 42u);
    for (unsigned old = 0, seen; (seen = atomicCAS(&u[8], old, old + 2)) != old;) old = seen;
    atomicDec(&u[9], 100);
    atomicAdd(&f[0], 0.5f);
    atomicAdd(&d[0], 0.25);
    atomicAdd(&l[0], 1ull << 32);
    atomicAdd(&h[0], __floats2bfloat162_rn(1, 2));
    atomicAdd(&v[0], make_float2(1, 3));
    atomicAdd(&s, 1);
    atomicAdd(&sf, 2.0f);
    __syncthreads();
    if (!threadIdx.x) atomicAdd(&u[10], s + (unsigned)sf);
}
extern "C" int ptx_atomics(void)
{
    begin();
    Array<unsigned> u(16);
    Array<float> f(1);
    Array<double> d(1);
    Array<unsigned long long> l(1);
    Array<__nv_bfloat162> h(1);
    Array<float2> v(1);
    u[4] = 0xffff;
    const int n = 96;
    atomics<<<3, 32, 0, stream>>>(u.put(), f.put(), d.put(), l.put(), h.put(), v.put());
    u.get(), f.get(), d.get(), l.get(), h.get(), v.get();
    unsigned parity = 0;
    for (unsigned i = 0; i < n; i++) parity ^= i;
    double wanted[11] = {
        n * (n - 1) / 2, n - 1,     (double)(unsigned)-(n - 1), 0xffffffffu, 0xff00, (double)parity, n % 10, 42, 2 * n,
        101 - 96 + 0,    3 * 32 * 3};
    for (int k = 0; k < 11; k++) expect("atomics", k, u[k], wanted[k]);
    expect("atomic float", 0, f[0], n * 0.5);
    expect("atomic double", 0, d[0], n * 0.25);
    expect("atomic wide", 0, (double)l[0], n * 4294967296.0);
    expect("atomic pair", 0, __bfloat1622float2(h[0]).x + __bfloat1622float2(h[0]).y, 3 * n);
    expect("atomic vector", 0, v[0].x + v[0].y, 4 * n);
    return finish();
}

/* ---- tensor cores, with copies that are waited for ---- */
template <typename T> __device__ void load_tile(T *to, const T *from, int n)
{
    for (int i = threadIdx.x * 16 / sizeof(T); i < n; i += blockDim.x * 16 / sizeof(T))
        __pipeline_memcpy_async(to + i, from + i, 16);
}
__global__ void products(float *out, const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *ta, const float *tb)
{
    __shared__ __align__(16) __nv_bfloat16 sa[16 * 16], sb[8 * 16];
    load_tile(sa, a, 256);
    __pipeline_commit();
    load_tile(sb, b, 128);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    unsigned l = threadIdx.x, x[4], y[2], z[2];
    unsigned from = (unsigned)__cvta_generic_to_shared(sa + (l % 16) * 16 + (l / 16) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(from));
    from = (unsigned)__cvta_generic_to_shared(sb + (l % 8) * 16 + (l / 8 % 2) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(from));
    float d[4] = {1, 1, 1, 1};
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    /* A(:, :8) A(:8, :8), the second by ldmatrix.trans of the same tile */
    from = (unsigned)__cvta_generic_to_shared(sa + (l % 8) * 16);
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(z[0]) : "r"(from));
    float e[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
                 : "+f"(e[0]), "+f"(e[1]), "+f"(e[2]), "+f"(e[3])
                 : "r"(x[0]), "r"(x[1]), "r"(z[0]));
    unsigned g = l / 4, t = l % 4, w[4], v[2];
    for (int r = 0; r < 4; r++) w[r] = __float_as_uint(ta[(g + 8 * (r & 1)) * 8 + t + 4 * (r >> 1)]);
    for (int r = 0; r < 2; r++) v[r] = __float_as_uint(tb[g * 8 + t + 4 * r]);
    float f[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])
                 : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(v[0]), "r"(v[1]));
    for (int r = 0; r < 4; r++) {
        int at = (g + 8 * (r >> 1)) * 8 + 2 * t + (r & 1);
        out[at] = d[r];
        out[128 + at] = e[r];
        out[256 + at] = f[r];
    }
}
extern "C" int ptx_products(void)
{
    begin();
    Array<float> out(384), ta(128), tb(64);
    Array<__nv_bfloat16> a(256), b(128);
    for (int i = 0; i < 256; i++) a[i] = __float2bfloat16((i * 37 % 64) * 0.125f - 3);
    for (int i = 0; i < 128; i++) b[i] = __float2bfloat16((i * 23 % 64) * 0.25f - 7);
    for (int i = 0; i < 128; i++) ta[i] = (i * 11 % 32) * 0.5f;
    for (int i = 0; i < 64; i++) tb[i] = (i * 7 % 32) - 16;
    products<<<1, 32, 0, stream>>>(out.device, a.put(), b.put(), ta.put(), tb.put());
    out.get();
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            double d = 1, e = 0, f = 0;
            for (int k = 0; k < 16; k++) d += (double)__bfloat162float(a[i * 16 + k]) * __bfloat162float(b[j * 16 + k]);
            for (int k = 0; k < 8; k++) e += (double)__bfloat162float(a[i * 16 + k]) * __bfloat162float(a[k * 16 + j]);
            for (int k = 0; k < 8; k++) f += (double)ta[i * 8 + k] * tb[j * 8 + k];
            expect("bf16 product", i * 8 + j, out[i * 8 + j], d, 1e-6);
            expect("bf16 product of a transposed tile", i * 8 + j, out[128 + i * 8 + j], e, 1e-6);
            expect("tf32 product", i * 8 + j, out[256 + i * 8 + j], f, 1e-6);
        }
    return finish();
}

/* ---- shared memory: static of a template, dynamic, of functions; the device's mathematics ---- */
template <int K> __device__ float sum_of_block(float x)
{
    __shared__ float part[32];
    for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x * K;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : 0;
    for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
    return x;
}
extern __shared__ double dynamic[];
__global__ void shared(float *out, const float *in)
{
    int i = threadIdx.x;
    dynamic[i] = in[i] * 2.0;
    float a = sum_of_block<1>(in[i]), b = sum_of_block<3>(1);
    float4 *quads = (float4 *)(dynamic + blockDim.x);
    __syncthreads();
    if (i < 8) quads[i] = make_float4(i, 2 * i, 3 * i, 4 * i);
    __syncthreads();
    float4 q = quads[i % 8];
    out[i] = a + b + (float)dynamic[blockDim.x - 1 - i] + q.x + q.y + q.z + q.w;
    out[blockDim.x + i] = sinf(in[i]) + powf(fabsf(in[i]), 0.3f) + expf(-in[i] * 0.1f) + erff(in[i]) + fmodf(in[i], 3) +
                          tanhf(in[i]) + logf(fabsf(in[i]) + 1) + (float)(exp(in[i] * 0.01) + cbrt((double)in[i]));
}
extern "C" int ptx_shared(void)
{
    begin();
    Array<float> in(128), out(256);
    float sum = 0;
    for (int i = 0; i < 128; i++) sum += in[i] = i * 0.25f - 7;
    shared<<<1, 128, 128 * 8 + 8 * 16, stream>>>(out.device, in.put());
    out.get();
    for (int i = 0; i < 128; i++) {
        double x = in[i];
        expect("shared", i, out[i], sum + 3 * 128 + 2 * in[127 - i] + 10 * (i % 8));
        expect("mathematics", i, out[128 + i],
               sin(x) + pow(fabs(x), 0.3) + exp(-x * 0.1) + erf(x) + fmod(x, 3) + tanh(x) + log(fabs(x) + 1) +
                   exp(x * 0.01) + cbrt(x),
               1e-5);
    }
    return finish();
}
