// A matrix product with one thread for each element, in three precisions.
// nvcc: -arch=compute_75 -code=compute_75
#include "sample.h"

template <class T>
__global__ void multiply(const T* a, const T* b, T* product, int rows, int inner, int columns) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    T sum = 0;
    for (int k = 0; k < inner; k++) sum += a[row * inner + k] * b[k * columns + column];
    product[row * columns + column] = sum;
}

template <class T>
void run(Results& results, const std::string& name, bool is_exact) {
    constexpr int rows = 37, inner = 50, columns = 43;
    std::vector<T> a(rows * inner), b(inner * columns), expected(rows * columns);
    Numbers numbers(12);
    for (T& value : a) value = is_exact ? T(numbers.below(100)) : T(numbers.between(-1, 1));
    for (T& value : b) value = is_exact ? T(numbers.below(100)) : T(numbers.between(-1, 1));
    for (int row = 0; row < rows; row++) {
        for (int column = 0; column < columns; column++) {
            for (int k = 0; k < inner; k++) expected[row * columns + column] += a[row * inner + k] * b[k * columns + column];
        }
    }
    const Array<T> left(a), right(b), product(expected.size());
    multiply<<<dim3(ceil_div(columns, 16), ceil_div(rows, 8)), dim3(16, 8)>>>(left.get(), right.get(), product.get(), rows,
                                                                             inner, columns);
    if (is_exact) {
        results.exact(name, product.host(), expected);
    } else {
        // The device multiplies and adds in one rounding.
        results.near(name, product.host(), expected, 1e-5);
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    run<int>(results, "integers", true);
    run<float>(results, "floats without rounding", true);
    run<float>(results, "floats", false);
    run<double>(results, "doubles", false);
    return results.finish();
}
