// Clusters: blocks that read and add to each other's shared memory, with a size fixed in the kernel and one set at launch.
#include "sample.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int BINS = 64, THREADS = 64;

// A histogram spread over the blocks of a cluster; every block adds to the part that holds its value.
__global__ __cluster_dims__(4) void spread_histogram(const int* values, int count, int* bins) {
    __shared__ int part[BINS];
    cg::cluster_group cluster = cg::this_cluster();
    const int ranks = cluster.num_blocks();
    part[threadIdx.x] = 0;
    cluster.sync();
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS) {
        const int bin = values[i] % (BINS * ranks);
        atomicAdd(cluster.map_shared_rank(part, bin / BINS) + bin % BINS, 1);
    }
    cluster.sync();
    atomicAdd(&bins[cluster.block_rank() * BINS + threadIdx.x], part[threadIdx.x]);
}

// Each block hands its sum to its right neighbour, round the ring, until all have been everywhere.
__global__ void ring(const int* values, int* sums, unsigned* ranks) {
    __shared__ int own, passed[2];
    cg::cluster_group cluster = cg::this_cluster();
    const unsigned rank = cluster.block_rank(), size = cluster.num_blocks();
    if (threadIdx.x == 0) own = passed[0] = values[blockIdx.x];
    int* const right = cluster.map_shared_rank(passed, (rank + 1) % size);
    for (int step = 0; step + 1 < size; step++) {
        cluster.sync();
        if (threadIdx.x == 0) right[(step + 1) % 2] = passed[step % 2];
        cluster.sync();
        if (threadIdx.x == 0) own += passed[(step + 1) % 2];
    }
    cluster.sync();
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = own;
        ranks[blockIdx.x] = rank;
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 5000, cluster = 4;
    const std::vector<int> values = Numbers(39).integers(count, 1 << 20);
    std::vector<int> expected(BINS * cluster);
    for (int value : values) expected[value % (BINS * cluster)]++;
    const Array<int> input(values), bins(BINS * cluster);
    spread_histogram<<<cluster * 3, THREADS>>>(input, count, bins);
    results.exact("histogram over a cluster's shared memory", bins.host(), expected);

    for (int size : {2, 8}) {
        const int blocks = size * 3;
        const Array<int> sums(blocks);
        const Array<unsigned> ranks(blocks);
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = size;
        attribute.val.clusterDim.y = 1;
        attribute.val.clusterDim.z = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(blocks);
        config.blockDim = dim3(32);
        config.attrs = &attribute;
        config.numAttrs = 1;
        CHECK(cudaLaunchKernelEx(&config, ring, static_cast<const int*>(input.get()), sums.get(), ranks.get()));
        std::vector<int> expected_sums(blocks);
        std::vector<unsigned> expected_ranks(blocks);
        for (int block = 0; block < blocks; block++) {
            expected_ranks[block] = block % size;
            for (int k = 0; k < size; k++) expected_sums[block] += values[block / size * size + k];
        }
        results.exact("round a ring of " + std::to_string(size), sums.host(), expected_sums);
        results.exact("ranks in clusters of " + std::to_string(size), ranks.host(), expected_ranks);
    }
    return results.finish();
}
