// Warps and cooperative groups; kernels whose blocks wait for each other.
// launch: votes <<<5, 64>>> (zero 1280, bits 1280)
// launch: matches <<<5, 64>>> (zero 1280, below 4 1280)
// launch: tile_reduce <<<5, 96>>> (zero 1920, bits 1920)
// launch: group_sync <<<5, 96>>> (zero 1920, bits 1920)
// launch: coalesced <<<5, 96>>> (zero 20, bits 1920)
// launch: group_numbers <<<3x2, 32>>> (zero 768)
// launch: warp_scan_lane <<<5, 64>>> (zero 1280, bits 1280)
// launch: unique_lane <<<5, 64>>> (zero 1280, bits 1280)
// launch: spin_lock <<<5, 32>>> (zero 8)
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void votes(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    out[i] = __ballot_sync(~0u, in[i] & 1) + __all_sync(~0u, in[i] > 9) + 2 * __any_sync(~0u, in[i] % 50 == 0);
}
extern "C" __global__ void matches(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    out[i] = __match_any_sync(~0u, in[i]) ^ blockIdx.x;
}
extern "C" __global__ void tile_reduce(unsigned *out, const unsigned *in) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    unsigned i = blockIdx.x * 96 + threadIdx.x, v = in[i];
    for (int s = 4; s > 0; s /= 2) v += tile.shfl_down(v, s);
    out[i] = tile.shfl(v, 0) + tile.meta_group_rank();
}
extern "C" __global__ void group_sync(unsigned *out, const unsigned *in) {
    __shared__ unsigned a[96];
    auto block = cg::this_thread_block();
    unsigned i = blockIdx.x * 96 + block.thread_rank();
    a[block.thread_rank()] = in[i];
    block.sync();
    out[i] = a[95 - block.thread_rank()] + block.group_index().x;
}
extern "C" __global__ void coalesced(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 96 + threadIdx.x;
    if (in[i] % 3 == 0) {
        auto active = cg::coalesced_threads();
        if (active.thread_rank() == 0) atomicAdd(&out[blockIdx.x], active.size());
    }
}
extern "C" __global__ void group_numbers(unsigned *out) {
    auto block = cg::this_thread_block();
    dim3 b = block.group_index();
    out[(b.y * gridDim.x + b.x) * 32 + block.thread_rank()] = b.x * 10 + b.y + block.size() * 100;
}
extern "C" __global__ void warp_scan_lane(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x, mask = __ballot_sync(~0u, in[i] & 4), below;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    out[i] = __popc(mask & below);
}
extern "C" __global__ void unique_lane(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 64 + threadIdx.x, v = in[i] % 4;
    for (unsigned k = 0; k < 4; k++) {
        unsigned mask = __ballot_sync(~0u, v == k);
        if (v == k) out[i] = __ffs(mask) + k * 100;
    }
}
extern "C" __global__ void spin_lock(unsigned *lock) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        ((volatile unsigned *)lock)[1] += blockIdx.x + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}
extern "C" __global__ void grid_sync(unsigned *data) {
    auto grid = cg::this_grid();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i;
    grid.sync();
    data[i] += data[(i + blockDim.x) % (gridDim.x * blockDim.x)];
}
extern "C" __global__ void look_back(unsigned *out, volatile unsigned *state, volatile unsigned *sums, const unsigned *in) {
    __shared__ unsigned before;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ unsigned own;
    if (threadIdx.x == 0) own = 0;
    __syncthreads();
    atomicAdd(&own, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned sum = 0;
        if (blockIdx.x > 0) {
            while (state[blockIdx.x - 1] == 0) {}
            __threadfence();
            sum = sums[blockIdx.x - 1];
        }
        sums[blockIdx.x] = sum + own;
        __threadfence();
        state[blockIdx.x] = 1;
        before = sum;
    }
    __syncthreads();
    out[i] = before + in[i];
}
extern "C" __global__ void ticket_look_back(unsigned *ticket, volatile unsigned *state, unsigned *out) {
    __shared__ unsigned mine;
    if (threadIdx.x == 0) mine = atomicAdd(ticket, 1);
    __syncthreads();
    if (threadIdx.x == 0 && mine > 0)
        while (state[mine - 1] == 0) {}
    __syncthreads();
    out[mine * blockDim.x + threadIdx.x] = mine;
    __threadfence();
    if (threadIdx.x == 0) state[mine] = 1;
}
extern "C" __global__ void where_am_i(unsigned *out) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    out[blockIdx.x] = sm;
}
