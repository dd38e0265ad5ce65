// Histograms: by atomics in global memory, in shared memory for each block, and with a warp's equal values counted as one.
#include "sample.h"

constexpr int BINS = 64;

__global__ void in_global(const unsigned char* bytes, int count, unsigned* bins) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        atomicAdd(&bins[bytes[i] % BINS], 1u);
    }
}

__global__ void in_shared(const unsigned char* bytes, int count, unsigned* bins) {
    __shared__ unsigned of_block[BINS];
    for (int k = threadIdx.x; k < BINS; k += blockDim.x) of_block[k] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        atomicAdd(&of_block[bytes[i] % BINS], 1u);
    }
    __syncthreads();
    for (int k = threadIdx.x; k < BINS; k += blockDim.x) atomicAdd(&bins[k], of_block[k]);
}

__global__ void by_warp(const unsigned char* bytes, int count, unsigned* bins) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const unsigned active = __activemask();
        const int bin = bytes[i] % BINS;
        const unsigned same = __match_any_sync(active, bin);
        if (__ffs(same) - 1 == threadIdx.x % 32) atomicAdd(&bins[bin], __popc(same));
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 40000;
    std::vector<unsigned char> bytes(count);
    std::vector<unsigned> expected(BINS);
    Numbers numbers(8);
    for (unsigned char& byte : bytes) {
        byte = numbers.below(16) * numbers.below(16);
        expected[byte % BINS]++;
    }
    const Array<unsigned char> input(bytes);
    const Array<unsigned> global(BINS), shared(BINS), warps(BINS);
    in_global<<<8, 256>>>(input, count, global);
    in_shared<<<8, 256>>>(input, count, shared);
    by_warp<<<8, 256>>>(input, count, warps);
    results.exact("in global memory", global.host(), expected);
    results.exact("in shared memory", shared.host(), expected);
    results.exact("by warps", warps.host(), expected);
    return results.finish();
}
