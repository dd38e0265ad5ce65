// A library of a program that carries NVIDIA's runtime, with a runtime of its own.
#include <cuda_runtime.h>

__global__ void add(int *sum) { atomicAdd(sum, int(threadIdx.x)); }

int sum_in_library(int n) {
  int *sum = nullptr, found = -1;
  if (cudaMalloc(&sum, sizeof *sum) != cudaSuccess || cudaMemset(sum, 0, sizeof *sum) != cudaSuccess) return -1;
  add<<<1, n>>>(sum);
  if (cudaMemcpy(&found, sum, sizeof found, cudaMemcpyDeviceToHost) != cudaSuccess) return -1;
  return cudaFree(sum) == cudaSuccess ? found : -1;
}
