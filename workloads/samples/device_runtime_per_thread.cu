// The same where each thread has a default stream: other functions of the library that kernels are linked with.
// nvcc: -rdc=true --default-stream per-thread
#include "device_runtime.h"

int main(int argc, char** argv) { return device_runtime(argc, argv); }
