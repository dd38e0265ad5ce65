// Radix sort, four bits a pass: counts, a scan of the counts, and a scatter that keeps the order of equal digits.
#include "sample.h"

#include <algorithm>

constexpr int BITS = 4, DIGITS = 1 << BITS;
constexpr int THREADS = 128;

__global__ void count_digits(const unsigned* keys, int count, int shift, unsigned* counts) {
    __shared__ unsigned of_block[DIGITS];
    if (threadIdx.x < DIGITS) of_block[threadIdx.x] = 0;
    __syncthreads();
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) atomicAdd(&of_block[keys[i] >> shift & (DIGITS - 1)], 1u);
    __syncthreads();
    // All blocks' counts of one digit beside each other: scanned in this order they are places.
    if (threadIdx.x < DIGITS) counts[threadIdx.x * gridDim.x + blockIdx.x] = of_block[threadIdx.x];
}

__global__ void scan_counts(unsigned* counts, int count) {
    unsigned carry = 0;
    for (int first = 0; first < count; first += 32) {
        const int i = first + threadIdx.x;
        const unsigned own = i < count ? counts[i] : 0;
        unsigned sum = own;
        for (int distance = 1; distance < 32; distance *= 2) {
            const unsigned left = __shfl_up_sync(0xffffffff, sum, distance);
            if (threadIdx.x >= distance) sum += left;
        }
        if (i < count) counts[i] = carry + sum - own;
        carry += __shfl_sync(0xffffffff, sum, 31);
    }
}

__global__ void scatter(const unsigned* keys, const int* payloads, int count, int shift, const unsigned* places,
                        unsigned* sorted_keys, int* sorted_payloads) {
    __shared__ unsigned char digits[THREADS];
    const int i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned digit = i < count ? keys[i] >> shift & (DIGITS - 1) : 0xff;
    digits[threadIdx.x] = digit;
    __syncthreads();
    if (i >= count) return;
    unsigned rank = 0;
    for (int k = 0; k < threadIdx.x; k++) rank += digits[k] == digit;
    const unsigned place = places[digit * gridDim.x + blockIdx.x] + rank;
    sorted_keys[place] = keys[i];
    sorted_payloads[place] = payloads[i];
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 5000, blocks = (count + THREADS - 1) / THREADS;
    std::vector<unsigned> keys(count);
    std::vector<int> order(count);
    Numbers numbers(6);
    for (int i = 0; i < count; i++) {
        keys[i] = numbers.below(1 << 16);
        order[i] = i;
    }
    const Array<unsigned> first_keys(keys), second_keys(count), counts(DIGITS * blocks);
    const Array<int> first_payloads(order), second_payloads(count);
    for (int shift = 0; shift < 16; shift += 2 * BITS) {
        const auto pass = [&](const Array<unsigned>& from, const Array<int>& with, const Array<unsigned>& to,
                              const Array<int>& onto, int at) {
            count_digits<<<blocks, THREADS>>>(from, count, at, counts);
            scan_counts<<<1, 32>>>(counts, DIGITS * blocks);
            scatter<<<blocks, THREADS>>>(from, with, count, at, counts, to, onto);
        };
        pass(first_keys, first_payloads, second_keys, second_payloads, shift);
        pass(second_keys, second_payloads, first_keys, first_payloads, shift + BITS);
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] < keys[b]; });
    std::sort(keys.begin(), keys.end());
    results.exact("keys", first_keys.host(), keys);
    results.exact("payloads of equal keys in order", first_payloads.host(), order);
    return results.finish();
}
