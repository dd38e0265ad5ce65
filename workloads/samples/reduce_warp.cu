// Sums by warp shuffles: down, and by the butterfly that leaves the sum in every lane; integers and doubles.
// nvcc: -arch=compute_75 -code=compute_75
#include "sample.h"

constexpr unsigned ALL = 0xffffffff;

template <class T>
__device__ T sum_of_warp(T value) {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(ALL, value, distance);
    return value;
}

template <class T>
__device__ T sum_for_all(T value) {
    for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(ALL, value, mask);
    return value;
}

template <class T>
__global__ void sum_blocks(const T* values, int count, T* sums, T* everywhere) {
    __shared__ T of_warps[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const T own = i < count ? values[i] : T(0);
    everywhere[i] = sum_for_all(own);
    const T total = sum_of_warp(own);
    if (lane == 0) of_warps[warp] = total;
    __syncthreads();
    if (warp == 0) {
        const T rest = sum_of_warp(lane < blockDim.x / 32 ? of_warps[lane] : T(0));
        if (lane == 0) sums[blockIdx.x] = rest;
    }
}

template <class T>
void run(Results& results, const std::string& name, const std::vector<T>& values) {
    constexpr int threads = 192;
    const int count = static_cast<int>(values.size()), blocks = ceil_div(count, threads);
    const Array<T> input(values), sums(blocks), everywhere(blocks * threads);
    sum_blocks<<<blocks, threads>>>(input.get(), count, sums.get(), everywhere.get());
    std::vector<T> of_blocks(blocks, T(0)), of_warps(blocks * threads, T(0));
    for (int i = 0; i < count; i++) of_blocks[i / threads] += values[i];
    for (int i = 0; i < blocks * threads; i++) {
        for (int k = i / 32 * 32; k < i / 32 * 32 + 32 && k < count; k++) of_warps[i] += values[k];
    }
    // The numbers are small multiples of 2^-8: their sums are exact in any order.
    results.exact(name + " of blocks", sums.host(), of_blocks);
    results.exact(name + " of warps", everywhere.host(), of_warps);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    const std::vector<int> integers = Numbers(1).integers(3000, 1 << 16);
    run(results, "integers", integers);
    run(results, "long integers", std::vector<long long>(integers.begin(), integers.end()));
    std::vector<float> floats(3000);
    std::vector<double> doubles(3000);
    for (int i = 0; i < 3000; i++) doubles[i] = floats[i] = static_cast<float>(integers[i] % 4096) / 256;
    run(results, "floats", floats);
    run(results, "doubles", doubles);
    return results.finish();
}
