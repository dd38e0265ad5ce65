// Softmax of rows: in three passes, and online in one pass with the running maximum; float and half.
// nvcc: -arch=compute_80 -code=compute_80
#include "sample.h"

#include <cuda_fp16.h>

constexpr int THREADS = 128;

template <class Combine>
__device__ float over_block(float value, float* shared, Combine combine) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffff, value, distance));
    }
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int warp = 1; warp < THREADS / 32; warp++) value = combine(value, shared[warp]);
    __syncthreads();
    return value;
}

__global__ void three_passes(const float* in, float* out, int columns) {
    __shared__ float shared[THREADS / 32];
    const float* row = in + blockIdx.x * columns;
    float largest = -INFINITY, sum = 0;
    for (int k = threadIdx.x; k < columns; k += THREADS) largest = fmaxf(largest, row[k]);
    largest = over_block(largest, shared, [](float a, float b) { return fmaxf(a, b); });
    for (int k = threadIdx.x; k < columns; k += THREADS) sum += __expf(row[k] - largest);
    sum = over_block(sum, shared, [](float a, float b) { return a + b; });
    for (int k = threadIdx.x; k < columns; k += THREADS) out[blockIdx.x * columns + k] = __expf(row[k] - largest) / sum;
}

// A warp for each row; each lane keeps its maximum and the sum relative to it.
__global__ void online(const __half* in, __half* out, int columns) {
    const __half* row = in + (blockIdx.x * blockDim.y + threadIdx.y) * columns;
    float largest = -INFINITY, sum = 0;
    for (int k = threadIdx.x; k < columns; k += 32) {
        const float value = __half2float(row[k]), before = largest;
        largest = fmaxf(largest, value);
        sum = sum * expf(before - largest) + expf(value - largest);
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(0xffffffff, largest, distance);
        const float other_sum = __shfl_xor_sync(0xffffffff, sum, distance);
        const float both = fmaxf(largest, other);
        sum = sum * expf(largest - both) + other_sum * expf(other - both);
        largest = both;
    }
    for (int k = threadIdx.x; k < columns; k += 32) {
        out[(blockIdx.x * blockDim.y + threadIdx.y) * columns + k] = __float2half(expf(__half2float(row[k]) - largest) / sum);
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int rows = 12, columns = 333;
    const std::vector<float> values = Numbers(26).floats(rows * columns, -8, 8);
    std::vector<__half> halves(values.size());
    std::vector<float> expected(values.size()), expected_of_halves(values.size());
    for (size_t i = 0; i < values.size(); i++) halves[i] = __float2half(values[i]);
    const auto softmax = [&](auto value, std::vector<float>& out) {
        for (int row = 0; row < rows; row++) {
            double sum = 0;
            for (int k = 0; k < columns; k++) sum += std::exp(double(value(row * columns + k)));
            for (int k = 0; k < columns; k++) {
                out[row * columns + k] = static_cast<float>(std::exp(double(value(row * columns + k))) / sum);
            }
        }
    };
    softmax([&](int i) { return values[i]; }, expected);
    softmax([&](int i) { return __half2float(halves[i]); }, expected_of_halves);

    const Array<float> in(values), out(values.size());
    const Array<__half> half_in(halves), half_out(values.size());
    three_passes<<<rows, THREADS>>>(in, out, columns);
    online<<<rows / 4, dim3(32, 4)>>>(half_in, half_out, columns);
    std::vector<float> widened;
    for (__half value : half_out.host()) widened.push_back(__half2float(value));
    results.near("three passes", out.host(), expected, 1e-6);
    results.near("online, in half", widened, expected_of_halves, 1e-4);
    return results.finish();
}
