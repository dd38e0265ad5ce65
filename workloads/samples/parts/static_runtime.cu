// A program with NVIDIA's own runtime in it, which the software GPU cannot run: that is told, and the program fails.
#include <cuda_runtime.h>

int main() { return cudaFree(nullptr) == cudaSuccess ? 0 : 1; }
