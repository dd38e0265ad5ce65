// A matrix product by tiles in shared memory, each thread with a small block of the product in registers.
#include "sample.h"

constexpr int TILE = 32, PER_THREAD = 4, THREADS = TILE / PER_THREAD;

__global__ void multiply(const float* a, const float* b, float* product, int size) {
    __shared__ float left[TILE][TILE + 1], right[TILE][TILE + 1];
    float sums[PER_THREAD][PER_THREAD] = {};
    const int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    for (int tile = 0; tile < size; tile += TILE) {
        for (int y = threadIdx.y; y < TILE; y += THREADS) {
            for (int x = threadIdx.x; x < TILE; x += THREADS) {
                left[y][x] = a[(first_row + y) * size + tile + x];
                right[y][x] = b[(tile + y) * size + first_column + x];
            }
        }
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < TILE; k++) {
            float column[PER_THREAD], row[PER_THREAD];
            for (int i = 0; i < PER_THREAD; i++) {
                column[i] = left[threadIdx.y * PER_THREAD + i][k];
                row[i] = right[k][threadIdx.x * PER_THREAD + i];
            }
            for (int y = 0; y < PER_THREAD; y++) {
                for (int x = 0; x < PER_THREAD; x++) sums[y][x] = fmaf(column[y], row[x], sums[y][x]);
            }
        }
        __syncthreads();
    }
    for (int y = 0; y < PER_THREAD; y++) {
        for (int x = 0; x < PER_THREAD; x++) {
            const int row = first_row + threadIdx.y * PER_THREAD + y, column = first_column + threadIdx.x * PER_THREAD + x;
            product[row * size + column] = sums[y][x];
        }
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int size = 128;
    const std::vector<float> a = Numbers(13).floats(size * size, -1, 1), b = Numbers(14).floats(size * size, -1, 1);
    std::vector<float> expected(size * size);
    for (int row = 0; row < size; row++) {
        for (int column = 0; column < size; column++) {
            float sum = 0;
            for (int k = 0; k < size; k++) sum = std::fma(a[row * size + k], b[k * size + column], sum);
            expected[row * size + column] = sum;
        }
    }
    const Array<float> left(a), right(b), product(size * size);
    multiply<<<dim3(size / TILE, size / TILE), dim3(THREADS, THREADS)>>>(left, right, product, size);
    // In the same order, each step rounded once.
    results.exact("product", product.host(), expected);
    return results.finish();
}
