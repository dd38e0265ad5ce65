// A sum in shared memory, halving the active threads; several blocks, then one block over their sums.
#include "sample.h"

constexpr int THREADS = 256;

__global__ void sum_blocks(const int* values, int count, int* sums) {
    __shared__ int partial[THREADS];
    int total = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) total += values[i];
    partial[threadIdx.x] = total;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int blocks = 24;
    for (int count : {1, 31, 1000, 20011}) {
        const std::vector<int> values = Numbers(count).integers(count, 1000);
        const Array<int> input(values), sums(blocks), total(1);
        sum_blocks<<<blocks, THREADS>>>(input, count, sums);
        sum_blocks<<<1, THREADS>>>(sums, blocks, total);
        int expected = 0;
        for (int value : values) expected += value;
        results.exact("sum of " + std::to_string(count), total.host()[0], expected);
    }
    return results.finish();
}
