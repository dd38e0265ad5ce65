// printf, assert, malloc and free: functions of the driver, and strings.

#include <cassert>
#include <cstdio>

extern "C" __global__ void greet(int limit, double value) {
    printf("thread %d of %u says \"%s\": %f\n", threadIdx.x, blockDim.x, "hello", value);
    assert(threadIdx.x < limit);
    int *memory = (int *)malloc(sizeof(int) * limit);
    memory[threadIdx.x] = 1;
    printf("%p\t100%%\n", memory);
    free(memory);
}
