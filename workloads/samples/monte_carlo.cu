// Monte Carlo with generators of our own: pi by a counter-based one (Philox), an option's price by xorshift and Box-Muller.
#include "sample.h"

struct Four {
    unsigned v[4];
};

// Philox 4x32 with ten rounds.
__host__ __device__ Four philox(Four counter, unsigned key0, unsigned key1) {
    for (int round = 0; round < 10; round++) {
        const unsigned long long a = 0xD2511F53ull * counter.v[0], b = 0xCD9E8D57ull * counter.v[2];
        counter = {{static_cast<unsigned>(b >> 32) ^ counter.v[1] ^ key0, static_cast<unsigned>(b),
                    static_cast<unsigned>(a >> 32) ^ counter.v[3] ^ key1, static_cast<unsigned>(a)}};
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
    return counter;
}

// Points in a square of 2^32 that lie in the quarter circle; whole numbers only.
__host__ __device__ int inside(unsigned thread, int rounds) {
    int hits = 0;
    for (int round = 0; round < rounds; round++) {
        const Four random = philox({{thread, static_cast<unsigned>(round), 0, 0}}, 42, 7);
        for (int pair = 0; pair < 4; pair += 2) {
            const unsigned long long x = random.v[pair] >> 1, y = random.v[pair + 1] >> 1;
            hits += x * x + y * y < 1ull << 62;
        }
    }
    return hits;
}

__global__ void count_hits(unsigned long long* hits, int rounds) {
    const int own = inside(blockIdx.x * blockDim.x + threadIdx.x, rounds);
    const int of_warp = __reduce_add_sync(0xffffffff, own);
    if (threadIdx.x % 32 == 0) atomicAdd(hits, static_cast<unsigned long long>(of_warp));
}

__host__ __device__ unsigned xorshift(unsigned& state) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

template <class T>
__host__ __device__ T payoff(unsigned seed, int paths) {
    const T price = 100, strike = 105, drift = T(0.02), volatility = T(0.2);
    T sum = 0;
    for (int path = 0; path < paths; path++) {
        const T u = (T(xorshift(seed) >> 8) + T(0.5)) * T(0x1p-24), v = (T(xorshift(seed) >> 8) + T(0.5)) * T(0x1p-24);
        const T normal = sqrt(T(-2) * log(u)) * cos(T(6.283185307179586) * v);
        const T last = price * exp(drift + volatility * normal);
        sum += last > strike ? last - strike : T(0);
    }
    return sum / T(paths);
}

template <class T>
__global__ void price_options(T* prices, int paths) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    prices[i] = payoff<T>(i * 7919 + 1, paths);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int blocks = 8, threads = 128, rounds = 10, paths = 20;
    const Array<unsigned long long> hits(1);
    count_hits<<<blocks, threads>>>(hits, rounds);
    unsigned long long expected = 0;
    for (int thread = 0; thread < blocks * threads; thread++) expected += inside(thread, rounds);
    const unsigned long long found = hits.host()[0];
    results.exact("hits", found, expected);
    results.near("pi", 4.0 * found / (blocks * threads * rounds * 2), M_PI, 0.02);

    const Array<float> prices(blocks * threads);
    const Array<double> double_prices(blocks * threads);
    price_options<<<blocks, threads>>>(prices.get(), paths);
    price_options<<<blocks, threads>>>(double_prices.get(), paths);
    std::vector<float> floats;
    std::vector<double> doubles;
    for (int i = 0; i < blocks * threads; i++) {
        doubles.push_back(payoff<double>(i * 7919 + 1, paths));
        floats.push_back(static_cast<float>(doubles.back()));
    }
    results.near("prices in float", prices.host(), floats, 1e-4);
    results.near("prices in double", double_prices.host(), doubles, 1e-12);
    return results.finish();
}
