// A C program that carries the runtime of CUDA 12, which says of a device what that of CUDA 13 does not.
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  int version = 0;
  char text[] = "from here to there", back[sizeof text] = "";
  void *place = NULL;
  struct cudaDeviceProp properties;
  if (cudaRuntimeGetVersion(&version) != cudaSuccess || version != CUDART_VERSION) return 1;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return 2;
  if (properties.major != 9 || properties.clockRate <= 0 || properties.cooperativeLaunch != 1) return 3;
  if (cudaMalloc(&place, sizeof text) != cudaSuccess) return 4;
  if (cudaMemcpy(place, text, sizeof text, cudaMemcpyHostToDevice) != cudaSuccess) return 5;
  if (cudaMemcpy(back, place, sizeof back, cudaMemcpyDeviceToHost) != cudaSuccess) return 6;
  if (strcmp(text, back) != 0) return 7;
  puts("as it should be");
  return cudaFree(place) == cudaSuccess ? 0 : 8;
}
