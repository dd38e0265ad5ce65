// Kernels as values: attributes, occupancy, names, launches with attributes, templates, libraries that are loaded, and the device.
#include "sample.h"

#include <cooperative_groups.h>

template <class T, int Factor>
__global__ void multiply(T* values, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= Factor;
}

__global__ void __launch_bounds__(128) limited(int* values) {
    __shared__ int here[128];
    here[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = here[127 - threadIdx.x];
}

__global__ void dynamic(int* values, int n) {
    extern __shared__ int room[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) room[i] = values[i] + 1;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = room[n - 1 - i];
}

__global__ void cluster_sums(int* sums) {
    const auto cluster = cooperative_groups::this_cluster();
    __shared__ int own;
    if (threadIdx.x == 0) own = blockIdx.x + 1;
    cluster.sync();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (unsigned rank = 0; rank < cluster.num_blocks(); rank++) sum += *cluster.map_shared_rank(&own, rank);
        sums[blockIdx.x] = sum;
    }
    cluster.sync();
}

__global__ void grid_steps(int* values, int n) {
    const auto grid = cooperative_groups::this_grid();
    for (int step = 1; step < n; step *= 2) {
        const int i = static_cast<int>(grid.thread_rank());
        const int other = i >= step && i < n ? values[i - step] : 0;
        grid.sync();
        if (i < n) values[i] += other;
        grid.sync();
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    int count = 1000;
    const Array<int> values(std::vector<int>(count, 3));
    int* pointer = values;

    // Any of them by its address.
    const void* kernels[] = {reinterpret_cast<const void*>(multiply<int, 2>), reinterpret_cast<const void*>(multiply<int, 5>)};
    for (const void* kernel : kernels) {
        void* arguments[] = {&pointer, &count};
        CHECK(cudaLaunchKernel(kernel, dim3(8), dim3(128), arguments, 0, 0));
    }
    results.exact("templates by their addresses", values.host(), std::vector<int>(count, 30));

    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, limited));
    results.exact("attributes", std::vector<int>{attributes.maxThreadsPerBlock, int(attributes.sharedSizeBytes), attributes.ptxVersion},
                  std::vector<int>{128, 512, 90});
    const char* name = nullptr;
    CHECK(cudaFuncGetName(&name, reinterpret_cast<const void*>(limited)));
    results.holds("name", std::strcmp(name, "_Z7limitedPi") == 0);
    size_t offset, size;
    CHECK(cudaFuncGetParamInfo(kernels[0], 1, &offset, &size));
    results.exact("parameters", std::vector<int>{int(offset), int(size)}, std::vector<int>{8, 4});

    int blocks = 0, threads = 0, grid = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, limited, 128, 100 << 10));
    results.exact("none fits that has not asked for so much", blocks, 0);
    CHECK(cudaFuncSetAttribute(limited, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, limited, 128, 100 << 10));
    results.exact("blocks that fit beside each other", blocks, 2);
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &threads, dynamic, 0, 256));
    results.exact("a block of the size that fits best", threads, 256);

    int wanted = 150 << 10, n = wanted / int(sizeof(int));
    const Array<int> large(Numbers(5).integers(n, 1000));
    std::vector<int> reversed = large.host();
    for (int i = 0; i < n / 2; i++) std::swap(reversed[i], reversed[n - 1 - i]);
    for (int& value : reversed) value++;
    dynamic<<<1, 256, wanted>>>(large, n);
    results.exact("not without asking", static_cast<int>(cudaGetLastError()), static_cast<int>(cudaErrorInvalidValue));
    CHECK(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, wanted));
    dynamic<<<1, 256, wanted>>>(large, n);
    results.exact("much shared memory", large.host(), reversed);

    const Array<int> sums(8);
    cudaLaunchConfig_t config = {};
    config.gridDim = 8;
    config.blockDim = 32;
    cudaLaunchAttribute cluster[1];
    cluster[0].id = cudaLaunchAttributeClusterDimension;
    cluster[0].val.clusterDim.x = 4;
    cluster[0].val.clusterDim.y = 1;
    cluster[0].val.clusterDim.z = 1;
    config.attrs = cluster;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, cluster_sums, sums.get()));
    results.exact("clusters", sums.host(), std::vector<int>{10, 10, 10, 10, 26, 26, 26, 26});

    int length = 512;
    const Array<int> ones(std::vector<int>(length, 1));
    int* ones_pointer = ones;
    void* arguments[] = {&ones_pointer, &length};
    CHECK(cudaLaunchCooperativeKernel(grid_steps, dim3(4), dim3(128), arguments, 0, nullptr));
    std::vector<int> running(length);
    for (int i = 0; i < length; i++) running[i] = i + 1;
    results.exact("a grid that waits for itself", ones.host(), running);

    // PTX that the program brings along as text.
    const char* text = ".version 8.0\n.target sm_90\n.address_size 64\n"
                       ".visible .global .align 4 .u32 amount = 5;\n"
                       ".visible .entry raise(.param .u64 place) {\n .reg .b64 %d<4>; .reg .b32 %r<5>;\n"
                       " ld.param.u64 %d1, [place]; cvta.to.global.u64 %d1, %d1; mov.u32 %r1, %tid.x;\n"
                       " mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d1, %d2; ld.global.u32 %r2, [%d3];\n"
                       " ld.global.u32 %r3, [amount]; add.u32 %r4, %r2, %r3; st.global.u32 [%d3], %r4; ret;\n}\n";
    cudaLibrary_t library;
    cudaKernel_t kernel;
    CHECK(cudaLibraryLoadData(&library, text, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cudaLibraryGetKernel(&kernel, library, "raise"));
    void* one[] = {&pointer};
    CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(1), dim3(1000), one, 0, 0));
    void* amount;
    CHECK(cudaLibraryGetGlobal(&amount, &size, library, "amount"));
    const int eleven = 11;
    CHECK(cudaMemcpy(amount, &eleven, sizeof eleven, cudaMemcpyHostToDevice));
    CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(1), dim3(1000), one, 0, 0));
    results.exact("a library", values.host(), std::vector<int>(count, 30 + 5 + 11));
    CHECK(cudaLibraryUnload(library));

    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    int clock_rate = -1, sms = 0;
    CHECK(cudaDeviceGetAttribute(&clock_rate, cudaDevAttrClockRate, 0));
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    results.exact("an H200's numbers",
                  std::vector<int>{properties.major, properties.minor, properties.warpSize, properties.maxThreadsPerBlock,
                                   properties.maxThreadsDim[2], properties.maxGridSize[1], int(properties.sharedMemPerBlock),
                                   int(properties.sharedMemPerBlockOptin), properties.regsPerBlock, int(properties.totalConstMem),
                                   properties.maxThreadsPerMultiProcessor, properties.cooperativeLaunch, properties.clusterLaunch,
                                   properties.managedMemory, properties.unifiedAddressing, properties.memoryPoolsSupported},
                  std::vector<int>{9, 0, 32, 1024, 64, 65535, 49152, 232448, 65536, 65536, 2048, 1, 1, 1, 1, 1});
    results.holds("attributes agree", sms == properties.multiProcessorCount && clock_rate >= 0);
    int runtime = 0, driver = 0;
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaDriverGetVersion(&driver));
    results.holds("versions", runtime == CUDART_VERSION && driver >= runtime);
    int (*get_count)(int*) = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuDeviceGetCount", reinterpret_cast<void**>(&get_count), 12000, cudaEnableDefault, &found));
    int devices = 0;
    results.holds("a function of the driver", found == cudaDriverEntryPointSuccess && get_count(&devices) == 0 && devices > 0);

    CHECK(cudaDeviceReset());
    const Array<int> after(std::vector<int>(64, 4));
    multiply<int, 2><<<1, 64>>>(after, 64);
    results.exact("after a reset", after.host(), std::vector<int>(64, 8));
    return results.finish();
}
