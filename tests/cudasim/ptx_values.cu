/* SPDX-License-Identifier: MIT */
/*
 * Every group of PTX instructions, against the host's arithmetic. An instruction is one line: its text and what it
 * computes; the host's compiler makes one, nvcc the other. Each test returns how many values are wrong, and names them.
 */
#include "ptx_values.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

enum { N = 256 };

static cudaStream_t stream;

static void ok(cudaError_t e)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s\n", cudaGetErrorString(e));
    exit(1);
}

/* Device memory for a test, with what the host gave; released at the end of the scope. */
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
    void put() { ok(cudaMemcpyAsync(device, host, n * sizeof(T), cudaMemcpyHostToDevice, stream)); }
    void get()
    {
        ok(cudaMemcpyAsync(host, device, n * sizeof(T), cudaMemcpyDeviceToHost, stream));
        ok(cudaStreamSynchronize(stream));
    }
};

static uint64_t random_state = 1;
static uint64_t random_bits()
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return random_state >> 29 ^ random_state << 7;
}

/* Values at the ends of ranges first, then whatever. */
static uint32_t word(int i)
{
    static const uint32_t special[] = {0,  1,  0xffffffff, 0x80000000, 0x7fffffff, 31,
                                       32, 33, 0xff,       0x8000,     0xffff,     0x10000};
    return i % 16 < 12 && i < 192 ? special[(i % 16 + i / 16) % 12] : (uint32_t)random_bits();
}
static uint64_t wide(int i)
{
    return i % 3 ? random_bits() ^ random_bits() << 32 : (uint64_t)(int64_t)(int32_t)word(i);
}
static float real(int i)
{
    static const float special[] = {0, -0.0f, 1, -1, INFINITY, -INFINITY, NAN, 1e-40f, 3e38f, -2.5f, 0.5f, 1.5f};
    float x = (float)((double)(int64_t)(random_bits() & 0xffffff) / (1 << 18) - 32);
    return i % 4 ? x : special[i / 4 % 12];
}

template <typename T> T input(int i);
template <> uint32_t input<uint32_t>(int i) { return word(i); }
template <> int32_t input<int32_t>(int i) { return (int32_t)word(i); }
template <> uint64_t input<uint64_t>(int i) { return wide(i); }
template <> int64_t input<int64_t>(int i) { return (int64_t)wide(i); }
template <> uint16_t input<uint16_t>(int i) { return (uint16_t)word(i); }
template <> int16_t input<int16_t>(int i) { return (int16_t)word(i); }
template <> float input<float>(int i) { return real(i); }
template <> double input<double>(int i) { return real(i) * 1.000000001; }

/* Equal, or both not a number, or as near as an approximation is. */
template <typename T> static bool is_same(T a, T b, double) { return a == b; }
static bool near(double a, double b, double tolerance)
{
    if (a != a || b != b) return a != a && b != b;
    return a == b || std::fabs(a - b) <= tolerance * std::fabs(b) + tolerance * 1e-6;
}
template <> bool is_same<float>(float a, float b, double tolerance) { return near(a, b, tolerance); }
template <> bool is_same<double>(double a, double b, double tolerance) { return near(a, b, tolerance); }

template <typename R, typename A, typename B, typename C, typename F>
static int compare(const char *name, void (*kernel)(R *, const A *, const B *, const C *), F expected, double tolerance)
{
    Array<R> r(N);
    Array<A> a(N);
    Array<B> b(N);
    Array<C> c(N);
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        a.host[i] = input<A>(i);
        b.host[i] = input<B>(i * 7 + 3);
        c.host[i] = input<C>(i * 5 + 1);
    }
    a.put();
    b.put();
    c.put();
    kernel<<<2, N / 2, 0, stream>>>(r.device, a.device, b.device, c.device);
    r.get();
    for (int i = 0; i < N; i++) {
        R e = (R)expected(a.host[i], b.host[i], c.host[i]);
        if (!is_same<R>(r.host[i], e, tolerance) && wrong++ < 3)
            fprintf(stderr, "%s: value %d: %.17g, not %.17g, of %.17g %.17g %.17g\n", name, i, (double)r.host[i],
                    (double)e, (double)a.host[i], (double)b.host[i], (double)c.host[i]);
    }
    return wrong;
}

/* constraints of inline assembly by type */
#define L_u16 "h"
#define L_s16 "h"
#define L_u32 "r"
#define L_s32 "r"
#define L_u64 "l"
#define L_s64 "l"
#define L_f32 "f"
#define L_f64 "d"
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
typedef int8_t s8;
typedef uint8_t u8;
typedef float f32;
typedef double f64;
#define INSN(id, R, A, B, C, text, value, tolerance)                                                                   \
    __global__ void k_##id(R *r, const A *as, const B *bs, const C *cs)                                                \
    {                                                                                                                  \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                 \
        R x;                                                                                                           \
        asm volatile("{.reg .pred p, q; .reg .b32 t; " text "}"                                                        \
                     : "=" L_##R(x)                                                                                    \
                     : L_##A(as[i]), L_##B(bs[i]), L_##C(cs[i]));                                                      \
        r[i] = x;                                                                                                      \
    }                                                                                                                  \
    static int t_##id()                                                                                                \
    {                                                                                                                  \
        return compare<R, A, B, C>(                                                                                    \
            text, k_##id,                                                                                              \
            [](A a, B b, C c) {                                                                                        \
                (void)a, (void)b, (void)c;                                                                             \
                return value;                                                                                          \
            },                                                                                                         \
            tolerance);                                                                                                \
    }
#define PLAIN(id, T, text, value) INSN(id, T, T, T, T, text, value, 0)
#define SHIFT(id, T, text, value) INSN(id, T, T, u32, u32, text, value, 0)
#define TO(id, R, A, text, value) INSN(id, R, A, A, A, text, value, 0)
#define ABOUT(id, T, text, value, tolerance) INSN(id, T, T, T, T, text, value, tolerance)
/* a comparison: 1 or 0 */
#define COMPARE(id, T, text, value) INSN(id, u32, T, T, T, text " selp.u32 %0, 1, 0, p;", (value) ? 1 : 0, 0)

static s64 div_s64(s64 a, s64 b) { return b == -1 ? (s64)(0 - (u64)a) : b ? a / b : -1; }
static s32 div_s32(s32 a, s32 b) { return (s32)div_s64(a, b); }
static u64 bits(u64 x, unsigned from, unsigned n)
{
    return from > 63 ? 0 : x >> from & (n > 63 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1);
}
static u32 float_bits(float x)
{
    u32 b;
    memcpy(&b, &x, 4);
    return b;
}
static float bf16_value(u16 x)
{
    u32 b = (u32)x << 16;
    float f;
    memcpy(&f, &b, 4);
    return f;
}
/* To a whole number as the device does: towards zero, to the ends of the range, 0 for what is none. */
template <typename T> static T clamped(double x, double least, double most)
{
    return x != x ? 0 : x <= least ? (T)least : x >= most ? (T)most : (T)x;
}
#include "ptx_values.inc"

#undef INSN
#define INSN(id, R, A, B, C, text, value, tolerance) wrong += t_##id();
extern "C" int ptx_values_scalar(void)
{
    int wrong = 0;
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
#include "ptx_values.inc"
    ok(cudaStreamDestroy(stream));
    return wrong;
}
