// Tiles of a matrix by the tensor memory accelerator: the driver describes the matrix, one thread asks for a tile, and
// what lies outside comes as zeros. Tiles begin at multiples of 16 bytes, and are stored from 0 on.
#include "mbarrier.h"
#include "sample.h"

#include <cuda.h>

constexpr int TILE = 16, SHIFT = TILE / 2;

// Everything moves to the right, and zeros come in from the left.
__global__ void double_tiles(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) int tile[TILE][TILE];
    __shared__ Barrier barrier;
    const unsigned to = shared_address(tile);
    const int x = blockIdx.x * TILE, y = blockIdx.y * TILE;
    const int thread = threadIdx.y * TILE + threadIdx.x;
    if (thread == 0) {
        init(&barrier, 1);
        arrive_and_expect(&barrier, sizeof tile);
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
            "l"(&in), "r"(x - SHIFT), "r"(y), "r"(shared_address(&barrier))
            : "memory");
    }
    __syncthreads();
    wait(&barrier, 0);
    tile[threadIdx.y][threadIdx.x] = tile[threadIdx.y][threadIdx.x] * 2 + 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (thread == 0) {
        // What lies outside is not written.
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&out), "r"(x),
                     "r"(y), "r"(to)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

CUtensorMap describe(int* matrix, int width, int height) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, 0, &status));
    CUtensorMap map;
    const cuuint64_t sizes[] = {cuuint64_t(width), cuuint64_t(height)}, pitches[] = {width * sizeof(int)};
    const cuuint32_t box[] = {TILE, TILE}, steps[] = {1, 1};
    const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
        &map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, matrix, sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    CHECK(static_cast<cudaError_t>(result));
    return map;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int width = 40, height = 24;
    const std::vector<int> values = Numbers(42).integers(width * height, 1 << 20);
    std::vector<int> expected;
    for (int i = 0; i < width * height; i++) expected.push_back(i % width < SHIFT ? 1 : values[i - SHIFT] * 2 + 1);
    const Array<int> in(values), out(values.size());
    double_tiles<<<dim3(ceil_div(width, TILE), ceil_div(height, TILE)), dim3(TILE, TILE)>>>(
        describe(in, width, height), describe(out, width, height));
    results.exact("doubled", out.host(), expected);
    return results.finish();
}
