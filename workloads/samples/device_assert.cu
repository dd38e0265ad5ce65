// An assertion that holds, then one that does not: its error, and the same error from every call after it.
#include "sample.h"

#include <cassert>

__global__ void hold(const int* values, int limit, int* seen) {
    assert(values[threadIdx.x] < limit);
    seen[threadIdx.x] = values[threadIdx.x];
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    const std::vector<int> values = Numbers(33).integers(64, 100);
    const Array<int> input(values), seen(64);
    hold<<<1, 64>>>(input, 100, seen);
    results.exact("assertions that hold", seen.host(), values);
    hold<<<1, 64>>>(input, 1, seen);
    results.exact("error of the kernel", static_cast<int>(cudaDeviceSynchronize()), static_cast<int>(cudaErrorAssert));
    int unused;
    results.exact("error from then on", static_cast<int>(cudaMemcpy(&unused, seen, 4, cudaMemcpyDeviceToHost)),
                  static_cast<int>(cudaErrorAssert));
    return results.finish();
}
