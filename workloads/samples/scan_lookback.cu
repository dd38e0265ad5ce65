// A prefix sum in one pass: each block looks back over its predecessors' published sums until it finds a complete one.
// Blocks take their part by a ticket, so that a predecessor has always begun.
#include "sample.h"

constexpr int THREADS = 128;
constexpr int PER_BLOCK = THREADS * 4;

// What a block publishes: its state in the upper half, a sum in the lower, written at once.
constexpr unsigned long long OWN = 1ull << 32;
constexpr unsigned long long COMPLETE = 2ull << 32;

__device__ unsigned long long read(unsigned long long* state) {
    return *reinterpret_cast<volatile unsigned long long*>(state);
}

__global__ void scan(const unsigned* values, int count, unsigned* running, unsigned long long* states, int* tickets) {
    __shared__ int part;
    __shared__ unsigned sums[THREADS];
    __shared__ unsigned before;
    if (threadIdx.x == 0) part = atomicAdd(tickets, 1);
    __syncthreads();

    const int first = part * PER_BLOCK + threadIdx.x * 4;
    unsigned own[4], total = 0;
    for (int k = 0; k < 4; k++) own[k] = total += first + k < count ? values[first + k] : 0;
    sums[threadIdx.x] = total;
    __syncthreads();
    for (int distance = 1; distance < THREADS; distance *= 2) {
        const unsigned left = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
        __syncthreads();
        sums[threadIdx.x] += left;
        __syncthreads();
    }

    if (threadIdx.x == 0) {
        const unsigned of_block = sums[THREADS - 1];
        atomicExch(&states[part], (part == 0 ? COMPLETE : OWN) | of_block);
        unsigned sum = 0;
        for (int other = part - 1; other >= 0;) {
            const unsigned long long state = read(&states[other]);
            if (state == 0) continue;  // not yet published
            sum += static_cast<unsigned>(state);
            if (state >= COMPLETE) break;
            other--;
        }
        if (part > 0) atomicExch(&states[part], COMPLETE | (sum + of_block));
        before = sum;
    }
    __syncthreads();
    const unsigned offset = before + sums[threadIdx.x] - total;
    for (int k = 0; k < 4; k++) {
        if (first + k < count) running[first + k] = offset + own[k];
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    for (int count : {100, 5000, 60001}) {
        const int blocks = ceil_div(count, PER_BLOCK);
        std::vector<unsigned> values(count), expected(count);
        Numbers numbers(4);
        unsigned total = 0;
        for (int i = 0; i < count; i++) expected[i] = total += values[i] = numbers.below(1 << 20);
        const Array<unsigned> input(values), running(count);
        const Array<unsigned long long> states(blocks);
        const Array<int> tickets(1);
        scan<<<blocks, THREADS>>>(input, count, running, states, tickets);
        results.exact("running sums of " + std::to_string(count), running.host(), expected);
    }
    return results.finish();
}
