// What kernels can do besides launching kernels: ask for errors, limits and what is known of a kernel, and copy and fill boxes. The same
// for programs with the legacy default stream and with one for each thread.
#pragma once

#include <cstring>

#include "sample.h"

constexpr int longest_name = 64;

// The names of some errors, and whether all of them have words.
__global__ void name_errors(const int* errors, int count, char* names, int* without_words) {
    for (int i = 0; i < count; i++) {
        const char* name = cudaGetErrorName(static_cast<cudaError_t>(errors[i]));
        for (int k = 0; name[k] != 0 && k < longest_name; k++) names[i * longest_name + k] = name[k];
        *without_words += cudaGetErrorString(static_cast<cudaError_t>(errors[i]))[0] == 0;
    }
}

__device__ int share(int thread) { return 3 * thread + 1; }

// A kernel with something to ask about.
__global__ void __launch_bounds__(192) reverse(int* values) {
    __shared__ int turned[192];
    turned[blockDim.x - 1 - threadIdx.x] = values[threadIdx.x] + share(threadIdx.x);
    __syncthreads();
    values[threadIdx.x] = turned[threadIdx.x];
}

struct Answers {
    int failed, device, devices, threads, version, shared, most_threads, blocks, blocks_with_shared, no_attribute;
    size_t heap, stack;
};

__global__ void ask(Answers* answers) {
    Answers found = {};
    cudaFuncAttributes attributes;
    found.failed += cudaGetDevice(&found.device) != cudaSuccess;
    found.failed += cudaGetDeviceCount(&found.devices) != cudaSuccess;
    found.failed += cudaDeviceGetAttribute(&found.threads, cudaDevAttrMaxThreadsPerBlock, found.device) != cudaSuccess;
    found.failed += cudaRuntimeGetVersion(&found.version) != cudaSuccess;
    found.failed += cudaDeviceGetLimit(&found.heap, cudaLimitMallocHeapSize) != cudaSuccess;
    found.failed += cudaDeviceGetLimit(&found.stack, cudaLimitStackSize) != cudaSuccess;
    found.failed += cudaFuncGetAttributes(&attributes, reverse) != cudaSuccess;
    found.shared = static_cast<int>(attributes.sharedSizeBytes);
    found.most_threads = attributes.maxThreadsPerBlock;
    found.failed += cudaOccupancyMaxActiveBlocksPerMultiprocessor(&found.blocks, reverse, 192, 0) != cudaSuccess;
    found.failed += cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&found.blocks_with_shared, reverse, 64, 40000,
                                                                          cudaOccupancyDefault) != cudaSuccess;
    int value = 0;
    found.no_attribute = cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(100000), found.device) != cudaSuccess;
    cudaGetLastError();
    *answers = found;
}

__global__ void append(int* list, int value) {
    const int place = atomicAdd(list, 1);
    list[1 + place] = value;
}

// Each thread's own work has its order, in the default stream and in one of its own, and an event holds the latter back.
__global__ void in_order(int* lists, int length, int* failed) {
    int* list = lists + threadIdx.x * (length + 1);
    cudaStream_t stream;
    cudaEvent_t event;
    int wrong = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
    wrong += cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess;
    for (int i = 0; i < length / 2; i++) append<<<1, 1>>>(list, i);
    wrong += cudaEventRecord(event, nullptr) != cudaSuccess;
    wrong += cudaStreamWaitEvent(stream, event, 0) != cudaSuccess;
    for (int i = length / 2; i < length; i++) append<<<1, 1, 0, stream>>>(list, i);
    wrong += cudaEventDestroy(event) != cudaSuccess;
    wrong += cudaStreamDestroy(stream) != cudaSuccess;
    wrong += cudaGetLastError() != cudaSuccess;
    atomicAdd(failed, wrong);
}

struct Box {
    int width, height, depth, pitch, rows;
    __host__ __device__ int count() const { return pitch * rows * depth; }
    __host__ __device__ int at(int x, int y, int z) const { return (z * rows + y) * pitch + x; }
};

__global__ void add(int* values, int count, int amount) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] += amount;
}

// A rectangle of a plane and a box of a box, behind a kernel and before another, and zeros within what was copied.
__global__ void boxes(int* from, Box source, int* plane, int* to, Box target, int* failed) {
    add<<<(source.count() + 127) / 128, 128>>>(from, source.count(), 1000);
    int wrong = cudaMemcpy2DAsync(plane, target.width * sizeof(int), from + source.at(1, 2, 0), source.pitch * sizeof(int),
                                  target.width * sizeof(int), target.height, cudaMemcpyDeviceToDevice, nullptr) != cudaSuccess;
    wrong += cudaMemset2DAsync(plane + 1, target.width * sizeof(int), 0, 2 * sizeof(int), 3, nullptr) != cudaSuccess;
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = {from, source.pitch * sizeof(int), source.width * sizeof(int), static_cast<size_t>(source.rows)};
    copy.srcPos = {2 * sizeof(int), 1, 1};
    copy.dstPtr = {to, target.pitch * sizeof(int), target.width * sizeof(int), static_cast<size_t>(target.rows)};
    copy.dstPos = {1 * sizeof(int), 0, 0};
    copy.extent = {(target.width - 1) * sizeof(int), static_cast<size_t>(target.height), static_cast<size_t>(target.depth)};
    copy.kind = cudaMemcpyDeviceToDevice;
    wrong += cudaMemcpy3DAsync(&copy, nullptr) != cudaSuccess;
    cudaPitchedPtr corner = copy.dstPtr;
    corner.ptr = to + target.at(2, 1, 0);
    wrong += cudaMemset3DAsync(corner, 0, {2 * sizeof(int), 2, static_cast<size_t>(target.depth)}, nullptr) != cudaSuccess;
    add<<<(target.count() + 127) / 128, 128>>>(to, target.count(), 7);
    wrong += cudaGetLastError() != cudaSuccess;
    *failed = wrong;
}

inline int device_runtime(int argc, char** argv) {
    Results results(argc, argv);

    const std::vector<int> errors = {cudaSuccess, cudaErrorInvalidValue, cudaErrorInvalidConfiguration, cudaErrorNotSupported};
    const Array<int> codes(errors), without_words(1);
    const Array<char> names(errors.size() * longest_name);
    name_errors<<<1, 1>>>(codes, static_cast<int>(errors.size()), names, without_words);
    std::vector<char> expected_names(errors.size() * longest_name);
    for (size_t i = 0; i < errors.size(); i++) {
        std::strncpy(&expected_names[i * longest_name], cudaGetErrorName(static_cast<cudaError_t>(errors[i])), longest_name - 1);
    }
    results.exact("names of errors", names.host(), expected_names);
    results.exact("errors without words", without_words.host()[0], 0);

    const Array<Answers> answers(1);
    ask<<<1, 1>>>(answers);
    const Answers found = answers.host()[0];
    int device = -1, devices = 0, threads = 0, blocks = 0, blocks_with_shared = 0;
    size_t heap = 0, stack = 0;
    cudaFuncAttributes attributes;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerBlock, device));
    CHECK(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
    CHECK(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
    CHECK(cudaFuncGetAttributes(&attributes, reverse));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reverse, 192, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_with_shared, reverse, 64, 40000));
    results.exact("calls that failed", found.failed, 0);
    results.exact("an attribute that there is not", found.no_attribute, 1);
    results.exact("the release that kernels are told", found.version, 6000);
    // As the host is told; numbers of this machine are no results.
    const auto same = [&](const char* name, size_t one, size_t other) { results.exact(name, static_cast<int>(one == other), 1); };
    same("device", found.device, device);
    same("devices", found.devices, devices);
    same("threads of a block", found.threads, threads);
    same("heap", found.heap, heap);
    same("stack", found.stack, stack);
    same("shared memory", found.shared, attributes.sharedSizeBytes);
    same("most threads", found.most_threads, attributes.maxThreadsPerBlock);
    same("blocks", found.blocks, blocks);
    same("blocks with shared memory", found.blocks_with_shared, blocks_with_shared);

    const int streams = 8, length = 20;
    const Array<int> lists(streams * (length + 1)), failed(1);
    in_order<<<1, streams>>>(lists, length, failed);
    std::vector<int> expected_lists;
    for (int thread = 0; thread < streams; thread++) {
        expected_lists.push_back(length);
        for (int i = 0; i < length; i++) expected_lists.push_back(i);
    }
    results.exact("in order", lists.host(), expected_lists);
    results.exact("streams that failed", failed.host()[0], 0);

    const Box source = {9, 7, 4, 11, 8}, target = {5, 4, 3, 6, 5};
    const std::vector<int> numbers = Numbers(22).integers(source.count(), 500);
    const Array<int> from(numbers), plane(target.width * target.height), to(target.count());
    boxes<<<1, 1>>>(from, source, plane, to, target, failed);
    std::vector<int> expected_plane, expected(target.count());
    for (int y = 0; y < target.height; y++) {
        for (int x = 0; x < target.width; x++) {
            const bool is_zero = (x == 1 || x == 2) && y < 3;
            expected_plane.push_back(is_zero ? 0 : numbers[source.at(x + 1, y + 2, 0)] + 1000);
        }
    }
    for (int z = 0; z < target.depth; z++) {
        for (int y = 0; y < target.height; y++) {
            for (int x = 1; x < target.width; x++) expected[target.at(x, y, z)] = numbers[source.at(x + 1, y + 1, z + 1)] + 1000;
        }
        for (int y = 1; y < 3; y++) {
            for (int x = 2; x < 4; x++) expected[target.at(x, y, z)] = 0;
        }
    }
    for (int& value : expected) value += 7;
    results.exact("rectangle", plane.host(), expected_plane);
    results.exact("box", to.host(), expected);
    results.exact("copies that failed", failed.host()[0], 0);
    return results.finish();
}
