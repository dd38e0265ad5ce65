// Functions that are not inlined, and that ask which block they run in; recursion, pointers, templates, variables.
// launch: calls_where <<<4x3, 32>>> (zero 1536)
// launch: calls_two_deep <<<4x3, 32>>> (zero 1536, bits 1536)
// launch: calls_with_barrier <<<5, 64>>> (zero 1280, bits 1280)
// launch: calls_in_divergence <<<5, 64>>> (zero 1280, bits 1280)
// launch: recursive <<<4, 32>>> (zero 512, below 9 512)
// launch: pointers <<<4, 32>>> (zero 512, bits 512)
// launch: struct_argument <<<4, 32>>> (zero 512, bytes =48)
// launch: large_argument <<<4, 32>>> (zero 512, bytes =3600)
// launch: globals <<<5, 64>>> (bits 1280)
// launch: constants <<<5, 64>>> (zero 1280)
// launch: counters <<<5, 64>>> (bits 1280)
// launch: local_array <<<5, 64>>> (zero 1280, bits 1280)
// launch: switch_table <<<5, 64>>> (zero 1280, bits 1280)
// launch: _Z9templatedIjLi3EEvPT_PKS0_ <<<5, 64>>> (zero 1280, bits 1280)
// launch: _Z9templatedIfLi5EEvPT_PKS0_ <<<5, 64>>> (zero 1280, f32 1280)
// launch: bounded <<<5, 64>>> (zero 1280, bits 1280)
// launch: assembly <<<5x2, 64>>> (zero 2560)
// launch: volatile_memory <<<5, 64>>> (zero 1280, bits 1280)
// launch: class_methods <<<3x3, 32>>> (zero 1152)
__device__ __noinline__ unsigned where() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
extern "C" __global__ void calls_where(unsigned *out) { out[where() * blockDim.x + threadIdx.x] = where() * 3 + threadIdx.x; }
__device__ __noinline__ unsigned outer(unsigned a) { return a % 3 == 0 ? where() : a ^ where(); }
extern "C" __global__ void calls_two_deep(unsigned *out, const unsigned *in) {
    unsigned i = where() * blockDim.x + threadIdx.x;
    out[i] = outer(in[i]) + outer(in[i] / 2);
}
__device__ __noinline__ unsigned swapped(unsigned v) {
    __shared__ unsigned a[64];
    a[threadIdx.x] = v;
    __syncthreads();
    unsigned w = a[63 - threadIdx.x];
    __syncthreads();
    return w + blockIdx.x;
}
extern "C" __global__ void calls_with_barrier(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    out[i] = swapped(in[i]) * 3 + swapped(in[i] + 1);
}
extern "C" __global__ void calls_in_divergence(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    if (in[i] & 1) out[i] = outer(in[i]);
    else if (in[i] & 2) out[i] = where();
}
__device__ __noinline__ unsigned down(unsigned n) { return n == 0 ? blockIdx.x : down(n - 1) * 3 + n; }
extern "C" __global__ void recursive(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 32 + threadIdx.x;
    out[i] = down(in[i]);
}
__device__ __noinline__ unsigned twice(unsigned a) { return a * 2 + blockIdx.x; }
__device__ __noinline__ unsigned thrice(unsigned a) { return a * 3; }
__device__ unsigned (*table[2])(unsigned) = {twice, thrice};
extern "C" __global__ void pointers(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 32 + threadIdx.x;
    out[i] = table[in[i] & 1](in[i]);
}
struct Settings { unsigned a[8]; float b; double c; };
extern "C" __global__ void struct_argument(unsigned *out, Settings s) {
    unsigned i = blockIdx.x * 32 + threadIdx.x;
    out[i] = s.a[i % 8] + __float_as_uint(s.b) + (unsigned)__double_as_longlong(s.c);
}
struct Large { unsigned a[900]; };
extern "C" __global__ void large_argument(unsigned *out, Large s) {
    unsigned i = blockIdx.x * 32 + threadIdx.x;
    out[i] = s.a[i * 7] ^ s.a[899 - i];
}
__device__ unsigned sum_of_all;
__device__ unsigned squares[16] = {0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144, 169, 196, 225};
__device__ unsigned *first_square = squares + 1;
static __device__ unsigned hidden = 7;
extern "C" __global__ void globals(unsigned *data) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    atomicAdd(&sum_of_all, data[i]);
    atomicXor(&hidden, data[i] * 3);
    data[i] += squares[data[i] % 16] + *first_square;
}
__constant__ unsigned primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__constant__ float scale = 1.5f;
extern "C" __global__ void constants(float *out) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    out[i] = __fmul_rn(scale, (float)(primes[i % 8] * primes[blockIdx.x % 8] + primes[3]));
}
__device__ unsigned long long visits;
__device__ unsigned per_block[16];
extern "C" __global__ void counters(unsigned *data) {
    atomicAdd(&visits, 1ull);
    atomicAdd(&per_block[blockIdx.x], 1);
    data[blockIdx.x * 64 + threadIdx.x] ^= blockIdx.x;
}
extern "C" __global__ void local_array(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x, a[20];
    for (int k = 0; k < 20; k++) a[k] = k * in[i];
    for (int k = 0; k < 20; k++) a[in[i] >> k & 15] += a[(in[i] + k) % 20];
    unsigned s = 0;
    for (int k = 0; k < 20; k++) s = s * 31 + a[k];
    out[i] = s;
}
extern "C" __global__ void switch_table(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x, v = in[i];
    switch (v % 12) {
    case 0: v = v / 3; break;
    case 1: v = v * 17 + blockIdx.x; break;
    case 2: v = __clz(v); break;
    case 3: v = v << 3 | v >> 29; break;
    case 4: v = v % 1000 * gridDim.x; break;
    case 5: v = ~v; break;
    case 6: v = __popc(v) * 77; break;
    case 7: v = v - 12345; break;
    case 8: v = __byte_perm(v, i, 0x5140); break;
    case 9: v = __umulhi(v, 0x9e3779b9); break;
    case 10: v = v & 0xff00ff; break;
    default: v = i;
    }
    out[i] = v;
}
template <typename T, int N> __global__ void templated(T *out, const T *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    T best = in[i];
    for (int k = 1; k < N; k++) best = max(best, in[(i + k * 13) % 320]);
    out[i] = best;
}
template __global__ void templated<unsigned, 3>(unsigned *, const unsigned *);
template __global__ void templated<float, 5>(float *, const float *);
extern "C" __global__ void __launch_bounds__(64, 4) bounded(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    unsigned v = in[i];
#pragma unroll 1
    for (unsigned k = 0; k < (v & 15); k++) v = v * 69069 + k;
    out[i] = v;
}
extern "C" __global__ void assembly(unsigned *out) {
    unsigned x, y, n;
    asm volatile("mov.u32 %0, %%ctaid.x; mov.u32 %1, %%ctaid.y; mov.u32 %2, %%nctaid.x;" : "=r"(x), "=r"(y), "=r"(n));
    out[(y * n + x) * 64 + threadIdx.x] = x * 100 + y;
}
extern "C" __global__ void volatile_memory(volatile unsigned *out, const volatile unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    out[i] = in[i];
    __threadfence();
    out[i] = out[i] + in[i];
}
struct Shape {
    unsigned w;
    __device__ __noinline__ unsigned at(unsigned x, unsigned y) const { return y * w + x + blockIdx.z; }
};
extern "C" __global__ void class_methods(unsigned *out) {
    Shape s{gridDim.x};
    out[s.at(blockIdx.x, blockIdx.y) * 32 + threadIdx.x] = s.at(threadIdx.x, 3);
}
