// Recursion: Fibonacci, Ackermann, quicksort on a stack of its own depth, mutual recursion.
#include "sample.h"

#include <algorithm>

__host__ __device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__host__ __device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

__host__ __device__ bool is_odd(int n);
__host__ __device__ __noinline__ bool is_even(int n) { return n == 0 || is_odd(n - 1); }
__host__ __device__ __noinline__ bool is_odd(int n) { return n != 0 && is_even(n - 1); }

__device__ __noinline__ void quicksort(int* values, int low, int high) {
    if (low >= high) return;
    const int pivot = values[(low + high) / 2];
    int i = low, k = high;
    while (i <= k) {
        while (values[i] < pivot) i++;
        while (values[k] > pivot) k--;
        if (i <= k) {
            const int kept = values[i];
            values[i++] = values[k];
            values[k--] = kept;
        }
    }
    quicksort(values, low, k);
    quicksort(values, i, high);
}

__global__ void numbers_of(int* fibonaccis, int* ackermanns, unsigned char* evens) {
    fibonaccis[threadIdx.x] = fibonacci(threadIdx.x % 12);
    ackermanns[threadIdx.x] = ackermann(2, threadIdx.x % 6);
    evens[threadIdx.x] = is_even(threadIdx.x);
}

__global__ void sort_rows(int* values, int length) { quicksort(values + threadIdx.x * length, 0, length - 1); }

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int threads = 40, length = 50;
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 16 << 10));
    const Array<int> fibonaccis(threads), ackermanns(threads);
    const Array<unsigned char> evens(threads);
    numbers_of<<<1, threads>>>(fibonaccis, ackermanns, evens);
    std::vector<int> expected_fibonaccis, expected_ackermanns, values = Numbers(34).integers(threads * length, 1000);
    std::vector<unsigned char> expected_evens;
    for (int i = 0; i < threads; i++) {
        expected_fibonaccis.push_back(fibonacci(i % 12));
        expected_ackermanns.push_back(ackermann(2, i % 6));
        expected_evens.push_back(is_even(i));
    }
    const Array<int> rows(values);
    sort_rows<<<1, threads>>>(rows, length);
    for (int i = 0; i < threads; i++) std::sort(values.begin() + i * length, values.begin() + (i + 1) * length);
    results.exact("Fibonacci", fibonaccis.host(), expected_fibonaccis);
    results.exact("Ackermann", ackermanns.host(), expected_ackermanns);
    results.exact("even by way of odd", evens.host(), expected_evens);
    results.exact("sorted rows", rows.host(), values);
    return results.finish();
}
