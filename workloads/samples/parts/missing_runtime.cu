// A kernel that asks the device runtime for what the software GPU's has not: the program must be told.
#include <cstdio>

__global__ void parent(cudaGraphExec_t graph) { cudaGraphLaunch(graph, cudaStreamGraphFireAndForget); }

int main() {
    parent<<<1, 1>>>(nullptr);
    const cudaError_t launched = cudaGetLastError(), ended = cudaDeviceSynchronize();
    std::printf("%s, %s\n", cudaGetErrorName(launched), cudaGetErrorName(ended));
    return launched == cudaSuccess && ended == cudaSuccess ? 0 : 1;
}
