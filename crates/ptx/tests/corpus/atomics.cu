// Atomic operations in every space and scope, fences and volatile accesses.

__device__ unsigned int tickets;
__device__ volatile int flag;

extern "C" __global__ void atomics(int *i, unsigned *u, unsigned long long *l, float *f, double *d, unsigned short *s) {
    __shared__ int local[64];
    local[threadIdx.x & 63] = 0;
    __syncthreads();
    atomicAdd(&local[threadIdx.x & 31], 1);
    atomicAdd(i, 1);
    atomicMin(i + 1, threadIdx.x);
    atomicMax(u, threadIdx.x);
    atomicInc(u + 1, 100);
    atomicDec(u + 2, 100);
    atomicAnd(u + 3, 0xff);
    atomicOr(u + 4, 1);
    atomicXor(u + 5, 3);
    u[6] = atomicExch(u + 7, 9);
    u[8] = atomicCAS(u + 9, 1, 2);
    s[0] = atomicCAS(s + 1, (unsigned short)1, (unsigned short)2);
    l[0] = atomicAdd(l + 1, 5ull);
    l[2] = atomicCAS(l + 3, 1ull, 2ull);
    atomicAdd(f, 1.0f);
    atomicAdd(d, 1.0);
    atomicAdd_block(i + 2, 1);
    atomicAdd_system(i + 3, 1);
    __threadfence_block();
    __threadfence();
    __threadfence_system();
    if (atomicInc(&tickets, gridDim.x) == gridDim.x - 1) {
        flag = local[0];
    }
    while (flag == 0) {
        __nanosleep(100);
    }
}
