// Kernels as templates over lambdas: maps, filters and folds whose body is written where they are called.
// nvcc: --extended-lambda
#include "sample.h"

#include <algorithm>

template <class Body>
__global__ void for_each(int count, Body body) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) body(i);
}

template <class T, class Fold>
__global__ void fold_blocks(const T* values, int count, T first, T* out, Fold fold) {
    extern __shared__ char raw[];
    T* const partial = reinterpret_cast<T*>(raw);
    T own = first;
    for (int i = threadIdx.x; i < count; i += blockDim.x) own = fold(own, values[i]);
    partial[threadIdx.x] = own;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] = fold(partial[threadIdx.x], partial[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = partial[0];
}

struct Span {
    int low, high;
};

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 2000;
    const std::vector<int> values = Numbers(36).integers(count, 10000);
    const Array<int> input(values), squares(count), kept(count), number(1), most(1);
    int *in = input, *out = squares, *chosen = kept, *next = number;
    const int offset = 17;
    for_each<<<8, 64>>>(count, [=] __device__(int i) { out[i] = in[i] * in[i] + offset; });
    for_each<<<8, 64>>>(count, [=] __device__(int i) {
        if (in[i] % 7 == 0) chosen[atomicAdd(next, 1)] = in[i];
    });
    fold_blocks<<<1, 128, 128 * sizeof(int)>>>(input.get(), count, 0, most.get(),
                                               [] __device__(int a, int b) { return a > b ? a : b; });
    const Array<Span> spans(count), span(1);
    Span* const each = spans;
    for_each<<<8, 64>>>(count, [=] __device__(int i) { each[i] = Span{in[i], in[i]}; });
    fold_blocks<<<1, 128, 128 * sizeof(Span)>>>(spans.get(), count, Span{1 << 30, -1}, span.get(), [] __device__(Span a, Span b) {
        return Span{min(a.low, b.low), max(a.high, b.high)};
    });

    std::vector<int> expected_squares, expected_kept;
    for (int value : values) {
        expected_squares.push_back(value * value + offset);
        if (value % 7 == 0) expected_kept.push_back(value);
    }
    std::vector<int> found = kept.host();
    found.resize(number.host()[0]);
    std::sort(found.begin(), found.end());
    std::sort(expected_kept.begin(), expected_kept.end());
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    results.exact("squares", squares.host(), expected_squares);
    results.exact("multiples of seven", found, expected_kept);
    results.exact("largest", most.host()[0], *high);
    results.exact("lowest", span.host()[0].low, *low);
    results.exact("highest", span.host()[0].high, *high);
    return results.finish();
}
