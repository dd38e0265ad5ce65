// What kernels can ask and copy besides launching kernels, with the block's default stream.
// nvcc: -rdc=true
#include "device_runtime.h"

int main(int argc, char** argv) { return device_runtime(argc, argv); }
