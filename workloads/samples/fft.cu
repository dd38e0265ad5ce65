// Fast Fourier transforms: radix 2 in shared memory, forth and back, and the four-step form for a longer one.
#include "sample.h"

#include <complex>

constexpr int LENGTH = 256;

__device__ float2 times(float2 a, float2 b) { return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }

__device__ float2 root(int k, int length, float sign) {
    float sine, cosine;
    sincospif(sign * 2 * k / length, &sine, &cosine);
    return make_float2(cosine, sine);
}

// One block transforms one row, decimated in time.
__global__ void transform_rows(float2* values, float sign) {
    __shared__ float2 row[LENGTH];
    float2* own = values + blockIdx.x * LENGTH;
    constexpr int bits = 8;
    for (int i = threadIdx.x; i < LENGTH; i += blockDim.x) row[__brev(i) >> (32 - bits)] = own[i];
    for (int half = 1; half < LENGTH; half *= 2) {
        __syncthreads();
        const int k = threadIdx.x % half, at = threadIdx.x / half * half * 2 + k;
        const float2 upper = times(row[at + half], root(k, half * 2, sign)), lower = row[at];
        row[at] = make_float2(lower.x + upper.x, lower.y + upper.y);
        row[at + half] = make_float2(lower.x - upper.x, lower.y - upper.y);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < LENGTH; i += blockDim.x) own[i] = row[i];
}

__global__ void transpose_and_turn(const float2* from, float2* to, int rows, bool turn) {
    const int row = blockIdx.x, column = threadIdx.x;
    const float2 value = from[row * LENGTH + column];
    to[column * rows + row] = turn ? times(value, root(row * column, rows * LENGTH, -1)) : value;
}

using Complex = std::complex<double>;

std::vector<Complex> slow_transform(const std::vector<float2>& values) {
    const int count = static_cast<int>(values.size());
    std::vector<Complex> roots(count), sums(count);
    for (int k = 0; k < count; k++) roots[k] = std::polar(1.0, -2 * M_PI * k / count);
    for (int f = 0; f < count; f++) {
        for (int i = 0; i < count; i++) {
            sums[f] += Complex(values[i].x, values[i].y) * roots[static_cast<size_t>(f) * i % count];
        }
    }
    return sums;
}

std::vector<float> parts(const std::vector<float2>& values) {
    std::vector<float> all;
    for (const float2& value : values) all.insert(all.end(), {value.x, value.y});
    return all;
}

std::vector<float> parts(const std::vector<Complex>& values) {
    std::vector<float> all;
    for (const Complex& value : values) all.insert(all.end(), {float(value.real()), float(value.imag())});
    return all;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int rows = 4;
    Numbers numbers(19);
    std::vector<float2> values(rows * LENGTH);
    for (float2& value : values) value = make_float2(numbers.between(-1, 1), numbers.between(-1, 1));
    const Array<float2> row_wise(values);
    transform_rows<<<rows, LENGTH / 2>>>(row_wise, -1);
    std::vector<float> expected;
    for (int row = 0; row < rows; row++) {
        const auto begin = values.begin() + row * LENGTH;
        const std::vector<float> one = parts(slow_transform(std::vector<float2>(begin, begin + LENGTH)));
        expected.insert(expected.end(), one.begin(), one.end());
    }
    results.near("spectra of rows", parts(row_wise.host()), expected, 2e-5);
    transform_rows<<<rows, LENGTH / 2>>>(row_wise, 1);
    std::vector<float> back = parts(row_wise.host());
    for (float& part : back) part /= LENGTH;
    results.near("there and back", back, parts(values), 1e-5);

    // 256 x 256 values as one long row: columns, a turn of each value, rows, and transposed.
    std::vector<float2> longer(LENGTH * LENGTH);
    for (int i = 0; i < LENGTH * LENGTH; i++) {
        longer[i] = make_float2(i % 1000 == 7 ? 1.0f : 0.0f, 0.0f);
    }
    const Array<float2> first(longer), second(longer.size());
    transpose_and_turn<<<LENGTH, LENGTH>>>(first, second, LENGTH, false);
    transform_rows<<<LENGTH, LENGTH / 2>>>(second, -1);
    // Rows of `second` are columns of the input; turned by their place and transposed back.
    transpose_and_turn<<<LENGTH, LENGTH>>>(second, first, LENGTH, true);
    transform_rows<<<LENGTH, LENGTH / 2>>>(first, -1);
    transpose_and_turn<<<LENGTH, LENGTH>>>(first, second, LENGTH, false);
    std::vector<Complex> spectrum(LENGTH * LENGTH);
    for (int f = 0; f < LENGTH * LENGTH; f += 97) {
        for (int i = 7; i < LENGTH * LENGTH; i += 1000) {
            spectrum[f] += std::polar(1.0, -2 * M_PI * (static_cast<long long>(f) * i % (LENGTH * LENGTH)) / (LENGTH * LENGTH));
        }
    }
    const std::vector<float2> found = second.host();
    std::vector<float2> looked_at;
    std::vector<Complex> wanted;
    for (int f = 0; f < LENGTH * LENGTH; f += 97) {
        looked_at.push_back(found[f]);
        wanted.push_back(spectrum[f]);
    }
    results.near("four steps", parts(looked_at), parts(wanted), 2e-4);
    return results.finish();
}
