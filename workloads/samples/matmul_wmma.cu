// Matrix products on tensor cores by the wmma functions: half and bfloat16 into float, half into half, bytes into integers.
#include "sample.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int SIZE = 64, STEP = 16;

template <class In, class Out>
__global__ void multiply(const In* a, const In* b, Out* product) {
    wmma::fragment<wmma::matrix_a, STEP, STEP, STEP, In, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, STEP, STEP, STEP, In, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, STEP, STEP, STEP, Out> sum;
    wmma::fill_fragment(sum, Out(0));
    const int row = blockIdx.y * STEP, column = blockIdx.x * STEP;
    for (int k = 0; k < SIZE; k += STEP) {
        wmma::load_matrix_sync(left, a + row * SIZE + k, SIZE);
        wmma::load_matrix_sync(right, b + column * SIZE + k, SIZE);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(product + row * SIZE + column, sum, SIZE, wmma::mem_row_major);
}

// Small whole numbers: products and sums are exact in every one of these types, whatever the order.
template <class In, class Out>
void run(Results& results, const std::string& name) {
    std::vector<In> a(SIZE * SIZE), b(SIZE * SIZE);
    std::vector<int> whole_a(SIZE * SIZE), whole_b(SIZE * SIZE);
    Numbers numbers(17);
    for (int i = 0; i < SIZE * SIZE; i++) {
        whole_a[i] = static_cast<int>(numbers.below(9)) - 4;
        whole_b[i] = static_cast<int>(numbers.below(9)) - 4;
        if constexpr (std::is_integral_v<In>) {
            a[i] = static_cast<In>(whole_a[i]);
            b[i] = static_cast<In>(whole_b[i]);
        } else {
            a[i] = In(static_cast<float>(whole_a[i]));
            b[i] = In(static_cast<float>(whole_b[i]));
        }
    }
    std::vector<int> expected(SIZE * SIZE), found(SIZE * SIZE);
    for (int row = 0; row < SIZE; row++) {
        for (int column = 0; column < SIZE; column++) {
            for (int k = 0; k < SIZE; k++) {
                expected[row * SIZE + column] += whole_a[row * SIZE + k] * whole_b[column * SIZE + k];
            }
        }
    }
    const Array<In> left(a), right(b);
    const Array<Out> product(SIZE * SIZE);
    multiply<<<dim3(SIZE / STEP, SIZE / STEP), 32>>>(left.get(), right.get(), product.get());
    const std::vector<Out> values = product.host();
    for (int i = 0; i < SIZE * SIZE; i++) found[i] = static_cast<int>(static_cast<float>(values[i]));
    results.exact(name, found, expected);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    run<__half, float>(results, "half into float");
    run<__half, __half>(results, "half into half");
    run<__nv_bfloat16, float>(results, "bfloat16 into float");
    run<signed char, int>(results, "signed bytes into integers");
    return results.finish();
}
