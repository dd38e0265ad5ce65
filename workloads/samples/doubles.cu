// Double precision: what IEEE 754 fixes bit for bit, directed rounding, and functions within a bound of the host's.
#include "sample.h"

#include <cfenv>

constexpr int BASIC = 7, FUNCTIONS = 8;

__global__ void basics(const double* a, const double* b, double* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    out[i] = __dadd_rn(a[i], b[i]);
    out[count + i] = __dmul_rn(a[i], b[i]);
    out[2 * count + i] = a[i] / b[i];
    out[3 * count + i] = sqrt(a[i]);
    out[4 * count + i] = fma(a[i], b[i], -1.0);
    out[5 * count + i] = rint(a[i] * 16);
    out[6 * count + i] = static_cast<float>(a[i]);
}

__global__ void directed(const double* a, const double* b, double* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    out[i] = __dadd_rd(a[i], b[i]);
    out[count + i] = __dadd_ru(a[i], b[i]);
    out[2 * count + i] = __dmul_rz(a[i], b[i]);
    out[3 * count + i] = __ddiv_ru(a[i], b[i]);
}

__global__ void functions(const double* a, double* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    out[i] = exp(a[i]);
    out[count + i] = log(a[i]);
    out[2 * count + i] = sin(a[i]);
    out[3 * count + i] = tanh(a[i] / 4);
    out[4 * count + i] = pow(a[i], 1.75);
    out[5 * count + i] = atan2(a[i], 3.0);
    out[6 * count + i] = erf(a[i] / 8);
    out[7 * count + i] = cbrt(a[i]);
}

// A series whose terms cancel: Kahan's sum keeps what a plain one loses.
__global__ void kahan(const double* values, int count, double* out) {
    double sum = 0, lost = 0;
    for (int i = 0; i < count; i++) {
        const double value = __dsub_rn(values[i], lost), next = __dadd_rn(sum, value);
        lost = __dsub_rn(__dsub_rn(next, sum), value);
        sum = next;
    }
    *out = sum;
}

// In a direction; the compiler must not compute it beforehand.
template <class Operation>
double rounded(int direction, Operation operation) {
    std::fesetround(direction);
    volatile double result = operation();
    std::fesetround(FE_TONEAREST);
    return result;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 300, threads = 64;
    Numbers numbers(48);
    std::vector<double> a(count), b(count);
    for (int i = 0; i < count; i++) {
        a[i] = 0.01 + 10 * (static_cast<double>(numbers.next() >> 11) * 0x1p-53);
        b[i] = 0.01 + 10 * (static_cast<double>(numbers.next() >> 11) * 0x1p-53);
    }
    std::vector<double> expected(BASIC * count), expected_directed(4 * count), expected_functions(FUNCTIONS * count);
    for (int i = 0; i < count; i++) {
        volatile double x = a[i], y = b[i];
        const double basic[] = {x + y, x * y, x / y, std::sqrt(x), std::fma(x, y, -1.0), std::nearbyint(x * 16), double(float(x))};
        for (int k = 0; k < BASIC; k++) expected[k * count + i] = basic[k];
        expected_directed[i] = rounded(FE_DOWNWARD, [&] { return x + y; });
        expected_directed[count + i] = rounded(FE_UPWARD, [&] { return x + y; });
        expected_directed[2 * count + i] = rounded(FE_TOWARDZERO, [&] { return x * y; });
        expected_directed[3 * count + i] = rounded(FE_UPWARD, [&] { return x / y; });
        const double function[] = {std::exp(x),       std::log(x),          std::sin(x),     std::tanh(x / 4),
                                   std::pow(x, 1.75), std::atan2(x, 3.0), std::erf(x / 8), std::cbrt(x)};
        for (int k = 0; k < FUNCTIONS; k++) expected_functions[k * count + i] = function[k];
    }
    const Array<double> d_a(a), d_b(b), basic(BASIC * count), in_directions(4 * count), of_functions(FUNCTIONS * count), sum(1);
    basics<<<ceil_div(count, threads), threads>>>(d_a, d_b, basic, count);
    directed<<<ceil_div(count, threads), threads>>>(d_a, d_b, in_directions, count);
    functions<<<ceil_div(count, threads), threads>>>(d_a, of_functions, count);
    results.exact("basics", basic.host(), expected);
    results.exact("directed rounding", in_directions.host(), expected_directed);
    results.near("functions", of_functions.host(), expected_functions, 1e-14);

    std::vector<double> terms;
    for (int i = 0; i < 200; i++) terms.insert(terms.end(), {1e16, 1.0, -1e16});
    const Array<double> d_terms(terms);
    kahan<<<1, 1>>>(d_terms, static_cast<int>(terms.size()), sum);
    volatile double total = 0, lost = 0;
    for (double term : terms) {
        volatile double value = term - lost, next = total + value;
        lost = (next - total) - value;
        total = next;
    }
    results.exact("Kahan's sum", sum.host()[0], static_cast<double>(total));
    return results.finish();
}
