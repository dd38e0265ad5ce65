// Shared memory whose size is set at the launch: several arrays in one piece, and more than 48 KiB by the kernel's leave.
#include "sample.h"

// Doubles, integers and bytes one behind the other.
__global__ void several(const int* values, double* means, int* largest, unsigned char* flags) {
    extern __shared__ double piece[];
    double* const numbers = piece;
    int* const integers = reinterpret_cast<int*>(numbers + blockDim.x);
    unsigned char* const bytes = reinterpret_cast<unsigned char*>(integers + blockDim.x);
    const int i = threadIdx.x, at = blockIdx.x * blockDim.x + i;
    numbers[i] = values[at];
    integers[i] = values[at];
    bytes[i] = values[at] % 2;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (i < half) {
            numbers[i] += numbers[i + half];
            integers[i] = max(integers[i], integers[i + half]);
        }
        __syncthreads();
    }
    flags[at] = bytes[(i + 1) % blockDim.x];
    if (i == 0) {
        means[blockIdx.x] = numbers[0] / blockDim.x;
        largest[blockIdx.x] = integers[0];
    }
}

// A permutation of a whole array in shared memory.
__global__ void permute(const int* in, int* out, int count) {
    extern __shared__ int whole[];
    for (int i = threadIdx.x; i < count; i += blockDim.x) whole[i * 7919ll % count] = in[i];
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = whole[i];
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int blocks = 4, threads = 64, count = blocks * threads;
    const std::vector<int> values = Numbers(43).integers(count, 1 << 16);
    const Array<int> input(values), largest(blocks);
    const Array<double> means(blocks);
    const Array<unsigned char> flags(count);
    several<<<blocks, threads, threads * (sizeof(double) + sizeof(int) + 1)>>>(input, means, largest, flags);
    std::vector<double> expected_means(blocks);
    std::vector<int> expected_largest(blocks);
    std::vector<unsigned char> expected_flags(count);
    for (int i = 0; i < count; i++) {
        expected_means[i / threads] += values[i];
        expected_largest[i / threads] = std::max(expected_largest[i / threads], values[i]);
        expected_flags[i] = values[i / threads * threads + (i + 1) % threads] % 2;
    }
    for (double& mean : expected_means) mean /= threads;
    results.exact("means", means.host(), expected_means);
    results.exact("largest", largest.host(), expected_largest);
    results.exact("neighbours' flags", flags.host(), expected_flags);

    constexpr int many = 25000, bytes = many * sizeof(int);
    const std::vector<int> wide = Numbers(44).integers(many, 1 << 30);
    const Array<int> in(wide), out(many);
    permute<<<1, 256, bytes>>>(in, out, many);
    results.exact("without leave", static_cast<int>(cudaGetLastError()), static_cast<int>(cudaErrorInvalidValue));
    // All that there is, as programs do that do not know yet how much they want.
    int most;
    CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    CHECK(cudaFuncSetAttribute(permute, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    permute<<<1, 256, bytes>>>(in, out, many);
    std::vector<int> permuted(many);
    for (int i = 0; i < many; i++) permuted[i * 7919ll % many] = wide[i];
    results.exact("100 KB", out.host(), permuted);
    return results.finish();
}
