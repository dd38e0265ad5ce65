// Separate compilation: a kernel that calls a function and uses a variable of another file, both linked as PTX.
// nvcc: -rdc=true
// with: parts/separate_part.cu
#include "sample.h"

extern __device__ int offset;
extern __constant__ int weights[4];
__device__ int weigh(int value, int which);
void set_offset(int value);

__global__ void apply(const int* input, int* output, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) output[i] = weigh(input[i], i % 4) + offset;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    const std::vector<int> numbers = Numbers(12).integers(1000, 5000);
    const int set[4] = {1, 10, 100, 1000};
    CHECK(cudaMemcpyToSymbol(weights, set, sizeof set));
    set_offset(7);
    const Array<int> input(numbers), output(numbers.size());
    apply<<<ceil_div(1000, 128), 128>>>(input, output, 1000);
    std::vector<int> expected(numbers.size());
    for (size_t i = 0; i < expected.size(); i++) expected[i] = numbers[i] * set[i % 4] + 7;
    results.exact("weighed", output.host(), expected);
    return results.finish();
}
