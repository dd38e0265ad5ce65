// Launches: by <<<>>>, by cudaLaunch*, and what can be asked and set of a kernel.
#include "driver.h"

#include <vector>

using namespace runtime;

namespace {

struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

// What stands between <<< and >>>, from there until the stub of the kernel takes it.
thread_local std::vector<Configuration> pending;

CUfunction function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

cudaError_t launch(CUkernel kernel, const Configuration& how, void** arguments) {
    WITH_DRIVER(driver);
    return note(driver.cuLaunchKernel(function(kernel), how.grid.x, how.grid.y, how.grid.z, how.block.x, how.block.y,
                                      how.block.z, static_cast<unsigned>(how.shared), how.stream, arguments, nullptr));
}

// The runtime's launch attributes are the driver's under another name.
CUlaunchConfig driver_config(const cudaLaunchConfig_t& config) {
    static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute), "one layout");
    CUlaunchConfig made = {};
    made.gridDimX = config.gridDim.x;
    made.gridDimY = config.gridDim.y;
    made.gridDimZ = config.gridDim.z;
    made.blockDimX = config.blockDim.x;
    made.blockDimY = config.blockDim.y;
    made.blockDimZ = config.blockDim.z;
    made.sharedMemBytes = static_cast<unsigned>(config.dynamicSmemBytes);
    made.hStream = config.stream;
    made.attrs = reinterpret_cast<CUlaunchAttribute*>(config.attrs);
    made.numAttrs = config.numAttrs;
    return made;
}

// The attributes that can be set have the driver's numbers.
CUfunction_attribute driver_attribute(cudaFuncAttribute attribute) {
    return static_cast<CUfunction_attribute>(attribute);
}

}  // namespace

#define WITH_KERNEL(driver, kernel, host_function)                                \
    WITH_DRIVER(driver);                                                          \
    CUkernel kernel;                                                              \
    const cudaError_t kernel##_error = kernel_of(host_function, &kernel);         \
    if (kernel##_error != cudaSuccess) return note(kernel##_error)

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
    pending.push_back(Configuration{grid, block, shared, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    if (pending.empty()) return cudaErrorInvalidConfiguration;
    const Configuration how = pending.back();
    pending.pop_back();
    *grid = how.grid;
    *block = how.block;
    *shared = how.shared;
    *static_cast<cudaStream_t*>(stream) = how.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
    return note(kernel_of(host_function, reinterpret_cast<CUkernel*>(kernel)));
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
    // Its error was noted when it was not found.
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    return launch(reinterpret_cast<CUkernel>(kernel), Configuration{grid, block, shared, stream}, arguments);
}

cudaError_t cudaLaunchKernel(const void* host_function, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
    WITH_KERNEL(driver, kernel, host_function);
    return launch(kernel, Configuration{grid, block, shared, stream}, arguments);
}

cudaError_t cudaLaunchCooperativeKernel(const void* host_function, dim3 grid, dim3 block, void** arguments, size_t shared,
                                        cudaStream_t stream) {
    WITH_KERNEL(driver, kernel, host_function);
    return note(driver.cuLaunchCooperativeKernel(function(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                 static_cast<unsigned>(shared), stream, arguments));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host_function, void** arguments) {
    WITH_KERNEL(driver, kernel, host_function);
    const CUlaunchConfig how = driver_config(*config);
    return note(driver.cuLaunchKernelEx(&how, function(kernel), arguments, nullptr));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t host_function, void* data) {
    WITH_DRIVER(driver);
    return note(driver.cuLaunchHostFunc(stream, host_function, data));
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* found, const void* host_function) {
    WITH_KERNEL(driver, kernel, host_function);
    *found = reinterpret_cast<cudaFunction_t>(kernel);
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* host_function, cudaFuncAttribute attribute, int value) {
    WITH_KERNEL(driver, kernel, host_function);
    return note(driver.cuKernelSetAttribute(driver_attribute(attribute), value, kernel, 0));
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host_function) {
    WITH_KERNEL(driver, kernel, host_function);
    *attributes = {};
    CUresult result = CUDA_SUCCESS;
    const auto get = [&](CUfunction_attribute attribute) {
        int value = 0;
        if (result == CUDA_SUCCESS) result = driver.cuKernelGetAttribute(&value, attribute, kernel, 0);
        return value;
    };
    attributes->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    attributes->sharedSizeBytes = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    attributes->constSizeBytes = get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
    attributes->localSizeBytes = get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
    attributes->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
    attributes->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
    attributes->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
    attributes->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    return note(result);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host_function, int threads,
                                                                   size_t shared, unsigned flags) {
    WITH_KERNEL(driver, kernel, host_function);
    return note(driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function(kernel), threads, shared, flags));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host_function, int threads,
                                                          size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host_function, threads, shared, 0);
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* host_function, const cudaLaunchConfig_t* config) {
    WITH_KERNEL(driver, kernel, host_function);
    const CUlaunchConfig how = driver_config(*config);
    return note(driver.cuOccupancyMaxActiveClusters(clusters, function(kernel), &how));
}
}
