// One warp's matrix products by mma in PTX: half, bfloat16, tf32, bytes and doubles, with fragments laid out by hand.
#include "sample.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Whole numbers from -4 to 4 at a place of either matrix.
__host__ __device__ int left_value(int row, int k) { return (row * 7 + k * 5) % 9 - 4; }
__host__ __device__ int right_value(int k, int column) { return (k * 3 + column * 11) % 9 - 4; }

__device__ unsigned halves(float low, float high) {
    return __half_as_ushort(__float2half(low)) | __half_as_ushort(__float2half(high)) << 16;
}

__device__ unsigned bfloats(float low, float high) {
    return __bfloat16_as_ushort(__float2bfloat16(low)) | __bfloat16_as_ushort(__float2bfloat16(high)) << 16;
}

// Elements of A and B with 16 bits: two columns of k beside each other, and eight further on.
template <class Pack>
__device__ void fragments_of_16(Pack pack, unsigned (&a)[4], unsigned (&b)[2]) {
    const int group = threadIdx.x / 4, pair = threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; i++) {
        const int row = group + i % 2 * 8, k = pair + i / 2 * 8;
        a[i] = pack(left_value(row, k), left_value(row, k + 1));
    }
    for (int i = 0; i < 2; i++) b[i] = pack(right_value(pair + i * 8, group), right_value(pair + i * 8 + 1, group));
}

template <class T>
__device__ void store_16x8(T* out, const T (&d)[4]) {
    const int group = threadIdx.x / 4, pair = threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; i++) out[(group + i / 2 * 8) * 8 + pair + i % 2] = d[i];
}

__global__ void multiply_half(float* out) {
    unsigned a[4], b[2];
    float d[4];
    fragments_of_16(halves, a, b);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(1.0f));
    store_16x8(out, d);
}

__global__ void multiply_bfloat(float* out) {
    unsigned a[4], b[2];
    float d[4];
    fragments_of_16(bfloats, a, b);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(1.0f));
    store_16x8(out, d);
}

__device__ unsigned tf32(float value) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

__global__ void multiply_tf32(float* out) {
    const int group = threadIdx.x / 4, k = threadIdx.x % 4;
    unsigned a[4], b[2];
    float d[4];
    for (int i = 0; i < 4; i++) a[i] = tf32(left_value(group + i % 2 * 8, k + i / 2 * 4));
    for (int i = 0; i < 2; i++) b[i] = tf32(right_value(k + i * 4, group));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(1.0f));
    store_16x8(out, d);
}

__global__ void multiply_bytes(int* out) {
    const int group = threadIdx.x / 4, first = threadIdx.x % 4 * 4;
    unsigned a[4] = {}, b[2] = {};
    int d[4];
    for (int i = 0; i < 4; i++) {
        for (int byte = 0; byte < 4; byte++) {
            const int value = left_value(group + i % 2 * 8, first + i / 2 * 16 + byte);
            a[i] |= (value & 0xff) << byte * 8;
        }
    }
    for (int i = 0; i < 2; i++) {
        for (int byte = 0; byte < 4; byte++) b[i] |= (right_value(first + i * 16 + byte, group) & 0xff) << byte * 8;
    }
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(1));
    store_16x8(out, d);
}

__global__ void multiply_doubles(double* out) {
    const int group = threadIdx.x / 4, k = threadIdx.x % 4;
    double d[2];
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%4,%4};"
        : "=d"(d[0]), "=d"(d[1])
        : "d"(double(left_value(group, k))), "d"(double(right_value(k, group))), "d"(1.0));
    for (int i = 0; i < 2; i++) out[group * 8 + k * 2 + i] = d[i];
}

template <class T>
void run(Results& results, const std::string& name, void (*kernel)(T*), int rows, int inner) {
    std::vector<T> expected(rows * 8);
    for (int row = 0; row < rows; row++) {
        for (int column = 0; column < 8; column++) {
            int sum = 1;
            for (int k = 0; k < inner; k++) sum += left_value(row, k) * right_value(k, column);
            expected[row * 8 + column] = T(sum);
        }
    }
    const Array<T> out(expected.size());
    kernel<<<1, 32>>>(out.get());
    results.exact(name, out.host(), expected);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    run<float>(results, "half", multiply_half, 16, 16);
    run<float>(results, "bfloat16", multiply_bfloat, 16, 16);
    run<float>(results, "tf32", multiply_tf32, 16, 8);
    run<int>(results, "bytes", multiply_bytes, 16, 32);
    run<double>(results, "doubles", multiply_doubles, 8, 4);
    return results.finish();
}
