// A product by a whole warp group (wgmma): both matrices in shared memory, described to the tensor cores without a swizzle.
// nvcc: -arch=compute_90a -code=compute_90a
#include "mbarrier.h"
#include "sample.h"

#include <cuda_fp16.h>

constexpr int ROWS = 64, COLUMNS = 8, INNER = 64, STEP = 16;

__host__ __device__ int left_value(int row, int k) { return (row * 7 + k * 5) % 9 - 4; }
__host__ __device__ int right_value(int k, int column) { return (k * 3 + column * 11) % 9 - 4; }

// Pieces of 8 rows and 16 bytes lie one behind the other: along k first, then along the rows.
__device__ int place(int row, int k, int inner) { return (row / 8 * (inner / 8) + k / 8) * 64 + row % 8 * 8 + k % 8; }

// Address, distance of pieces along k and along the rows, each in units of 16 bytes.
__device__ unsigned long long descriptor(const __half* matrix, int inner) {
    const unsigned long long address = (shared_address(matrix) & 0x3ffff) >> 4;
    const unsigned long long along_k = 128 >> 4, along_rows = inner / 8 * 128 >> 4;
    return address | along_k << 16 | along_rows << 32;
}

__global__ __launch_bounds__(128) void multiply(float* product) {
    __shared__ alignas(128) __half left[ROWS * INNER], right[COLUMNS * INNER];
    for (int i = threadIdx.x; i < ROWS * INNER; i += 128) {
        left[place(i / INNER, i % INNER, INNER)] = __float2half(left_value(i / INNER, i % INNER));
    }
    for (int i = threadIdx.x; i < COLUMNS * INNER; i += 128) {
        right[place(i / INNER, i % INNER, INNER)] = __float2half(right_value(i % INNER, i / INNER));
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < INNER; k += STEP) {
        asm volatile(
            "{\n"
            ".reg .pred add;\n"
            "setp.ne.b32 add, %6, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, add, 1, 1, 0, 0;\n"
            "}"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "l"(descriptor(left + k / 8 * 64, INNER)), "l"(descriptor(right + k / 8 * 64, INNER)), "r"(k));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; i++) product[(row + i / 2 * 8) * COLUMNS + column + i % 2] = d[i];
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    std::vector<float> expected(ROWS * COLUMNS);
    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < COLUMNS; column++) {
            int sum = 0;
            for (int k = 0; k < INNER; k++) sum += left_value(row, k) * right_value(k, column);
            expected[row * COLUMNS + column] = static_cast<float>(sum);
        }
    }
    const Array<float> product(ROWS * COLUMNS);
    multiply<<<1, 128>>>(product);
    results.exact("product", product.host(), expected);
    return results.finish();
}
