// Errors that a launch reports at once, and one that the kernel reports when it touches what is not there.
#include "sample.h"

__global__ void write(int* place) { place[threadIdx.x] = 1; }

__global__ __launch_bounds__(64) void bounded(int* place) { place[threadIdx.x] = 2; }

int main(int argc, char** argv) {
    Results results(argc, argv);
    const Array<int> values(64);
    const auto code = [](cudaError_t error) { return static_cast<int>(error); };
    bounded<<<1, 64>>>(values);
    results.exact("within its bounds", values.host(), std::vector<int>(64, 2));
    write<<<1, 32, 1 << 20>>>(values);
    results.exact("too much shared memory", code(cudaGetLastError()), code(cudaErrorInvalidValue));
    results.exact("the last error is taken away", code(cudaGetLastError()), code(cudaSuccess));

    int* nowhere = nullptr;
    results.exact("no memory that large", code(cudaMalloc(&nowhere, size_t(1) << 50)), code(cudaErrorMemoryAllocation));
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation ? cudaSuccess : cudaErrorUnknown);
    write<<<1, 32>>>(reinterpret_cast<int*>(size_t(1) << 45));
    results.exact("a wild pointer", code(cudaDeviceSynchronize()), code(cudaErrorIllegalAddress));
    results.exact("and from then on", code(cudaMalloc(&nowhere, 4)), code(cudaErrorIllegalAddress));
    return results.finish();
}
