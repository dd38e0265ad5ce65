// What came with sm_80: asynchronous copies, mma, reductions of a warp.
// architecture: 80
// launch: copies <<<5, 64>>> (zero 5120, bits 5120)
// launch: pipeline <<<4, 64>>> (zero 1024, bits 8192)
// launch: reduced <<<5, 64>>> (zero 1280, bits 1280)
// launch: mma_f16 <<<4, 32>>> (zero 2048, f16 1024, f16 512)
// launch: mma_integer <<<4, 32>>> (zero 2048, bits 2048, bits 1024)
// launch: bfloat <<<4, 64>>> (zero 1024, bits 1024)
// launch: matmul_async <<<2x2, 8x8>>> (zero 1024, f32 1024, f32 1024)
#include <cuda_bf16.h>
#include <cuda_pipeline_primitives.h>
extern "C" __global__ void copies(uint4 *out, const uint4 *in) {
    __shared__ uint4 a[64];
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    __pipeline_memcpy_async(&a[threadIdx.x], &in[i], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[i] = a[63 - threadIdx.x];
}
extern "C" __global__ void pipeline(unsigned *out, const unsigned *in) {
    __shared__ unsigned stage[2][64];
    const unsigned *mine = in + blockIdx.x * 512;
    unsigned sum = 0;
    __pipeline_memcpy_async(&stage[0][threadIdx.x], &mine[threadIdx.x], 4);
    __pipeline_commit();
    for (int k = 0; k < 8; k++) {
        if (k < 7) __pipeline_memcpy_async(&stage[(k + 1) & 1][threadIdx.x], &mine[(k + 1) * 64 + threadIdx.x], 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum = sum * 3 + stage[k & 1][threadIdx.x ^ 17];
        __syncthreads();
    }
    out[blockIdx.x * 64 + threadIdx.x] = sum;
}
extern "C" __global__ void reduced(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    out[i] = __reduce_add_sync(~0u, in[i]) ^ __reduce_max_sync(~0u, in[i]);
}
extern "C" __global__ void mma_f16(float *c, const unsigned *a, const unsigned *b) {
    const unsigned *ma = a + blockIdx.x * 64 + threadIdx.x % 16 * 4, *mb = b + blockIdx.x * 32 + threadIdx.x % 16 * 2;
    float d[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(ma[0]), "r"(ma[1]), "r"(ma[2]), "r"(ma[3]), "r"(mb[0]), "r"(mb[1]));
    for (int k = 0; k < 4; k++) c[(blockIdx.x * 32 + threadIdx.x) * 4 + k] = d[k];
}
extern "C" __global__ void mma_integer(int *c, const unsigned *a, const unsigned *b) {
    const unsigned *ma = a + (blockIdx.x * 32 + threadIdx.x) * 4, *mb = b + (blockIdx.x * 32 + threadIdx.x) * 2;
    int d[4] = {1, 2, 3, 4};
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(ma[0]), "r"(ma[1]), "r"(ma[2]), "r"(ma[3]), "r"(mb[0]), "r"(mb[1]));
    for (int k = 0; k < 4; k++) c[(blockIdx.x * 32 + threadIdx.x) * 4 + k] = d[k];
}
extern "C" __global__ void bfloat(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    __nv_bfloat162 v = __floats2bfloat162_rn((float)(in[i] % 100), (float)(in[i] % 7));
    v = __hfma2(v, v, v);
    out[i] = *(unsigned *)&v;
}
extern "C" __global__ void matmul_async(float *c, const float *a, const float *b) {
    __shared__ float ta[8][8], tb[8][8];
    unsigned x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    float sum = 0;
    for (unsigned k = 0; k < 16; k += 8) {
        __pipeline_memcpy_async(&ta[threadIdx.y][threadIdx.x], &a[y * 16 + k + threadIdx.x], 4);
        __pipeline_memcpy_async(&tb[threadIdx.y][threadIdx.x], &b[(k + threadIdx.y) * 16 + x], 4);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        for (int i = 0; i < 8; i++) sum = fmaf(ta[threadIdx.y][i], tb[i][threadIdx.x], sum);
        __syncthreads();
    }
    c[y * 16 + x] = sum;
}
