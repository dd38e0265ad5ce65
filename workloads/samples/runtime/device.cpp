// The device, streams and events.
#include "driver.h"

#include <cstring>

using namespace runtime;

namespace {

int attribute(const Driver& driver, CUdevice_attribute which) {
    int value = 0;
    note(driver.cuDeviceGetAttribute(&value, which, 0));
    return value;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
    WITH_DRIVER(driver);
    return note(driver.cuDeviceGetCount(count));
}

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}

// Samples use the first device.
cudaError_t cudaSetDevice(int device) { return note(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
    WITH_DRIVER(driver);
    return note(driver.cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(which), device));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    WITH_DRIVER(driver);
    *properties = {};
    CUresult result = driver.cuDeviceGetName(properties->name, sizeof properties->name, device);
    if (result == CUDA_SUCCESS) result = driver.cuDeviceTotalMem(&properties->totalGlobalMem, device);
    properties->major = attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    properties->minor = attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    properties->multiProcessorCount = attribute(driver, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    properties->warpSize = attribute(driver, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    properties->maxThreadsPerBlock = attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    properties->sharedMemPerBlock = attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    properties->sharedMemPerBlockOptin = attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    properties->regsPerBlock = attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    properties->cooperativeLaunch = attribute(driver, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
    properties->managedMemory = attribute(driver, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
    properties->totalConstMem = attribute(driver, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    return note(result);
}

cudaError_t cudaDeviceSynchronize() {
    WITH_DRIVER(driver);
    CUcontext context;
    const CUresult result = driver.cuCtxGetCurrent(&context);
    return note(result != CUDA_SUCCESS ? result : driver.synchronise_context(context));
}

cudaError_t cudaDeviceReset() {
    WITH_DRIVER(driver);
    return note(driver.cuDevicePrimaryCtxReset(0));
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
    WITH_DRIVER(driver);
    return note(driver.cuCtxSetLimit(static_cast<CUlimit>(limit), value));
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
    WITH_DRIVER(driver);
    return note(driver.cuCtxGetLimit(value, static_cast<CUlimit>(limit)));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    WITH_DRIVER(driver);
    return note(driver.cuCtxGetStreamPriorityRange(least, greatest));
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    WITH_DRIVER(driver);
    return note(driver.cuStreamCreate(stream, CU_STREAM_DEFAULT));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    WITH_DRIVER(driver);
    return note(driver.cuStreamCreate(stream, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    WITH_DRIVER(driver);
    return note(driver.cuStreamCreateWithPriority(stream, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    WITH_DRIVER(driver);
    return note(driver.cuStreamDestroy(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    WITH_DRIVER(driver);
    return note(driver.cuStreamQuery(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    WITH_DRIVER(driver);
    return note(driver.cuStreamSynchronize(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    WITH_DRIVER(driver);
    return note(driver.cuStreamWaitEvent(stream, event, flags));
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    WITH_DRIVER(driver);
    return note(driver.cuEventCreate(event, CU_EVENT_DEFAULT));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    WITH_DRIVER(driver);
    return note(driver.cuEventCreate(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    WITH_DRIVER(driver);
    return note(driver.cuEventDestroy(event));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    WITH_DRIVER(driver);
    return note(driver.cuEventRecord(event, stream));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    WITH_DRIVER(driver);
    return note(driver.cuEventQuery(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    WITH_DRIVER(driver);
    return note(driver.cuEventSynchronize(event));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    WITH_DRIVER(driver);
    return note(driver.cuEventElapsedTime(milliseconds, begin, end));
}

// Any function of the driver, for what the runtime has no name for.
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
    WITH_DRIVER(driver);
    CUdriverProcAddressQueryResult found;
    const CUresult result = driver.cuGetProcAddress(symbol, function, static_cast<int>(version), flags, &found);
    if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
    return note(result);
}
}
