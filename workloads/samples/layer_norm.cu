// Layer norm: mean and variance by Welford's method, merged over a warp; bfloat16 in and out, and vector loads.
#include "sample.h"

#include <cuda_bf16.h>

struct Moments {
    float count, mean, squares;
};

__device__ Moments merge(Moments a, Moments b) {
    const float count = a.count + b.count, difference = b.mean - a.mean;
    if (count == 0) return a;
    return {count, a.mean + difference * b.count / count, a.squares + b.squares + difference * difference * a.count * b.count / count};
}

__global__ void normalise(const __nv_bfloat162* in, __nv_bfloat162* out, const float2* scale, const float2* offset, int pairs) {
    const __nv_bfloat162* row = in + blockIdx.x * pairs;
    Moments own = {0, 0, 0};
    for (int k = threadIdx.x; k < pairs; k += 32) {
        const float2 values = __bfloat1622float2(row[k]);
        own = merge(merge(own, {1, values.x, 0}), {1, values.y, 0});
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        own = merge(own, {__shfl_xor_sync(0xffffffff, own.count, distance), __shfl_xor_sync(0xffffffff, own.mean, distance),
                          __shfl_xor_sync(0xffffffff, own.squares, distance)});
    }
    const float inverse = rsqrtf(own.squares / own.count + 1e-5f);
    for (int k = threadIdx.x; k < pairs; k += 32) {
        const float2 values = __bfloat1622float2(row[k]);
        out[blockIdx.x * pairs + k] = __floats2bfloat162_rn((values.x - own.mean) * inverse * scale[k].x + offset[k].x,
                                                            (values.y - own.mean) * inverse * scale[k].y + offset[k].y);
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int rows = 20, columns = 256;
    Numbers numbers(27);
    std::vector<__nv_bfloat16> values(rows * columns);
    for (__nv_bfloat16& value : values) value = __float2bfloat16(numbers.between(-3, 5));
    const std::vector<float> scale = numbers.floats(columns, 0.5f, 2), offset = numbers.floats(columns, -1, 1);
    std::vector<float> expected(rows * columns), found;
    for (int row = 0; row < rows; row++) {
        const auto value = [&](int k) { return double(__bfloat162float(values[row * columns + k])); };
        double mean = 0, variance = 0;
        for (int k = 0; k < columns; k++) mean += value(k) / columns;
        for (int k = 0; k < columns; k++) variance += (value(k) - mean) * (value(k) - mean) / columns;
        for (int k = 0; k < columns; k++) {
            expected[row * columns + k] = float((value(k) - mean) / std::sqrt(variance + 1e-5) * scale[k] + offset[k]);
        }
    }
    const Array<__nv_bfloat16> in(values), out(values.size());
    const Array<float> d_scale(scale), d_offset(offset);
    normalise<<<rows, 32>>>(reinterpret_cast<const __nv_bfloat162*>(in.get()), reinterpret_cast<__nv_bfloat162*>(out.get()),
                            reinterpret_cast<const float2*>(d_scale.get()), reinterpret_cast<const float2*>(d_offset.get()),
                            columns / 2);
    for (__nv_bfloat16 value : out.host()) found.push_back(__bfloat162float(value));
    // Results have eight bits.
    results.near("normalised", found, expected, 1.0 / 128);
    return results.finish();
}
