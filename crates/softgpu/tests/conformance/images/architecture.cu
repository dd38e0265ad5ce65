// What the driver chose: 900 for PTX of compute_90.
extern "C" __global__ void architecture(unsigned *out) { *out = __CUDA_ARCH__; }
