// Merge sort: a sorting network in each thread, then merges in which every thread finds its part by binary search.
#include "sample.h"

#include <algorithm>

constexpr int RUN = 8;

__global__ void sort_runs(float* values, int count) {
    float own[RUN];
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * RUN;
    if (first >= count) return;
    for (int k = 0; k < RUN; k++) own[k] = values[first + k];
    for (int round = 0; round < RUN; round++) {  // odd-even transposition
        for (int k = round % 2; k + 1 < RUN; k += 2) {
            const float low = fminf(own[k], own[k + 1]), high = fmaxf(own[k], own[k + 1]);
            own[k] = low;
            own[k + 1] = high;
        }
    }
    for (int k = 0; k < RUN; k++) values[first + k] = own[k];
}

// How many of the first `wanted` merged values come from the left run.
__device__ int from_left(const float* left, int lefts, const float* right, int rights, int wanted) {
    int low = max(0, wanted - rights), high = min(wanted, lefts);
    while (low < high) {
        const int middle = (low + high) / 2;
        if (left[middle] <= right[wanted - 1 - middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

__global__ void merge(const float* values, float* merged, int count, int length) {
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * RUN;
    if (first >= count) return;
    const int base = first / (2 * length) * (2 * length);
    const int lefts = min(length, count - base), rights = max(0, min(length, count - base - length));
    const float *left = values + base, *right = left + lefts;
    int a = from_left(left, lefts, right, rights, first - base), b = first - base - a;
    for (int k = 0; k < RUN && first + k < count; k++) {
        const bool take_left = b >= rights || (a < lefts && left[a] <= right[b]);
        merged[first + k] = take_left ? left[a++] : right[b++];
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 12000, threads = 64;
    std::vector<float> values = Numbers(7).floats(count, -100, 100);
    const Array<float> one(values), other(count);
    const int blocks = ceil_div(count / RUN, threads);
    sort_runs<<<blocks, threads>>>(one, count);
    const float* in = one;
    float* out = other;
    for (int length = RUN; length < count; length *= 2) {
        merge<<<blocks, threads>>>(in, out, count, length);
        in = out;
        out = out == one.get() ? other.get() : one.get();
    }
    std::sort(values.begin(), values.end());
    results.exact("sorted", in == one.get() ? one.host() : other.host(), values);
    return results.finish();
}
