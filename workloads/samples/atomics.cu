// Atomics on every type they come for, in global and shared memory, and ones made by compare-and-swap.
#include "sample.h"

struct Totals {
    int sum, least, most, exchanged_bits, decremented;
    unsigned most_unsigned, wrapped, all_bits, any_bit, odd_bits;
    unsigned long long long_sum, long_most, long_bits;
    float float_sum;
    double double_sum, product;
};

__device__ void multiply_atomically(double* place, double factor) {
    auto* const bits = reinterpret_cast<unsigned long long*>(place);
    // Others write it at the same time: a plain read would be a race.
    unsigned long long seen = *static_cast<volatile unsigned long long*>(bits), expected;
    do {
        expected = seen;
        seen = atomicCAS(bits, expected, __double_as_longlong(__longlong_as_double(expected) * factor));
    } while (seen != expected);
}

__device__ void take_part(Totals* totals, int value) {
    atomicAdd(&totals->sum, value);
    atomicMin(&totals->least, value);
    atomicMax(&totals->most, value);
    atomicMax(&totals->most_unsigned, static_cast<unsigned>(value));
    atomicInc(&totals->wrapped, 99);
    atomicSub(&totals->decremented, 3);
    atomicAnd(&totals->all_bits, static_cast<unsigned>(value) | 1);
    atomicOr(&totals->any_bit, static_cast<unsigned>(value));
    atomicXor(&totals->odd_bits, static_cast<unsigned>(value));
    atomicAdd(&totals->long_sum, static_cast<unsigned long long>(value) << 33);
    atomicMax(&totals->long_most, static_cast<unsigned long long>(value) << 40);
    atomicOr(&totals->long_bits, 1ull << value % 64);
    // Whole numbers and powers of two: exact in any order.
    atomicAdd(&totals->float_sum, static_cast<float>(value));
    atomicAdd(&totals->double_sum, value * 0.25);
    multiply_atomically(&totals->product, value % 2 == 0 ? 2.0 : 0.5);
}

__global__ void in_global(const int* values, int count, Totals* totals) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) take_part(totals, values[i]);
}

__global__ void in_shared(const int* values, int count, const Totals* first, Totals* totals) {
    __shared__ Totals shared;
    if (threadIdx.x == 0) shared = *first;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) take_part(&shared, values[i]);
    __syncthreads();
    if (threadIdx.x == 0) *totals = shared;
}

// Places handed out: each number exactly once.
__global__ void tickets(int* next, int* taken) { taken[atomicAdd(next, 1)]++; }

// A lock that one thread of each block holds at a time.
__global__ void locked(int* lock, int* counter) {
    if (threadIdx.x != 0) return;
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    *reinterpret_cast<volatile int*>(counter) += 1;
    __threadfence();
    atomicExch(lock, 0);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 1500, threads = 128;
    const std::vector<int> values = Numbers(51).integers(count, 1000);
    Totals first;
    std::memset(&first, 0, sizeof first);
    first.least = 1 << 30;
    first.all_bits = 0xffffffff;
    first.product = 1;
    Totals expected = first;
    for (int value : values) {
        expected.sum += value;
        expected.least = std::min(expected.least, value);
        expected.most = std::max(expected.most, value);
        expected.most_unsigned = expected.most;
        expected.wrapped = expected.wrapped >= 99 ? 0 : expected.wrapped + 1;
        expected.decremented -= 3;
        expected.all_bits &= value | 1;
        expected.any_bit |= value;
        expected.odd_bits ^= value;
        expected.long_sum += static_cast<unsigned long long>(value) << 33;
        expected.long_most = static_cast<unsigned long long>(expected.most) << 40;
        expected.long_bits |= 1ull << value % 64;
        expected.float_sum += static_cast<float>(value);
        expected.double_sum += value * 0.25;
        expected.product *= value % 2 == 0 ? 2.0 : 0.5;
    }
    const Array<int> input(values), next(1), taken(8 * threads), lock(1), counter(1);
    const Array<Totals> begin({first}), global({first}), shared(1);
    in_global<<<ceil_div(count, threads), threads>>>(input, count, global);
    in_shared<<<1, threads>>>(input, count, begin, shared);
    tickets<<<8, threads>>>(next, taken);
    locked<<<40, 32>>>(lock, counter);
    results.exact("in global memory", global.host(), std::vector<Totals>{expected});
    results.exact("in shared memory", shared.host(), std::vector<Totals>{expected});
    results.exact("tickets", taken.host(), std::vector<int>(8 * threads, 1));
    results.exact("counted under a lock", counter.host()[0], 40);
    return results.finish();
}
