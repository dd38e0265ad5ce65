// What came with sm_90: clusters, and barriers in shared memory with bulk copies.
// architecture: 90
// launch: bulk <<<4, 32>>> (zero 2048, bits 2048)
// launch: mbarrier_phases <<<4, 64>>> (zero 1024, bits 1024)
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ unsigned address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void bulk(unsigned *out, const unsigned *in) {
    __shared__ alignas(16) unsigned a[128];
    __shared__ unsigned long long gate;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address(&gate)));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" ::"r"(address(&gate)));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(address(a)),
                     "l"(__cvta_generic_to_global(in + blockIdx.x * 128)), "r"(address(&gate)));
    }
    __syncthreads();
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(address(&gate)) : "memory");
    for (int k = 0; k < 4; k++) out[blockIdx.x * 128 + k * 32 + threadIdx.x] = a[127 - k * 32 - threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(address(&gate)));
}
extern "C" __global__ void mbarrier_phases(unsigned *out, const unsigned *in) {
    __shared__ unsigned a[64];
    __shared__ unsigned long long gate;
    unsigned i = blockIdx.x * 64 + threadIdx.x, v = in[i];
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(address(&gate)));
    __syncthreads();
    for (unsigned phase = 0; phase < 4; phase++) {
        a[threadIdx.x] = v;
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address(&gate)) : "memory");
        unsigned done = 0;
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(address(&gate)), "r"(phase & 1) : "memory");
        v = a[(threadIdx.x + 5) % 64] * 3;
        __syncthreads();
    }
    out[i] = v;
    if (threadIdx.x == 0) asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(address(&gate)));
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) clusters(unsigned *out) {
    __shared__ unsigned a;
    auto cluster = cg::this_cluster();
    a = blockIdx.x;
    cluster.sync();
    out[blockIdx.x] = *cluster.map_shared_rank(&a, cluster.block_rank() ^ 1);
    cluster.sync();
}
extern "C" __global__ void dependent(unsigned *out) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    out[blockIdx.x] = blockIdx.x;
}
