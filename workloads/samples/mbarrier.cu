// Barriers in shared memory (mbarrier): producers and consumers with a ring of buffers, arrivals counted by hand.
#include "mbarrier.h"
#include "sample.h"

constexpr int STAGES = 3, PART = 64, WARPS = 2;

// The first warps fetch, the others add up; a buffer is full when all producers and empty when all consumers arrived.
__global__ void pipeline(const int* values, int parts, int* sums) {
    __shared__ int buffers[STAGES][PART];
    __shared__ Barrier full[STAGES], empty[STAGES];
    constexpr int side = WARPS * 32;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            init(&full[stage], side);
            init(&empty[stage], side);
        }
    }
    __syncthreads();
    const int* const own = values + blockIdx.x * parts * PART;
    if (threadIdx.x < side) {
        for (int part = 0; part < parts; part++) {
            const int stage = part % STAGES, round = part / STAGES;
            if (round > 0) wait(&empty[stage], (round - 1) % 2);
            buffers[stage][threadIdx.x] = own[part * PART + threadIdx.x];
            arrive(&full[stage]);
        }
    } else {
        const int at = threadIdx.x - side;
        int sum = 0;
        for (int part = 0; part < parts; part++) {
            const int stage = part % STAGES, round = part / STAGES;
            wait(&full[stage], round % 2);
            // What another thread wrote.
            sum += (part + 1) * buffers[stage][(at + 13) % PART];
            arrive(&empty[stage]);
        }
        sums[blockIdx.x * PART + at] = sum;
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int blocks = 3, parts = 10;
    const std::vector<int> values = Numbers(40).integers(blocks * parts * PART, 1000);
    std::vector<int> expected(blocks * PART);
    for (int i = 0; i < blocks * PART; i++) {
        for (int part = 0; part < parts; part++) {
            expected[i] += (part + 1) * values[(i / PART * parts + part) * PART + (i % PART + 13) % PART];
        }
    }
    const Array<int> input(values), sums(blocks * PART);
    pipeline<<<blocks, 2 * WARPS * 32>>>(input, parts, sums);
    results.exact("weighted sums", sums.host(), expected);
    return results.finish();
}
