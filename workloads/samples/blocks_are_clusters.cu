// Blocks as clusters: kernels that say themselves how large their blocks and clusters are; a launch says how many clusters.
#include "sample.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int THREADS = 64, RANKS = 4, WIDE = 16, HIGH = 4;

// Each cluster sums what its threads come by: its blocks hand their sums to the first one.
__global__ __block_size__((THREADS, 1, 1), (RANKS, 1, 1)) void sum_clusters(const int* values, int count, int* sums) {
    __shared__ int own, all[RANKS];
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) own = 0;
    __syncthreads();
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += values[i];
    atomicAdd(&own, sum);
    __syncthreads();
    cluster.sync();
    if (threadIdx.x == 0) *cluster.map_shared_rank(&all[cluster.block_rank()], 0) = own;
    cluster.sync();
    if (cluster.thread_rank() != 0) return;
    for (int rank = 1; rank < RANKS; rank++) all[0] += all[rank];
    sums[blockIdx.x / RANKS] = all[0];
}

// Where each thread of a grid in two dimensions is, of blocks of 16 by 4 in clusters of 2 by 3.
__global__ __block_size__((WIDE, HIGH, 1), (2, 3, 1)) void places(int* out, unsigned* sizes) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    cg::cluster_group cluster = cg::this_cluster();
    out[y * gridDim.x * blockDim.x + x] = cluster.block_rank() * 1000 + threadIdx.y * WIDE + threadIdx.x;
    if (x != 0 || y != 0) return;
    const unsigned seen[] = {gridDim.x, gridDim.y, blockDim.x, blockDim.y, cluster.dim_blocks().x, cluster.dim_blocks().y};
    for (int i = 0; i < 6; i++) sizes[i] = seen[i];
}

// Without a cluster each block is one.
__global__ __block_size__((THREADS, 1, 1)) void doubled(int* values) { values[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 5000, clusters = 3;
    const std::vector<int> values = Numbers(73).integers(count, 1 << 16);
    std::vector<int> expected(clusters);
    for (int i = 0; i < count; i++) expected[i / (THREADS * RANKS) % clusters] += values[i];
    const Array<int> input(values), sums(clusters);
    sum_clusters<<<clusters>>>(input, count, sums);
    results.exact("sums of 3 clusters", sums.host(), expected);

    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    constexpr int across = 3, down = 2, width = across * 2 * WIDE, height = down * 3 * HIGH;
    const Array<int> out(width * height);
    const Array<unsigned> sizes(6);
    places<<<dim3(across, down), 1, 0, stream>>>(out, sizes);
    CHECK(cudaStreamSynchronize(stream));
    std::vector<int> expected_places(width * height);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const int rank = y / HIGH % 3 * 2 + x / WIDE % 2;
            expected_places[y * width + x] = rank * 1000 + y % HIGH * WIDE + x % WIDE;
        }
    }
    results.exact("places in 3 by 2 clusters", out.host(), expected_places);
    results.exact("sizes of grid, block and cluster", sizes.host(), std::vector<unsigned>{6, 6, WIDE, HIGH, 2, 3});

    // The same launch in a graph, twice.
    const Array<int> again(std::vector<int>(2 * THREADS, 3));
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    doubled<<<2, 1, 0, stream>>>(again);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    results.exact("doubled twice by a graph", again.host(), std::vector<int>(2 * THREADS, 12));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    return results.finish();
}
