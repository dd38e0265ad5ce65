// A matrix product whose next tile is on its way (cp.async) while this one is multiplied: two buffers in shared memory.
// nvcc: -arch=compute_80 -code=compute_80
#include "sample.h"

#include <cuda_pipeline.h>

constexpr int TILE = 16;

__global__ void multiply(const float* a, const float* b, float* product, int size) {
    __shared__ alignas(16) float left[2][TILE][TILE], right[2][TILE][TILE];
    const int row = threadIdx.y, column = threadIdx.x;
    const int thread = row * TILE + column;
    const auto fetch = [&](int tile, int buffer) {
        // Sixteen bytes a thread: the first 64 threads fetch one matrix, the next 64 the other.
        const int y = thread % 64 / 4, x = thread % 4 * 4;
        if (thread < 64) {
            __pipeline_memcpy_async(&left[buffer][y][x], &a[(blockIdx.y * TILE + y) * size + tile * TILE + x], 16);
        } else if (thread < 128) {
            __pipeline_memcpy_async(&right[buffer][y][x], &b[(tile * TILE + y) * size + blockIdx.x * TILE + x], 16);
        }
        __pipeline_commit();
    };
    const int tiles = size / TILE;
    float sum = 0;
    fetch(0, 0);
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
            fetch(tile + 1, (tile + 1) % 2);
            __pipeline_wait_prior(1);
        } else {
            __pipeline_wait_prior(0);
        }
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum = fmaf(left[tile % 2][row][k], right[tile % 2][k][column], sum);
        __syncthreads();
    }
    product[(blockIdx.y * TILE + row) * size + blockIdx.x * TILE + column] = sum;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int size = 96;
    const std::vector<float> a = Numbers(15).floats(size * size, -1, 1), b = Numbers(16).floats(size * size, -1, 1);
    std::vector<float> expected(size * size);
    for (int row = 0; row < size; row++) {
        for (int column = 0; column < size; column++) {
            float sum = 0;
            for (int k = 0; k < size; k++) sum = std::fma(a[row * size + k], b[k * size + column], sum);
            expected[row * size + column] = sum;
        }
    }
    const Array<float> left(a), right(b), product(size * size);
    multiply<<<dim3(size / TILE, size / TILE), dim3(TILE, TILE)>>>(left, right, product, size);
    results.exact("product", product.host(), expected);
    return results.finish();
}
