// What nvcc's generated code calls before main: which kernels and variables the program has, and in which fat binary.
// Nothing is loaded there; a fat binary goes to the driver when the first of its kernels or variables is used.
#include "driver.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

using namespace runtime;

namespace {

struct FatBinary {
    const void* image;
    CUlibrary library = nullptr;
};

struct Kernel {
    FatBinary* binary;
    std::string name;
    CUkernel kernel = nullptr;
};

struct Variable {
    FatBinary* binary;
    std::string name;
    bool managed;
};

// What nvcc puts in front of a fat binary.
struct Wrapper {
    int magic;
    int version;
    const void* image;
    void* unused;
};

struct Registry {
    std::mutex lock;
    std::deque<FatBinary> binaries;  // never moves its elements
    std::unordered_map<const void*, Kernel> kernels;
    std::unordered_map<const void*, Variable> variables;
};

// Never destroyed: exit handlers still launch.
Registry& registry() {
    static Registry* const all = new Registry;
    return *all;
}

CUresult load(const Driver& driver, FatBinary& binary) {
    if (binary.library != nullptr) return CUDA_SUCCESS;
    return driver.cuLibraryLoadData(&binary.library, binary.image, nullptr, nullptr, 0, nullptr, nullptr, 0);
}

FatBinary* binary_of(void** handle) { return reinterpret_cast<FatBinary*>(handle); }

CUresult find(const Driver& driver, const Variable& variable, CUdeviceptr* address, size_t* size) {
    const CUresult loaded = load(driver, *variable.binary);
    if (loaded != CUDA_SUCCESS) return loaded;
    const auto get = variable.managed ? driver.cuLibraryGetManaged : driver.cuLibraryGetGlobal;
    return get(address, size, variable.binary->library, variable.name.c_str());
}

[[noreturn]] void end_without_managed_variables(cudaError_t error) {
    std::fprintf(stderr, "no managed variables: %s\n", cudaGetErrorName(error));
    std::exit(1);
}

}  // namespace

namespace runtime {

cudaError_t kernel_of(const void* host_function, CUkernel* kernel) {
    WITH_DRIVER(driver);
    Registry& all = registry();
    const std::lock_guard<std::mutex> guard(all.lock);
    const auto found = all.kernels.find(host_function);
    if (found == all.kernels.end()) return cudaErrorInvalidDeviceFunction;
    Kernel& known = found->second;
    if (known.kernel == nullptr) {
        CUresult result = load(driver, *known.binary);
        if (result == CUDA_SUCCESS) {
            result = driver.cuLibraryGetKernel(&known.kernel, known.binary->library, known.name.c_str());
        }
        if (result != CUDA_SUCCESS) return static_cast<cudaError_t>(result);
    }
    *kernel = known.kernel;
    return cudaSuccess;
}

cudaError_t variable_of(const void* host_variable, CUdeviceptr* address, size_t* size) {
    WITH_DRIVER(driver);
    Registry& all = registry();
    const std::lock_guard<std::mutex> guard(all.lock);
    const auto found = all.variables.find(host_variable);
    if (found == all.variables.end()) return cudaErrorInvalidSymbol;
    return static_cast<cudaError_t>(find(driver, found->second, address, size));
}

}  // namespace runtime

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
    Registry& all = registry();
    const std::lock_guard<std::mutex> guard(all.lock);
    all.binaries.push_back(FatBinary{static_cast<const Wrapper*>(wrapper)->image});
    return reinterpret_cast<void**>(&all.binaries.back());
}

void __cudaRegisterFatBinaryEnd(void**) {}

// The process is about to end, and what the driver holds ends with it.
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
    registry().kernels[host_function] = Kernel{binary_of(handle), name};
}

void __cudaRegisterVar(void** handle, char* host_variable, char*, const char* name, int, size_t, int, int) {
    registry().variables[host_variable] = Variable{binary_of(handle), name, false};
}

// `host_pointer` is where the program keeps a managed variable's address, and what stands for it from then on.
void __cudaRegisterManagedVar(void** handle, void** host_pointer, char*, const char* name, int, size_t, int, int) {
    registry().variables[host_pointer] = Variable{binary_of(handle), name, true};
}

// Called before the program first touches a managed variable, which it then does whatever this returns: without an
// address it has to end.
char __cudaInitModule(void** handle) {
    cudaError_t error;
    const Driver* const driver = with_context(&error);
    if (driver == nullptr) end_without_managed_variables(error);
    Registry& all = registry();
    const std::lock_guard<std::mutex> guard(all.lock);
    for (const auto& [host_pointer, variable] : all.variables) {
        CUdeviceptr address;
        size_t size;
        if (!variable.managed || variable.binary != binary_of(handle)) continue;
        const CUresult result = find(*driver, variable, &address, &size);
        if (result != CUDA_SUCCESS) end_without_managed_variables(static_cast<cudaError_t>(result));
        *static_cast<void**>(const_cast<void*>(host_pointer)) = reinterpret_cast<void*>(address);
    }
    return 1;
}
}
