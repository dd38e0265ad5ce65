// A program that carries NVIDIA's runtime, as nvcc links it where nothing is said, and so does its library.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

// static_library.cu
int sum_in_library(int n);

__constant__ int factor = 3;
__managed__ int managed = 5;
__device__ int counter;

__global__ void count(int *out) {
  out[threadIdx.x] = factor * int(threadIdx.x) + managed;
  atomicAdd(&counter, 1);
}

static bool fails(const char *what, cudaError_t found, cudaError_t wanted) {
  if (found != wanted) std::printf("%s: %s instead of %s\n", what, cudaGetErrorName(found), cudaGetErrorName(wanted));
  return found != wanted;
}

int main() {
  // Whatever took the runtime's place did so before the C library had begun.
  if (std::getenv("PATH") == nullptr) return 12;
  const int n = 64;
  int version = 0, *out = nullptr, host[n], counted = 0;
  if (fails("version", cudaRuntimeGetVersion(&version), cudaSuccess) || version != CUDART_VERSION) return 1;
  if (fails("allocate", cudaMalloc(&out, sizeof host), cudaSuccess)) return 2;
  count<<<1, n>>>(out);
  if (fails("launch", cudaGetLastError(), cudaSuccess)) return 3;
  if (fails("copy", cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost), cudaSuccess)) return 4;
  for (int i = 0; i < n; i++)
    if (host[i] != 3 * i + 5) return 5;
  if (fails("variable", cudaMemcpyFromSymbol(&counted, counter, sizeof counted), cudaSuccess) || counted != n) return 6;
  count<<<1, 4096>>>(out);
  if (fails("a shape that cannot be", cudaPeekAtLastError(), cudaErrorInvalidConfiguration)) return 7;
  if (fails("that again", cudaGetLastError(), cudaErrorInvalidConfiguration)) return 8;
  cudaDeviceProp properties;
  if (fails("properties", cudaGetDeviceProperties(&properties, 0), cudaSuccess) || properties.major != 9) return 9;
  if (sum_in_library(n) != n * (n - 1) / 2) return 10;
  if (fails("free", cudaFree(out), cudaSuccess)) return 11;
  std::puts("as it should be");
}
