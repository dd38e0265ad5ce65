// What calls return that cannot be done, and what is the last error then: for each thread its own, until it is asked for.
#include "sample.h"

#include <thread>

__global__ void nothing() {}
__global__ void wait_for(volatile int* flag) { while (*flag == 0) {} }
__global__ void wild(int* place) { *place = 1; }

int main(int argc, char** argv) {
    Results results(argc, argv);
    const auto code = [](cudaError_t error) { return static_cast<int>(error); };
    const auto returns = [&](const char* name, cudaError_t found, cudaError_t expected) {
        results.exact(name, code(found), code(expected));
        results.exact(std::string(name) + ": last", code(cudaGetLastError()), code(expected));
        results.exact(std::string(name) + ": taken", code(cudaGetLastError()), code(cudaSuccess));
    };
    int devices = 0, value = 0;
    void* pointer = nullptr;
    CHECK(cudaGetDeviceCount(&devices));
    returns("no such device", cudaSetDevice(devices), cudaErrorInvalidDevice);
    returns("no such device either", cudaSetDevice(-1), cudaErrorInvalidDevice);
    returns("attribute of no device", cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 99), cudaErrorInvalidDevice);
    returns("nowhere to put it", cudaMalloc(static_cast<void**>(nullptr), 4), cudaErrorInvalidValue);
    returns("no such direction", cudaMemcpy(&value, &value, 4, static_cast<cudaMemcpyKind>(9)), cudaErrorInvalidMemcpyDirection);
    returns("not from here", cudaFree(reinterpret_cast<void*>(64)), cudaErrorInvalidValue);
    returns("nothing to free", cudaFree(nullptr), cudaSuccess);
    returns("too much", cudaMalloc(&pointer, size_t(1) << 50), cudaErrorMemoryAllocation);
    returns("a pitch that is too small", cudaMemcpy2D(&value, 1, &value, 4, 4, 1, cudaMemcpyHostToHost), cudaErrorInvalidPitchValue);
    cudaFuncAttributes attributes;
    returns("no kernel", cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&devices)), cudaErrorInvalidDeviceFunction);
    returns("no kernel at all", cudaLaunchKernel(static_cast<const void*>(nullptr), dim3(1), dim3(1), nullptr, 0, 0), cudaErrorInvalidDeviceFunction);
    returns("not pinned", cudaHostUnregister(&value), cudaErrorHostMemoryNotRegistered);

    nothing<<<0, 32>>>();
    returns("no block", cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    nothing<<<1, 2048>>>();
    returns("too many threads", cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    nothing<<<1, dim3(1, 1, 65)>>>();
    returns("too deep a block", cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    nothing<<<dim3(1, 70000), 1>>>();
    returns("too high a grid", cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    nothing<<<1, 32, 1 << 20>>>();
    returns("too much shared memory", cudaPeekAtLastError(), cudaErrorInvalidValue);
    cudaSetDevice(devices);
    CHECK(cudaMalloc(&pointer, 4));
    results.exact("a success changes nothing", code(cudaPeekAtLastError()), code(cudaErrorInvalidDevice));
    cudaError_t elsewhere = cudaErrorUnknown;
    std::thread([&] { elsewhere = cudaGetLastError(); }).join();
    results.exact("another thread has its own", code(elsewhere), code(cudaSuccess));
    results.exact("and this one still has it", code(cudaGetLastError()), code(cudaErrorInvalidDevice));

    int* flag = nullptr;
    CHECK(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
    *flag = 0;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    wait_for<<<1, 1, 0, stream>>>(flag);
    results.exact("not ready", code(cudaStreamQuery(stream)), code(cudaErrorNotReady));
    results.exact("not ready is no error to ask for", code(cudaGetLastError()), code(cudaSuccess));
    *static_cast<volatile int*>(flag) = 1;
    CHECK(cudaStreamSynchronize(stream));
    results.exact("ready", code(cudaStreamQuery(stream)), code(cudaSuccess));

    results.holds("names", std::strcmp(cudaGetErrorName(cudaErrorInvalidConfiguration), "cudaErrorInvalidConfiguration") == 0);
    results.holds("texts", std::strlen(cudaGetErrorString(cudaErrorInvalidValue)) > 0);

    wild<<<1, 1>>>(reinterpret_cast<int*>(size_t(1) << 45));
    results.exact("the launch itself is right", code(cudaGetLastError()), code(cudaSuccess));
    results.exact("a wild pointer", code(cudaDeviceSynchronize()), code(cudaErrorIllegalAddress));
    results.exact("is the last error", code(cudaGetLastError()), code(cudaErrorIllegalAddress));
    results.exact("and what every call returns", code(cudaMalloc(&pointer, 4)), code(cudaErrorIllegalAddress));
    results.exact("in every thread", [&] {
        cudaError_t other;
        std::thread([&] { other = cudaDeviceSynchronize(); }).join();
        return code(other);
    }(), code(cudaErrorIllegalAddress));
    return results.finish();
}
