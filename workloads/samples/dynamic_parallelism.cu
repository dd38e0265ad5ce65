// Kernels that launch kernels: recursion and tail launches (a merge sort), fire and forget, streams and events, copies.
// nvcc: -rdc=true
#include <algorithm>

#include "sample.h"

// Below that a block sorts by itself.
constexpr int leaf = 32;

__global__ void merge(const int* values, int* sorted, int count) {
    const int half = count / 2;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        // Where a value goes: its place in its own half, and how many of the other half come before it.
        const bool is_left = i < half;
        const int* other = is_left ? values + half : values;
        int low = 0, high = is_left ? count - half : half;
        while (low < high) {
            const int middle = (low + high) / 2;
            const bool before = is_left ? other[middle] < values[i] : other[middle] <= values[i];
            (before ? low : high) = before ? middle + 1 : middle;
        }
        sorted[(is_left ? i : i - half) + low] = values[i];
    }
}

// Sorts `values`; both halves are sorted by kernels of its own, and merged when these and all that they launched are through.
__global__ void merge_sort(int* values, int* spare, int count, bool into_spare) {
    if (count <= leaf) {
        // Each thread counts who comes before its value.
        const int i = threadIdx.x;
        const int value = i < count ? values[i] : 0;
        int place = 0;
        for (int k = 0; k < count; k++) place += values[k] < value || (values[k] == value && k < i);
        __syncthreads();
        if (i < count) (into_spare ? spare : values)[place] = value;
        return;
    }
    if (threadIdx.x != 0) return;
    const int half = count / 2;
    merge_sort<<<1, leaf, 0, cudaStreamFireAndForget>>>(values, spare, half, !into_spare);
    merge_sort<<<1, leaf, 0, cudaStreamFireAndForget>>>(values + half, spare + half, count - half, !into_spare);
    if (into_spare) {
        merge<<<1, 64, 0, cudaStreamTailLaunch>>>(values, spare, count);
    } else {
        merge<<<1, 64, 0, cudaStreamTailLaunch>>>(spare, values, count);
    }
}

__global__ void add(int* counter, int amount) { atomicAdd(counter, amount); }

__global__ void take_down(const int* counter, int* seen) { *seen = *counter; }

// Every thread launches; the last kernel sees all of it.
__global__ void scatter(int* counter, int* seen) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    add<<<1, 2, 0, cudaStreamFireAndForget>>>(counter, thread);
    if (thread == 0) take_down<<<1, 1, 0, cudaStreamTailLaunch>>>(counter, seen);
}

__global__ void append(int* list, int* length, int value) { list[(*length)++] = value; }

// Kernels of one thread in its own stream run in order, as launched.
__global__ void in_order(int* list, int* length, int count) {
    for (int i = 0; i < count; i++) append<<<1, 1>>>(list, length, i * i);
}

__global__ void scale(int* values, int count, int factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= factor;
}

__global__ void combine(const int* a, const int* b, int* sums, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) sums[i] = a[i] + b[i];
}

// Two streams; what the second does last waits for the first by an event.
__global__ void two_streams(int* a, int* b, int* sums, int count, int* errors) {
    cudaStream_t first, second;
    cudaEvent_t done;
    int failed = 0;
    failed += cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking) != cudaSuccess;
    failed += cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking) != cudaSuccess;
    failed += cudaEventCreateWithFlags(&done, cudaEventDisableTiming) != cudaSuccess;
    const int blocks = (count + 127) / 128;
    scale<<<blocks, 128, 0, first>>>(a, count, 3);
    scale<<<blocks, 128, 0, first>>>(a, count, 5);
    failed += cudaEventRecord(done, first) != cudaSuccess;
    scale<<<blocks, 128, 0, second>>>(b, count, 7);
    failed += cudaStreamWaitEvent(second, done, 0) != cudaSuccess;
    combine<<<blocks, 128, 0, second>>>(a, b, sums, count);
    failed += cudaEventDestroy(done) != cudaSuccess;
    failed += cudaStreamDestroy(first) != cudaSuccess;
    failed += cudaStreamDestroy(second) != cudaSuccess;
    failed += cudaGetLastError() != cudaSuccess;
    *errors = failed;
}

// Copies and fills in a stream, between two kernels.
__global__ void copies(int* from, int* to, int count, int* errors) {
    scale<<<(count + 127) / 128, 128>>>(from, count, 2);
    int failed = cudaMemcpyAsync(to, from, count * sizeof(int), cudaMemcpyDeviceToDevice, nullptr) != cudaSuccess;
    // NVIDIA's library for device code (CUDA 13.0) fills with zero whatever it is told.
    failed += cudaMemsetAsync(from, 0, count * sizeof(int), nullptr) != cudaSuccess;
    scale<<<(count + 127) / 128, 128>>>(to, count, 10);
    *errors = failed;
}

// A launch that no device can do is an error of the thread that asked for it, and no other.
__global__ void refused(int* errors) {
    const int threads = threadIdx.x == 0 ? 2048 : 1;
    add<<<1, threads>>>(errors + 2, 1);
    errors[threadIdx.x] = cudaGetLastError() != cudaSuccess;
}

int main(int argc, char** argv) {
    Results results(argc, argv);

    const std::vector<int> numbers = Numbers(21).integers(1000, 500);
    const Array<int> values(numbers), spare(numbers.size());
    merge_sort<<<1, leaf>>>(values, spare, 1000, false);
    std::vector<int> sorted = numbers;
    std::sort(sorted.begin(), sorted.end());
    results.exact("sorted", values.host(), sorted);

    const Array<int> counter(1), seen(1);
    scatter<<<3, 40>>>(counter, seen);
    results.exact("fire and forget", counter.host()[0], 2 * (120 * 119 / 2));
    results.exact("seen by the tail launch", seen.host()[0], 2 * (120 * 119 / 2));

    const Array<int> list(50), length(1);
    in_order<<<1, 1>>>(list, length, 50);
    std::vector<int> squares(50);
    for (int i = 0; i < 50; i++) squares[i] = i * i;
    results.exact("in order", list.host(), squares);

    const Array<int> a(numbers), b(numbers), sums(numbers.size()), errors(3);
    two_streams<<<1, 1>>>(a, b, sums, 1000, errors);
    std::vector<int> expected(numbers.size());
    for (size_t i = 0; i < expected.size(); i++) expected[i] = 22 * numbers[i];
    results.exact("two streams", sums.host(), expected);
    results.exact("errors of streams", errors.host()[0], 0);

    const Array<int> from(numbers), to(numbers.size());
    copies<<<1, 1>>>(from, to, 1000, errors);
    for (size_t i = 0; i < expected.size(); i++) expected[i] = 20 * numbers[i];
    results.exact("copied", to.host(), expected);
    results.exact("filled", from.host(), std::vector<int>(numbers.size(), 0));
    results.exact("errors of copies", errors.host()[0], 0);

    CHECK(cudaMemset(errors, 0, errors.bytes()));
    refused<<<1, 2>>>(errors);
    results.exact("refused, accepted, run", errors.host(), std::vector<int>{1, 0, 1});
    return results.finish();
}
