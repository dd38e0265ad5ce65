// Bitonic sort: steps within a block in shared memory, wider steps in global memory.
#include "sample.h"

#include <algorithm>

constexpr int THREADS = 256;
constexpr int PER_BLOCK = THREADS * 2;

__device__ void put_in_order(unsigned& a, unsigned& b, bool ascending) {
    if ((a > b) == ascending) {
        const unsigned kept = a;
        a = b;
        b = kept;
    }
}

// All steps of sequences up to `longest` whose pairs are at most a block apart.
__global__ void sort_in_block(unsigned* values, int first_length, int longest) {
    __shared__ unsigned part[PER_BLOCK];
    const int base = blockIdx.x * PER_BLOCK;
    for (int k = threadIdx.x; k < PER_BLOCK; k += THREADS) part[k] = values[base + k];
    for (int length = first_length; length <= longest; length *= 2) {
        for (int distance = min(length / 2, THREADS); distance > 0; distance /= 2) {
            __syncthreads();
            const int at = 2 * threadIdx.x - (threadIdx.x & (distance - 1));
            put_in_order(part[at], part[at + distance], ((base + at) & length) == 0);
        }
    }
    __syncthreads();
    for (int k = threadIdx.x; k < PER_BLOCK; k += THREADS) values[base + k] = part[k];
}

__global__ void step(unsigned* values, int length, int distance) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    const int at = 2 * i - (i & (distance - 1));
    put_in_order(values[at], values[at + distance], (at & length) == 0);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 1 << 13, blocks = count / PER_BLOCK;
    std::vector<unsigned> values(count);
    Numbers numbers(5);
    for (unsigned& value : values) value = static_cast<unsigned>(numbers.next());
    const Array<unsigned> sorted(values);
    sort_in_block<<<blocks, THREADS>>>(sorted, 2, PER_BLOCK);
    for (int length = PER_BLOCK * 2; length <= count; length *= 2) {
        for (int distance = length / 2; distance > THREADS; distance /= 2) {
            step<<<blocks, THREADS>>>(sorted, length, distance);
        }
        sort_in_block<<<blocks, THREADS>>>(sorted, length, length);
    }
    std::sort(values.begin(), values.end());
    results.exact("sorted", sorted.host(), values);
    return results.finish();
}
