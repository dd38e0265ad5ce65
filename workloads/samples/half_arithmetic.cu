// Half and bfloat16: sums, products, fused steps, comparisons and conversions, one by one and two at once.
#include "sample.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Every operation on the device is compared with float arithmetic that is rounded once to the small type: a sum,
// product or fused step of two halves is exact in double.
template <class T>
struct Small;

template <>
struct Small<__half> {
    static float widen(__half value) { return __half2float(value); }
    static __half narrow(double value) { return __double2half(value); }
};

template <>
struct Small<__nv_bfloat16> {
    static float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
    static __nv_bfloat16 narrow(double value) { return __double2bfloat16(value); }
};

template <class T>
__global__ void one_by_one(const T* a, const T* b, const T* c, T* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    out[i] = a[i] + b[i];
    out[count + i] = a[i] * b[i];
    out[2 * count + i] = __hfma(a[i], b[i], c[i]);
    out[3 * count + i] = __hmax(a[i], b[i]);
    out[4 * count + i] = -a[i];
    out[5 * count + i] = a[i] < b[i] ? a[i] : b[i];
    out[6 * count + i] = a[i] - b[i];
}

template <class Pair, class T>
__global__ void in_pairs(const Pair* a, const Pair* b, const Pair* c, Pair* out, int pairs) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs) return;
    out[i] = __hadd2(a[i], b[i]);
    out[pairs + i] = __hmul2(a[i], b[i]);
    out[2 * pairs + i] = __hfma2(a[i], b[i], c[i]);
    out[3 * pairs + i] = __hmax2(a[i], b[i]);
    out[4 * pairs + i] = __hneg2(a[i]);
    out[5 * pairs + i] = __hmin2(a[i], b[i]);
    out[6 * pairs + i] = __hsub2(a[i], b[i]);
}

template <class Pair, class T>
void run(Results& results, const std::string& name) {
    constexpr int count = 512;
    Numbers numbers(46);
    std::vector<T> a(count), b(count), c(count), expected(7 * count);
    for (int i = 0; i < count; i++) {
        a[i] = Small<T>::narrow(numbers.between(-8, 8));
        b[i] = Small<T>::narrow(numbers.between(-8, 8));
        c[i] = Small<T>::narrow(numbers.between(-64, 64));
        const double x = Small<T>::widen(a[i]), y = Small<T>::widen(b[i]), z = Small<T>::widen(c[i]);
        const double all[] = {x + y, x * y, x * y + z, std::fmax(x, y), -x, std::fmin(x, y), x - y};
        for (int k = 0; k < 7; k++) expected[k * count + i] = Small<T>::narrow(all[k]);
    }
    const Array<T> d_a(a), d_b(b), d_c(c), singles(7 * count), pairs(7 * count);
    one_by_one<<<ceil_div(count, 64), 64>>>(d_a.get(), d_b.get(), d_c.get(), singles.get(), count);
    const auto as_pairs = [](const Array<T>& array) { return reinterpret_cast<Pair*>(array.get()); };
    in_pairs<Pair, T><<<ceil_div(count / 2, 64), 64>>>(as_pairs(d_a), as_pairs(d_b), as_pairs(d_c), as_pairs(pairs), count / 2);
    results.exact(name + " one by one", singles.host(), expected);
    results.exact(name + " in pairs", pairs.host(), expected);
}

__global__ void convert(const float* in, __half* halves, __nv_bfloat16* bfloats, int* rounded, float* back, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    halves[i] = __float2half(in[i]);
    bfloats[i] = __float2bfloat16(in[i]);
    rounded[i] = __half2int_rn(halves[i]);
    back[i] = __half2float(halves[i]) - __bfloat162float(bfloats[i]);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    run<__half2, __half>(results, "half");
    run<__nv_bfloat162, __nv_bfloat16>(results, "bfloat16");

    const std::vector<float> values = Numbers(47).floats(500, -1000, 1000);
    const Array<float> in(values), back(500);
    const Array<__half> halves(500);
    const Array<__nv_bfloat16> bfloats(500);
    const Array<int> rounded(500);
    convert<<<8, 64>>>(in, halves, bfloats, rounded, back, 500);
    std::vector<__half> expected_halves;
    std::vector<__nv_bfloat16> expected_bfloats;
    std::vector<int> expected_rounded;
    std::vector<float> expected_back;
    for (float value : values) {
        expected_halves.push_back(__float2half(value));
        expected_bfloats.push_back(__float2bfloat16(value));
        const float half = __half2float(expected_halves.back());
        expected_rounded.push_back(static_cast<int>(std::nearbyint(half)));
        expected_back.push_back(half - __bfloat162float(expected_bfloats.back()));
    }
    results.exact("to half", halves.host(), expected_halves);
    results.exact("to bfloat16", bfloats.host(), expected_bfloats);
    results.exact("half to integer", rounded.host(), expected_rounded);
    results.exact("and back", back.host(), expected_back);
    return results.finish();
}
