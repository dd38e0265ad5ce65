// Matrix instructions: wmma, and mma.sync with ldmatrix and cp.async in assembly.

#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

extern "C" __global__ void fragments(const __half *a, const __half *b, float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_part;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b_part;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(a_part, a, 16);
    wmma::load_matrix_sync(b_part, b, 16);
    wmma::mma_sync(sum, a_part, b_part, sum);
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

#if __CUDA_ARCH__ >= 800
extern "C" __global__ void pipeline(const uint4 *from, float *out) {
    __shared__ uint4 stage[64];
    unsigned at = (unsigned)__cvta_generic_to_shared(&stage[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" :: "r"(at), "l"(from + threadIdx.x));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"(at + 512), "l"(from), "r"(4));
    asm volatile("cp.async.commit_group;\n");
    asm volatile("cp.async.wait_group %0;\n" :: "n"(0));
    __syncthreads();
    unsigned a[4], b[2];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(b[0]), "=r"(b[1]) : "r"(at));
    float d[4] = {0, 0, 0, 0};
    asm volatile(
        "{\n"
        "  .reg .pred ready;\n"
        "  setp.ne.b32 ready, %10, 0;\n"
        "  @ready mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32\n"
        "    {%0,%1,%2,%3}, {%4,%5,%6,%7},\n"
        "    {%8,%9}, {%0,%1,%2,%3};\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(at));
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
#endif
