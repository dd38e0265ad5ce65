// Floating point of all widths, matrix units, asynchronous copies, printing and allocating.
// launch: axpy <<<5, 64>>> (f32 1280, f32 1280, f32 =1.5)
// launch: axpy_double <<<5, 64>>> (f64 2560, f64 2560, f64 =0.75)
// launch: polynomial <<<5, 64>>> (zero 1280, f32 1280)
// launch: transcendental <<<5, 64>>> (zero 1280, f32 1280)
// launch: nbody <<<4, 32>>> (zero 2048, f32 2048, u32 =128)
// launch: convolution <<<3x3, 8x8>>> (zero 2304, f32 2704, f32 36)
// launch: mandelbrot <<<4x4, 8x8>>> (zero 4096)
// launch: halves <<<5, 64>>> (zero 640, f16 640, f16 640)
// launch: half_pairs <<<5, 64>>> (zero 1280, f16 1280, f16 1280)
// launch: wmma_tiles <<<3, 32>>> (zero 3072, f16 1536, f16 1536)
// launch: integers_64 <<<5, 64>>> (zero 2560, bits 2560)
// launch: integer_division <<<5, 64>>> (zero 1280, bits 1280)
// launch: printing <<<3, 4>>> (zero 48)
// launch: allocating <<<3, 32>>> (zero 384)
// launch: monte_carlo <<<6, 64>>> (zero 4, u32 =99)
// launch: float_atomics <<<5, 64>>> (zero 64, bits 1280)
#include <cuda_fp16.h>
#include <mma.h>
#if !defined(__CUDACC_RTC__)
#include <cstdio>
#endif
extern "C" __global__ void axpy(float *y, const float *x, float a) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    y[i] = a * x[i] + y[i];
}
extern "C" __global__ void axpy_double(double *y, const double *x, double a) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    y[i] = a * x[i] + y[i];
}
extern "C" __global__ void polynomial(float *y, const float *x) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    float v = x[i];
    y[i] = ((0.3f * v + 1.7f) * v - 2.0f) * v + v * v * 0.5f - v;
}
extern "C" __global__ void transcendental(float *y, const float *x) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    y[i] = sinf(x[i]) + expf(x[i]) * logf(fabsf(x[i]) + 1.0f) + sqrtf(fabsf(x[i])) / (1.0f + x[i] * x[i]);
}
extern "C" __global__ void nbody(float4 *force, const float4 *body, unsigned n) {
    __shared__ float4 tile[32];
    unsigned i = blockIdx.x * 32 + threadIdx.x;
    float4 me = body[i];
    float fx = 0, fy = 0, fz = 0;
    for (unsigned k = 0; k < n; k += 32) {
        tile[threadIdx.x] = body[k + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 32; j++) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), w = tile[j].w * inverse * inverse * inverse;
            fx += dx * w;
            fy += dy * w;
            fz += dz * w;
        }
        __syncthreads();
    }
    force[i] = make_float4(fx, fy, fz, 0);
}
extern "C" __global__ void convolution(float *out, const float *in, const float *kernel) {
    unsigned x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    float sum = 0;
    for (int j = 0; j < 3; j++)
        for (int i = 0; i < 3; i++) sum += kernel[j * 3 + i] * in[(y + j) * 26 + x + i];
    out[y * 24 + x] = sum;
}
extern "C" __global__ void mandelbrot(unsigned *out) {
    unsigned x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, n = 0;
    float cr = x / 16.0f - 1.5f, ci = y / 16.0f - 1.0f, r = 0, i = 0;
    while (n < 50 && r * r + i * i < 4.0f) {
        float t = r * r - i * i + cr;
        i = 2 * r * i + ci;
        r = t;
        n++;
    }
    out[y * 32 + x] = n;
}
extern "C" __global__ void halves(__half *out, const __half *a, const __half *b) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    out[i] = __hadd(__hmul(a[i], b[i]), __float2half(0.5f));
}
extern "C" __global__ void half_pairs(__half2 *out, const __half2 *a, const __half2 *b) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    out[i] = __hfma2(a[i], b[i], a[i]);
}
extern "C" __global__ void wmma_tiles(float *c, const __half *a, const __half *b) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    fill_fragment(fc, 0.0f);
    load_matrix_sync(fa, a + blockIdx.x * 256, 16);
    load_matrix_sync(fb, b + blockIdx.x * 256, 16);
    mma_sync(fc, fa, fb, fc);
    store_matrix_sync(c + blockIdx.x * 256, fc, 16, mem_row_major);
}
extern "C" __global__ void integers_64(unsigned long long *out, const unsigned long long *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    out[i] = in[i] / (in[i] >> 40 | 1) + in[i] % 1000003 * blockIdx.x;
}
extern "C" __global__ void integer_division(int *out, const int *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    int d = (in[i] >> 20) | 1;
    out[i] = in[i] / d + in[i] % d + in[i] / 7;
}
extern "C" __global__ void printing(unsigned *out) {
    out[blockIdx.x * 4 + threadIdx.x] = blockIdx.x;
    if (threadIdx.x == 0) printf("block %u of %u\n", blockIdx.x, gridDim.x);
}
extern "C" __global__ void allocating(unsigned *out) {
    unsigned *p = (unsigned *)malloc(64);
    for (int k = 0; k < 16; k++) p[k] = k * blockIdx.x;
    unsigned s = 0;
    for (int k = 0; k < 16; k++) s += p[k] * threadIdx.x;
    free(p);
    out[blockIdx.x * 32 + threadIdx.x] = s;
}
extern "C" __global__ void monte_carlo(unsigned *hits, unsigned seed) {
    unsigned v = seed ^ (blockIdx.x * 64 + threadIdx.x) * 2654435761u, n = 0;
    for (int k = 0; k < 20; k++) {
        v = v * 1664525 + 1013904223;
        float x = (v >> 8) * (1.0f / 16777216.0f);
        v = v * 1664525 + 1013904223;
        float y = (v >> 8) * (1.0f / 16777216.0f);
        n += fmaf(x, x, __fmul_rn(y, y)) < 1.0f;
    }
    atomicAdd(hits, n);
}
extern "C" __global__ void float_atomics(float *sums, const unsigned *in) {
    atomicAdd(&sums[threadIdx.x % 16], (float)(in[blockIdx.x * 64 + threadIdx.x] % 64));
}
