// Clusters, distributed shared memory, tensor maps, bulk copies and warp-group matrix instructions.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster(int *data) {
    __shared__ int mine;
    cg::cluster_group group = cg::this_cluster();
    mine = data[threadIdx.x];
    group.sync();
    data[threadIdx.x] = *group.map_shared_rank(&mine, group.block_rank() ^ 1);
    group.sync();
}

struct alignas(64) TensorMap { unsigned long long opaque[16]; };

extern "C" __global__ void __launch_bounds__(128, 1) bulk(const __grid_constant__ TensorMap map, float *out, int x) {
    __shared__ alignas(128) float tile[1024];
    __shared__ unsigned long long barrier;
    unsigned tile_at = (unsigned)__cvta_generic_to_shared(tile);
    unsigned barrier_at = (unsigned)__cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier_at), "r"(1));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier_at), "r"(4096));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%3, %4}], [%2];" :: "r"(tile_at), "l"(&map), "r"(barrier_at), "r"(x), "r"(0) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
            :: "r"(tile_at), "l"(out), "r"(1024), "r"(barrier_at) : "memory");
    }
    asm volatile(
        "{\n"
        ".reg .pred P1;\n"
        "LAB_WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
        "@P1 bra DONE;\n"
        "bra LAB_WAIT;\n"
        "DONE:\n"
        "}" :: "r"(barrier_at), "r"(0));
    float d[4] = {0, 0, 0, 0};
    unsigned long long a = tile_at >> 4, b = (tile_at + 2048) >> 4;
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
        "{%0, %1, %2, %3}, "
        " %4, %5, p, %7, %8, 0, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b), "r"(x), "n"(1), "n"(-1));
    asm volatile("wgmma.commit_group.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(0));
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(40));
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
        :: "l"(&map), "r"(tile_at), "r"(x), "r"(0) : "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    unsigned elected;
    asm volatile("{ .reg .pred P; elect.sync _|P, 0xffffffff; selp.b32 %0, 1, 0, P; }" : "=r"(elected));
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3] + elected;
}
