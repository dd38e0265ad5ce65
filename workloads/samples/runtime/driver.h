// The driver's functions that the runtime calls, found when the program starts: nothing is linked against a driver, so
// that the program takes whatever libcuda.so.1 the loader finds.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#define DRIVER_FUNCTIONS(X)                                                                                            \
    X(cuInit) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceTotalMem)        \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxReset) X(cuCtxSetCurrent) X(cuCtxGetCurrent) X(cuCtxSetLimit)      \
    X(cuCtxGetLimit) X(cuCtxGetStreamPriorityRange) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)        \
    X(cuGetProcAddress) X(cuLibraryLoadData) X(cuLibraryUnload) X(cuLibraryGetKernel) X(cuLibraryGetGlobal)            \
    X(cuLibraryGetManaged) X(cuKernelGetAttribute) X(cuKernelSetAttribute) X(cuLaunchKernel) X(cuLaunchKernelEx)       \
    X(cuLaunchCooperativeKernel) X(cuLaunchHostFunc) X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)           \
    X(cuOccupancyMaxActiveClusters) X(cuMemAlloc) X(cuMemAllocPitch) X(cuMemAllocManaged) X(cuMemAllocHost)            \
    X(cuMemHostAlloc) X(cuMemHostGetDevicePointer) X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemFree)            \
    X(cuMemFreeHost) X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemGetInfo) X(cuMemPrefetchAsync) X(cuMemAdvise)         \
    X(cuMemcpy) X(cuMemcpyAsync) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyDtoD) X(cuMemcpyHtoDAsync)                  \
    X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpy2DUnaligned) X(cuMemcpy2DAsync) X(cuMemsetD8)                  \
    X(cuMemsetD8Async) X(cuMemsetD2D8) X(cuPointerGetAttributes) X(cuStreamCreate) X(cuStreamCreateWithPriority)       \
    X(cuStreamDestroy) X(cuStreamQuery) X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamBeginCapture)            \
    X(cuStreamBeginCaptureToGraph) X(cuStreamEndCapture) X(cuStreamIsCapturing) X(cuEventCreate) X(cuEventDestroy)     \
    X(cuEventQuery) X(cuEventRecord) X(cuEventSynchronize) X(cuEventElapsedTime) X(cuGraphCreate) X(cuGraphDestroy)    \
    X(cuGraphAddKernelNode) X(cuGraphAddMemcpyNode) X(cuGraphAddMemsetNode) X(cuGraphAddHostNode)                      \
    X(cuGraphAddEmptyNode) X(cuGraphAddNode) X(cuGraphAddChildGraphNode) X(cuGraphConditionalHandleCreate)             \
    X(cuGraphGetNodes) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphExecDestroy)                           \
    X(cuGraphExecKernelNodeSetParams) X(cuGraphExecUpdate) X(cuTensorMapEncodeTiled) X(cuTexObjectCreate)              \
    X(cuTexObjectDestroy)

namespace runtime {

struct Driver {
#define DRIVER_FIELD(name) decltype(&::name) name;
    DRIVER_FUNCTIONS(DRIVER_FIELD)
    decltype(&::cuCtxSynchronize_v2) synchronise_context;
#undef DRIVER_FIELD
};

// The driver, opened at the first call. Without one the program ends with a line that says so.
const Driver& driver();

// The driver with the device's primary context current in this thread: what nearly every runtime function begins with.
// The first error on the way there is what the runtime's functions return from then on.
const Driver* with_context(cudaError_t* error);

// Notes an error for cudaGetLastError and hands it on. The runtime's numbers of the errors that both have are the driver's.
cudaError_t note(CUresult result);
cudaError_t note(cudaError_t error);

// What a kernel's or variable's address in the program stands for on the device.
cudaError_t kernel_of(const void* host_function, CUkernel* kernel);
cudaError_t variable_of(const void* host_variable, CUdeviceptr* address, size_t* size);

inline CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace runtime

// The body of a runtime function: its context, then one driver call.
#define WITH_DRIVER(d)                                                \
    cudaError_t context_error;                                        \
    const runtime::Driver* const d##_ = runtime::with_context(&context_error); \
    if (d##_ == nullptr) return runtime::note(context_error);         \
    [[maybe_unused]] const runtime::Driver& d = *d##_
