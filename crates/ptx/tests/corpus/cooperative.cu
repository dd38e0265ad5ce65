// Cooperative groups, and block barriers in shared memory.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>

namespace cg = cooperative_groups;

extern "C" __global__ void groups(int *data) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int sum = cg::reduce(tile, data[block.thread_rank()], cg::plus<int>());
    cg::coalesced_group active = cg::coalesced_threads();
    if (tile.thread_rank() == 0) {
        data[block.thread_rank()] = sum + active.size();
    }
    cg::this_grid().sync();
}

extern "C" __global__ void barriers(int *data) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    if (threadIdx.x == 0) {
        init(&barrier, blockDim.x);
    }
    __syncthreads();
    auto token = barrier.arrive();
    data[threadIdx.x] += 1;
    barrier.wait(std::move(token));
    data[threadIdx.x] += data[threadIdx.x ^ 1];
}
