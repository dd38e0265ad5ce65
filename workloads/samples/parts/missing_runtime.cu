// A kernel that asks the device runtime for what the software GPU's has not: the program must be told.
#include <cstdio>

__global__ void child() {}

__global__ void parent() {
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, child) == cudaSuccess) child<<<1, 1>>>();
}

int main() {
    parent<<<1, 1>>>();
    const cudaError_t launched = cudaGetLastError(), ended = cudaDeviceSynchronize();
    std::printf("%s, %s\n", cudaGetErrorName(launched), cudaGetErrorName(ended));
    return launched == cudaSuccess && ended == cudaSuccess ? 0 : 1;
}
