// A kernel that may begin before the one it depends on has ended (programmatic dependent launch), and waits where it must.
#include "sample.h"

__global__ void produce(int* values, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = i * i;
    cudaTriggerProgrammaticLaunchCompletion();
}

__global__ void consume(const int* values, int* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int own = i % 7;  // what needs nothing of the other kernel
    cudaGridDependencySynchronize();
    if (i < count) out[i] = values[count - 1 - i] + own;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 4000, threads = 128;
    const Array<int> values(count), out(count);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ceil_div(count, threads));
    config.blockDim = dim3(threads);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    produce<<<ceil_div(count, threads), threads, 0, stream>>>(values, count);
    CHECK(cudaLaunchKernelEx(&config, consume, static_cast<const int*>(values.get()), out.get(), count));
    std::vector<int> expected(count);
    for (int i = 0; i < count; i++) expected[i] = (count - 1 - i) * (count - 1 - i) + i % 7;
    results.exact("consumed", out.host(), expected);
    CHECK(cudaStreamDestroy(stream));
    return results.finish();
}
