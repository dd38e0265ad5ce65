// Arrays of arrays that get smaller: levels, what is known of them, and copies to, from and between them, in layers too.
#include "sample.h"

// Each level has the mean of four elements of the one before it.
std::vector<int> smaller(const std::vector<int>& values, int width, int height) {
    std::vector<int> means;
    for (int y = 0; y + 1 < height; y += 2) {
        for (int x = 0; x + 1 < width; x += 2) {
            const int* row = &values[y * width + x];
            means.push_back((row[0] + row[1] + row[width] + row[width + 1]) / 4);
        }
    }
    return means;
}

__global__ void make_smaller(const int* values, int* means, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width / 2 || y >= height / 2) return;
    const int* row = values + 2 * y * width + 2 * x;
    means[y * (width / 2) + x] = (row[0] + row[1] + row[width] + row[width + 1]) / 4;
}

int main(int argc, char** argv) {
    Results results(argc, argv);

    const int width = 64, height = 32, levels = 4;
    const cudaChannelFormatDesc channel = cudaCreateChannelDesc<int>();
    cudaMipmappedArray_t mipmap;
    CHECK(cudaMallocMipmappedArray(&mipmap, &channel, make_cudaExtent(width, height, 0), levels));

    // The device makes each level from the one before it, and both go through the array.
    std::vector<int> expected = Numbers(23).integers(width * height, 100000);
    cudaArray_t array;
    CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, 0));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, expected.data(), width * sizeof(int), width * sizeof(int), height, cudaMemcpyHostToDevice));
    std::vector<int> extents, expected_extents;
    for (int level = 0; level < levels; level++) {
        const int across = width >> level, down = height >> level;
        CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
        cudaChannelFormatDesc found;
        cudaExtent extent;
        CHECK(cudaArrayGetInfo(&found, &extent, nullptr, array));
        extents.insert(extents.end(), {found.x, found.y, static_cast<int>(extent.width), static_cast<int>(extent.height)});
        expected_extents.insert(expected_extents.end(), {32, 0, across, down});

        const Array<int> values(across * down), means(across / 2 * (down / 2));
        CHECK(cudaMemcpy2DFromArray(values, across * sizeof(int), array, 0, 0, across * sizeof(int), down, cudaMemcpyDeviceToDevice));
        results.exact("level " + std::to_string(level), values.host(), expected);
        if (level + 1 == levels) break;
        make_smaller<<<dim3(ceil_div(across / 2, 16), ceil_div(down / 2, 8)), dim3(16, 8)>>>(values, means, across, down);
        expected = smaller(expected, across, down);
        cudaArray_t next;
        CHECK(cudaGetMipmappedArrayLevel(&next, mipmap, level + 1));
        CHECK(cudaMemcpy2DToArrayAsync(next, 0, 0, means, across / 2 * sizeof(int), across / 2 * sizeof(int), down / 2,
                                       cudaMemcpyDeviceToDevice, nullptr));
    }
    results.exact("channels and extents", extents, expected_extents);

    // A corner of the first level becomes the second one.
    cudaArray_t first, second;
    CHECK(cudaGetMipmappedArrayLevel(&first, mipmap, 0));
    CHECK(cudaGetMipmappedArrayLevel(&second, mipmap, 1));
    CHECK(cudaMemcpy2DArrayToArray(second, 0, 0, first, 8 * sizeof(int), 4, width / 2 * sizeof(int), height / 2, cudaMemcpyDeviceToDevice));
    std::vector<int> corner(width / 2 * (height / 2)), expected_corner;
    CHECK(cudaMemcpy2DFromArray(corner.data(), width / 2 * sizeof(int), second, 0, 0, width / 2 * sizeof(int), height / 2, cudaMemcpyDeviceToHost));
    const std::vector<int> numbers = Numbers(23).integers(width * height, 100000);
    for (int y = 0; y < height / 2; y++) {
        for (int x = 0; x < width / 2; x++) expected_corner.push_back(numbers[(y + 4) * width + x + 8]);
    }
    results.exact("corner", corner, expected_corner);

    // What there is not.
    cudaArray_t none;
    cudaArrayMemoryRequirements memory;
    cudaArraySparseProperties tiles;
    const std::vector<int> errors = {
        cudaGetMipmappedArrayLevel(&none, mipmap, levels),
        cudaMipmappedArrayGetMemoryRequirements(&memory, mipmap, 0),
        cudaMipmappedArrayGetSparseProperties(&tiles, mipmap),
    };
    results.exact("what there is not", errors, std::vector<int>(errors.size(), cudaErrorInvalidValue));
    cudaGetLastError();
    CHECK(cudaFreeMipmappedArray(mipmap));

    // All levels have as many layers.
    const int layers = 3;
    CHECK(cudaMallocMipmappedArray(&mipmap, &channel, make_cudaExtent(width, height, layers), 2, cudaArrayLayered));
    CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, 1));
    std::vector<int> stacked = Numbers(24).integers(width / 2 * (height / 2) * layers, 1000), found(stacked.size());
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(stacked.data(), width / 2 * sizeof(int), width / 2, height / 2);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(width / 2, height / 2, layers);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    copy = {};
    copy.srcArray = array;
    copy.dstPtr = make_cudaPitchedPtr(found.data(), width / 2 * sizeof(int), width / 2, height / 2);
    copy.extent = make_cudaExtent(width / 2, height / 2, layers);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    results.exact("layers", found, stacked);
    CHECK(cudaFreeMipmappedArray(mipmap));
    return results.finish();
}
