// A product on tensor cores as libraries do it: cp.async into swizzled shared memory, ldmatrix, mma, and fractions as values.
#include "mbarrier.h"
#include "sample.h"

#include <cuda_fp16.h>

constexpr int SIZE = 64, STEP = 16;

// Eight halves together; the place of each such piece in its row depends on the row, so that ldmatrix meets no bank twice.
__device__ int place(int row, int piece) { return (row * (STEP / 8) + (piece ^ (row / 4 & 1))) * 8; }

__device__ void copy_16_bytes(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// One warp computes 16 rows and 8 columns.
__global__ void multiply(const __half* a, const __half* b_transposed, float* product) {
    __shared__ alignas(128) __half left[STEP * STEP], right[8 * STEP];
    const int lane = threadIdx.x, row = blockIdx.y * STEP, column = blockIdx.x * 8;
    float d[4] = {};
    for (int k = 0; k < SIZE; k += STEP) {
        copy_16_bytes(&left[place(lane / 2, lane % 2)], &a[(row + lane / 2) * SIZE + k + lane % 2 * 8]);
        if (lane < 16) {
            copy_16_bytes(&right[place(lane / 2, lane % 2)], &b_transposed[(column + lane / 2) * SIZE + k + lane % 2 * 8]);
        }
        asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
        __syncwarp();
        unsigned fa[4], fb[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                     : "r"(shared_address(&left[place(lane % 16, lane / 16)])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                     : "=r"(fb[0]), "=r"(fb[1])
                     : "r"(shared_address(&right[place(lane % 8, lane / 8 % 2)])));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
        __syncwarp();
    }
    for (int i = 0; i < 4; i++) {
        product[(row + lane / 4 + i / 2 * 8) * SIZE + column + lane % 4 * 2 + i % 2] = d[i];
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    std::vector<__half> a(SIZE * SIZE), b(SIZE * SIZE);
    std::vector<float> expected(SIZE * SIZE);
    Numbers numbers(18);
    for (__half& value : a) value = __float2half(numbers.between(-1, 1));
    for (__half& value : b) value = __float2half(numbers.between(-1, 1));
    for (int row = 0; row < SIZE; row++) {
        for (int column = 0; column < SIZE; column++) {
            double sum = 0;
            for (int k = 0; k < SIZE; k++) {
                sum += double(__half2float(a[row * SIZE + k])) * double(__half2float(b[column * SIZE + k]));
            }
            expected[row * SIZE + column] = static_cast<float>(sum);
        }
    }
    const Array<__half> left(a), right(b);
    const Array<float> product(SIZE * SIZE);
    multiply<<<dim3(SIZE / 8, SIZE / STEP), 32>>>(left, right, product);
    // Tensor cores round sums of products to float in an order of their own.
    results.near("product", product.host(), expected, 1e-4);
    return results.finish();
}
