// Host memory that the device reads and writes in place: allocated as mapped, registered afterwards, and a flag to the host.
#include "sample.h"

__global__ void double_values(const int* in, int* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = in[i] * 2;
}

// Says to the host that all is done, after everything else is visible.
__global__ void report(const int* values, int count, int* sum, volatile int* flag) {
    int total = 0;
    for (int i = 0; i < count; i++) total += values[i];
    *sum = total;
    __threadfence_system();
    *flag = 1;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 1000;
    int *mapped, *device_view, *answers, *device_answers;
    CHECK(cudaHostAlloc(&mapped, count * sizeof(int), cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&device_view, mapped, 0));
    std::vector<int> ordinary(count), expected(count);
    CHECK(cudaHostRegister(ordinary.data(), count * sizeof(int), cudaHostRegisterMapped));
    int* registered_view;
    CHECK(cudaHostGetDevicePointer(&registered_view, ordinary.data(), 0));
    for (int i = 0; i < count; i++) {
        mapped[i] = i * 3;
        expected[i] = i * 6;
    }
    double_values<<<ceil_div(count, 128), 128>>>(device_view, registered_view, count);
    sample::finish_kernels();
    results.exact("from mapped into registered memory", ordinary, expected);

    CHECK(cudaHostAlloc(&answers, 2 * sizeof(int), cudaHostAllocMapped));
    answers[0] = answers[1] = 0;
    CHECK(cudaHostGetDevicePointer(&device_answers, answers, 0));
    report<<<1, 1>>>(registered_view, count, device_answers, device_answers + 1);
    CHECK(cudaGetLastError());
    // The host watches the flag while the kernel runs.
    while (*static_cast<volatile int*>(answers + 1) == 0) {
    }
    __sync_synchronize();
    results.exact("sum", answers[0], 3 * 1000 * 999);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaHostUnregister(ordinary.data()));
    CHECK(cudaFreeHost(mapped));
    CHECK(cudaFreeHost(answers));
    return results.finish();
}
