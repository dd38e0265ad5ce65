// Memory, copies and variables.
#include "driver.h"

using namespace runtime;

namespace {

// Both kinds of host memory have one address for host and device, so a copy needs no direction; one that is given is
// passed on, as a program that names a direction expects the driver's function for it.
cudaError_t copy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
    WITH_DRIVER(driver);
    switch (kind) {
        case cudaMemcpyHostToDevice: return note(driver.cuMemcpyHtoD(address(to), from, size));
        case cudaMemcpyDeviceToHost: return note(driver.cuMemcpyDtoH(to, address(from), size));
        case cudaMemcpyDeviceToDevice: return note(driver.cuMemcpyDtoD(address(to), address(from), size));
        default: return note(driver.cuMemcpy(address(to), address(from), size));
    }
}

cudaError_t copy_async(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
    WITH_DRIVER(driver);
    switch (kind) {
        case cudaMemcpyHostToDevice: return note(driver.cuMemcpyHtoDAsync(address(to), from, size, stream));
        case cudaMemcpyDeviceToHost: return note(driver.cuMemcpyDtoHAsync(to, address(from), size, stream));
        case cudaMemcpyDeviceToDevice: return note(driver.cuMemcpyDtoDAsync(address(to), address(from), size, stream));
        default: return note(driver.cuMemcpyAsync(address(to), address(from), size, stream));
    }
}

CUDA_MEMCPY2D rectangle(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                        cudaMemcpyKind kind) {
    const bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    const bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    const bool unified = kind == cudaMemcpyDefault;
    CUDA_MEMCPY2D made = {};
    made.srcMemoryType = unified ? CU_MEMORYTYPE_UNIFIED : from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    made.srcHost = from;
    made.srcDevice = address(from);
    made.srcPitch = from_pitch;
    made.dstMemoryType = unified ? CU_MEMORYTYPE_UNIFIED : to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    made.dstHost = to;
    made.dstDevice = address(to);
    made.dstPitch = to_pitch;
    made.WidthInBytes = width;
    made.Height = height;
    return made;
}

CUdeviceptr* device_pointer(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t size) {
    WITH_DRIVER(driver);
    return note(driver.cuMemAlloc(device_pointer(pointer), size));
}

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
    constexpr unsigned largest_element = 16;
    WITH_DRIVER(driver);
    return note(driver.cuMemAllocPitch(device_pointer(pointer), pitch, width, height, largest_element));
}

cudaError_t cudaMallocManaged(void** pointer, size_t size, unsigned flags) {
    WITH_DRIVER(driver);
    return note(driver.cuMemAllocManaged(device_pointer(pointer), size, flags));
}

cudaError_t cudaMallocHost(void** pointer, size_t size) {
    WITH_DRIVER(driver);
    return note(driver.cuMemAllocHost(pointer, size));
}

cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned flags) {
    WITH_DRIVER(driver);
    return note(driver.cuMemHostAlloc(pointer, size, flags));
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
    WITH_DRIVER(driver);
    return note(driver.cuMemHostGetDevicePointer(device_pointer(device), host, flags));
}

cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned flags) {
    WITH_DRIVER(driver);
    return note(driver.cuMemHostRegister(pointer, size, flags));
}

cudaError_t cudaHostUnregister(void* pointer) {
    WITH_DRIVER(driver);
    return note(driver.cuMemHostUnregister(pointer));
}

cudaError_t cudaFree(void* pointer) {
    WITH_DRIVER(driver);
    return pointer == nullptr ? cudaSuccess : note(driver.cuMemFree(address(pointer)));
}

cudaError_t cudaFreeHost(void* pointer) {
    WITH_DRIVER(driver);
    return pointer == nullptr ? cudaSuccess : note(driver.cuMemFreeHost(pointer));
}

cudaError_t cudaMallocAsync(void** pointer, size_t size, cudaStream_t stream) {
    WITH_DRIVER(driver);
    return note(driver.cuMemAllocAsync(device_pointer(pointer), size, stream));
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    WITH_DRIVER(driver);
    return note(driver.cuMemFreeAsync(address(pointer), stream));
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
    WITH_DRIVER(driver);
    return note(driver.cuMemGetInfo(available, total));
}

cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t size, cudaMemLocation location, unsigned flags,
                                 cudaStream_t stream) {
    WITH_DRIVER(driver);
    const CUmemLocation where = {static_cast<CUmemLocationType>(location.type), location.id};
    return note(driver.cuMemPrefetchAsync(address(pointer), size, where, flags, stream));
}

cudaError_t cudaMemAdvise(const void* pointer, size_t size, cudaMemoryAdvise advice, cudaMemLocation location) {
    WITH_DRIVER(driver);
    const CUmemLocation where = {static_cast<CUmemLocationType>(location.type), location.id};
    return note(driver.cuMemAdvise(address(pointer), size, static_cast<CUmem_advise>(advice), where));
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) { return copy(to, from, size, kind); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
    return copy_async(to, from, size, kind, stream);
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
    WITH_DRIVER(driver);
    const CUDA_MEMCPY2D what = rectangle(to, to_pitch, from, from_pitch, width, height, kind);
    return note(driver.cuMemcpy2DUnaligned(&what));
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
    WITH_DRIVER(driver);
    const CUDA_MEMCPY2D what = rectangle(to, to_pitch, from, from_pitch, width, height, kind);
    return note(driver.cuMemcpy2DAsync(&what, stream));
}

cudaError_t cudaMemset(void* pointer, int value, size_t size) {
    WITH_DRIVER(driver);
    return note(driver.cuMemsetD8(address(pointer), static_cast<unsigned char>(value), size));
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t size, cudaStream_t stream) {
    WITH_DRIVER(driver);
    return note(driver.cuMemsetD8Async(address(pointer), static_cast<unsigned char>(value), size, stream));
}

cudaError_t cudaMemset2D(void* pointer, size_t pitch, int value, size_t width, size_t height) {
    WITH_DRIVER(driver);
    return note(driver.cuMemsetD2D8(address(pointer), pitch, static_cast<unsigned char>(value), width, height));
}

cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
    size_t size;
    return note(variable_of(symbol, device_pointer(pointer), &size));
}

cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
    CUdeviceptr unused;
    return note(variable_of(symbol, &unused, size));
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t size, size_t offset, cudaMemcpyKind kind) {
    void* variable;
    const cudaError_t error = cudaGetSymbolAddress(&variable, symbol);
    return error != cudaSuccess ? error : copy(static_cast<char*>(variable) + offset, from, size, kind);
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t size, size_t offset, cudaMemcpyKind kind) {
    void* variable;
    const cudaError_t error = cudaGetSymbolAddress(&variable, symbol);
    return error != cudaSuccess ? error : copy(to, static_cast<char*>(variable) + offset, size, kind);
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t size, size_t offset, cudaMemcpyKind kind,
                                    cudaStream_t stream) {
    void* variable;
    const cudaError_t error = cudaGetSymbolAddress(&variable, symbol);
    return error != cudaSuccess ? error : copy_async(static_cast<char*>(variable) + offset, from, size, kind, stream);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    WITH_DRIVER(driver);
    unsigned type = 0, managed = 0;
    int device = 0;
    CUdeviceptr on_device = 0;
    void* on_host = nullptr;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                    CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* values[] = {&type, &managed, &device, &on_device, &on_host};
    const CUresult result = driver.cuPointerGetAttributes(5, wanted, values, address(pointer));
    *attributes = {};
    attributes->type = managed != 0 ? cudaMemoryTypeManaged : static_cast<cudaMemoryType>(type);
    attributes->device = device;
    attributes->devicePointer = reinterpret_cast<void*>(on_device);
    attributes->hostPointer = on_host;
    return note(result);
}
}
