#include "driver.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

namespace runtime {
namespace {

void* open_library() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
        std::fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        std::exit(1);
    }
    return library;
}

Driver find_functions() {
    void* const library = open_library();
    Driver found;
    // cuda.h makes a name that of its newest version; by way of a second macro it is replaced before it becomes text.
#define TEXT_OF(name) #name
#define FIND(name) found.name = reinterpret_cast<decltype(found.name)>(dlsym(library, TEXT_OF(name)));
    DRIVER_FUNCTIONS(FIND)
#undef FIND
    found.synchronise_context = reinterpret_cast<decltype(found.synchronise_context)>(dlsym(library, "cuCtxSynchronize_v2"));
    return found;
}

CUresult primary_context(CUcontext* context) {
    CUdevice device;
    CUresult result = driver().cuInit(0);
    if (result == CUDA_SUCCESS) result = driver().cuDeviceGet(&device, 0);
    if (result == CUDA_SUCCESS) result = driver().cuDevicePrimaryCtxRetain(context, device);
    return result;
}

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

const Driver& driver() {
    static const Driver functions = find_functions();
    return functions;
}

const Driver* with_context(cudaError_t* error) {
    static CUcontext context;
    static const CUresult made = primary_context(&context);
    thread_local bool current = false;
    CUresult result = made;
    if (result == CUDA_SUCCESS && !current) {
        result = driver().cuCtxSetCurrent(context);
        current = result == CUDA_SUCCESS;
    }
    *error = static_cast<cudaError_t>(result);
    return result == CUDA_SUCCESS ? &driver() : nullptr;
}

cudaError_t note(cudaError_t error) {
    // Not an error: work that is not finished.
    if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
    return error;
}

cudaError_t note(CUresult result) { return note(static_cast<cudaError_t>(result)); }

}  // namespace runtime

using namespace runtime;

extern "C" {

cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
    const char* name = nullptr;
    driver().cuGetErrorName(static_cast<CUresult>(error), &name);
    return name != nullptr ? name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
    const char* text = nullptr;
    driver().cuGetErrorString(static_cast<CUresult>(error), &text);
    return text != nullptr ? text : "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int* version) { return note(driver().cuDriverGetVersion(version)); }

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
}
