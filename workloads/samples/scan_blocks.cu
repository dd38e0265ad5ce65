// Prefix sums in three passes: within blocks (Hillis-Steele and Blelloch), over the blocks' totals, and added back.
#include "sample.h"

constexpr int THREADS = 256;

__global__ void hillis_steele(const int* values, int count, int* running, int* totals) {
    __shared__ int steps[2][THREADS];
    const int i = blockIdx.x * THREADS + threadIdx.x;
    int in = 0;
    steps[in][threadIdx.x] = i < count ? values[i] : 0;
    for (int distance = 1; distance < THREADS; distance *= 2) {
        __syncthreads();
        const int left = threadIdx.x >= distance ? steps[in][threadIdx.x - distance] : 0;
        steps[1 - in][threadIdx.x] = steps[in][threadIdx.x] + left;
        in = 1 - in;
    }
    if (i < count) running[i] = steps[in][threadIdx.x];
    if (threadIdx.x == THREADS - 1) totals[blockIdx.x] = steps[in][threadIdx.x];
}

__global__ void blelloch(const int* values, int count, int* before, int* totals) {
    __shared__ int tree[THREADS * 2];
    const int first = blockIdx.x * THREADS * 2;
    for (int k = threadIdx.x; k < THREADS * 2; k += THREADS) tree[k] = first + k < count ? values[first + k] : 0;
    int distance = 1;
    for (int nodes = THREADS; nodes > 0; nodes /= 2) {
        __syncthreads();
        if (threadIdx.x < nodes) {
            const int left = distance * (2 * threadIdx.x + 1) - 1;
            tree[left + distance] += tree[left];
        }
        distance *= 2;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        totals[blockIdx.x] = tree[THREADS * 2 - 1];
        tree[THREADS * 2 - 1] = 0;
    }
    for (int nodes = 1; nodes <= THREADS; nodes *= 2) {
        distance /= 2;
        __syncthreads();
        if (threadIdx.x < nodes) {
            const int left = distance * (2 * threadIdx.x + 1) - 1;
            const int kept = tree[left];
            tree[left] = tree[left + distance];
            tree[left + distance] += kept;
        }
    }
    __syncthreads();
    for (int k = threadIdx.x; k < THREADS * 2; k += THREADS) {
        if (first + k < count) before[first + k] = tree[k];
    }
}

// Adds to each block what all blocks before it have.
__global__ void add_totals(int* values, int count, const int* running_totals, int per_block) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && i >= per_block) values[i] += running_totals[i / per_block - 1];
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 30001;
    const std::vector<int> values = Numbers(3).integers(count, 100);
    const int blocks = ceil_div(count, THREADS), wide_blocks = ceil_div(count, THREADS * 2);
    const Array<int> input(values), running(count), before(count), totals(blocks), running_totals(blocks), unused(1);

    hillis_steele<<<blocks, THREADS>>>(input, count, running, totals);
    hillis_steele<<<1, THREADS>>>(totals, blocks, running_totals, unused);
    add_totals<<<blocks, THREADS>>>(running, count, running_totals, THREADS);
    blelloch<<<wide_blocks, THREADS>>>(input, count, before, totals);
    hillis_steele<<<1, THREADS>>>(totals, wide_blocks, running_totals, unused);
    add_totals<<<blocks, THREADS>>>(before, count, running_totals, THREADS * 2);

    std::vector<int> inclusive(count), exclusive(count);
    for (int i = 0, total = 0; i < count; i++) {
        exclusive[i] = total;
        inclusive[i] = total += values[i];
    }
    results.exact("inclusive", running.host(), inclusive);
    results.exact("exclusive", before.host(), exclusive);
    return results.finish();
}
