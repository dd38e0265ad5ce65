// A kernel that calls what CUDA's headers declare and its library does not define: no driver can link it.
#include <cstdio>

__global__ void parent(cudaEvent_t event) { cudaEventRecordWithFlags(event, nullptr, cudaEventRecordDefault); }

int main() {
    parent<<<1, 1>>>(nullptr);
    const cudaError_t launched = cudaGetLastError(), ended = cudaDeviceSynchronize();
    std::printf("%s, %s\n", cudaGetErrorName(launched), cudaGetErrorName(ended));
    return launched == cudaSuccess && ended == cudaSuccess ? 0 : 1;
}
