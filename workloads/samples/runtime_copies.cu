// Copies of every shape: rectangles, boxes, arrays, between devices, from and to pinned and registered memory.
// run: DETSHARE_SOFTGPU_DEVICES=2
#include "sample.h"

struct Plane {
    void* pointer;
    size_t pitch;
};

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int width = 100, height = 37, depth = 5;
    const std::vector<int> numbers = Numbers(7).integers(width * height * depth, 1 << 30);
    const size_t row = width * sizeof(int);

    Plane plane;
    CHECK(cudaMallocPitch(&plane.pointer, &plane.pitch, row, height));
    results.holds("a pitch suits all", plane.pitch >= row && plane.pitch % 16 == 0);
    CHECK(cudaMemset2D(plane.pointer, plane.pitch, 0, row, height));
    CHECK(cudaMemcpy2D(plane.pointer, plane.pitch, numbers.data(), row, row, height, cudaMemcpyHostToDevice));
    std::vector<int> back(width * height), expected(numbers.begin(), numbers.begin() + width * height);
    CHECK(cudaMemcpy2D(back.data(), row, plane.pointer, plane.pitch, row, height, cudaMemcpyDeviceToHost));
    results.exact("rectangle", back, expected);
    // A part of it, by bytes.
    std::vector<int> part(20 * 10);
    const char* corner = static_cast<const char*>(plane.pointer) + 3 * plane.pitch + 8 * sizeof(int);
    CHECK(cudaMemcpy2DAsync(part.data(), 20 * sizeof(int), corner, plane.pitch, 20 * sizeof(int), 10, cudaMemcpyDefault, 0));
    CHECK(cudaDeviceSynchronize());
    std::vector<int> part_expected;
    for (int y = 0; y < 10; y++) {
        for (int x = 0; x < 20; x++) part_expected.push_back(numbers[(y + 3) * width + x + 8]);
    }
    results.exact("a part of it", part, part_expected);

    cudaPitchedPtr box;
    const cudaExtent extent = make_cudaExtent(row, height, depth);
    CHECK(cudaMalloc3D(&box, extent));
    CHECK(cudaMemset3D(box, 0x11, extent));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(const_cast<int*>(numbers.data()), row, width, height);
    copy.dstPtr = box;
    copy.extent = make_cudaExtent(row, height, depth - 1);
    copy.dstPos = make_cudaPos(0, 0, 1);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    std::vector<int> whole(width * height * depth), whole_expected(width * height, 0x11111111);
    whole_expected.insert(whole_expected.end(), numbers.begin(), numbers.begin() + width * height * (depth - 1));
    cudaMemcpy3DParms out = {};
    out.srcPtr = box;
    out.dstPtr = make_cudaPitchedPtr(whole.data(), row, width, height);
    out.extent = extent;
    out.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3DAsync(&out, 0));
    CHECK(cudaDeviceSynchronize());
    results.exact("box", whole, whole_expected);

    cudaArray_t array;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<int2>();
    CHECK(cudaMallocArray(&array, &format, width / 2, height));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, numbers.data(), row, row, height, cudaMemcpyHostToDevice));
    std::fill(back.begin(), back.end(), 0);
    CHECK(cudaMemcpy2DFromArray(back.data(), row, array, 0, 0, row, height, cudaMemcpyDeviceToHost));
    results.exact("array", back, expected);
    cudaMemcpy3DParms element = {};
    element.srcArray = array;
    element.srcPos = make_cudaPos(5, 6, 0);
    std::vector<int> pairs(2 * 4 * 3);
    element.dstPtr = make_cudaPitchedPtr(pairs.data(), 4 * sizeof(int2), 4, 3);
    element.extent = make_cudaExtent(4, 3, 1);
    element.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&element));
    std::vector<int> pairs_expected;
    for (int y = 6; y < 9; y++) {
        for (int x = 10; x < 18; x++) pairs_expected.push_back(numbers[y * width + x]);
    }
    results.exact("elements of an array", pairs, pairs_expected);
    cudaChannelFormatDesc found;
    cudaExtent found_extent;
    unsigned flags;
    CHECK(cudaArrayGetInfo(&found, &found_extent, &flags, array));
    results.holds("what an array is", found.x == 32 && found.y == 32 && found.z == 0 && found.f == cudaChannelFormatKindSigned &&
                                          found_extent.width == width / 2 && found_extent.height == height);
    CHECK(cudaFreeArray(array));

    // With one device it is its own peer.
    int devices = 1, can = 0;
    CHECK(cudaGetDeviceCount(&devices));
    const int peer = devices > 1 ? 1 : 0;
    if (peer != 0) {
        CHECK(cudaDeviceCanAccessPeer(&can, 0, peer));
        CHECK(can != 0 ? cudaDeviceEnablePeerAccess(peer, 0) : cudaErrorPeerAccessUnsupported);
    }
    int *here, *there;
    CHECK(cudaMalloc(&here, row));
    CHECK(cudaSetDevice(peer));
    CHECK(cudaMalloc(&there, row));
    CHECK(cudaMemset(there, 0, row));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemcpy(here, numbers.data(), row, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyPeer(there, peer, here, 0, row));
    CHECK(cudaMemset(here, 0, row));
    CHECK(cudaMemcpyPeerAsync(here, 0, there, peer, row, 0));
    std::vector<int> line(width);
    CHECK(cudaMemcpy(line.data(), here, row, cudaMemcpyDefault));
    results.exact("there and back", line, std::vector<int>(numbers.begin(), numbers.begin() + width));
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, there));
    results.holds("whose memory", attributes.type == cudaMemoryTypeDevice && attributes.device == peer && attributes.devicePointer == there);

    int* pinned;
    CHECK(cudaHostAlloc(&pinned, row, cudaHostAllocPortable | cudaHostAllocMapped));
    CHECK(cudaMemcpyAsync(pinned, here, row, cudaMemcpyDeviceToHost, 0));
    CHECK(cudaStreamSynchronize(0));
    results.exact("pinned", std::vector<int>(pinned, pinned + width), line);
    CHECK(cudaHostGetFlags(&flags, pinned));
    results.holds("flags of pinned memory", (flags & cudaHostAllocPortable) != 0);
    CHECK(cudaPointerGetAttributes(&attributes, pinned));
    results.holds("pinned memory is the host's", attributes.type == cudaMemoryTypeHost && attributes.hostPointer == pinned);
    CHECK(cudaFreeHost(pinned));

    std::vector<int> own(1 << 16, 3);
    CHECK(cudaPointerGetAttributes(&attributes, own.data()));
    results.holds("not registered", attributes.type == cudaMemoryTypeUnregistered && attributes.devicePointer == nullptr);
    CHECK(cudaHostRegister(own.data(), own.size() * sizeof(int), cudaHostRegisterDefault));
    CHECK(cudaPointerGetAttributes(&attributes, own.data()));
    results.holds("registered", attributes.type == cudaMemoryTypeHost);
    CHECK(cudaMemcpy(here, own.data(), row, cudaMemcpyDefault));
    CHECK(cudaHostUnregister(own.data()));
    CHECK(cudaMemcpy(line.data(), here, row, cudaMemcpyDeviceToHost));
    results.exact("from registered memory", line, std::vector<int>(width, 3));

    int* managed;
    CHECK(cudaMallocManaged(&managed, row));
    CHECK(cudaPointerGetAttributes(&attributes, managed));
    results.holds("managed", attributes.type == cudaMemoryTypeManaged);
    CHECK(cudaMemPrefetchAsync(managed, row, cudaMemLocation{cudaMemLocationTypeDevice, 0}, 0, 0));
    CHECK(cudaMemset(managed, 0x22, row));
    CHECK(cudaDeviceSynchronize());
    results.exact("managed, filled by the device", std::vector<int>(managed, managed + width), std::vector<int>(width, 0x22222222));
    return results.finish();
}
