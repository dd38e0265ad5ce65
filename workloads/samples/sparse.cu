// A sparse matrix times a vector: rows by threads and by warps (CSR), coordinates by atomics (COO), padded rows (ELL).
#include "sample.h"

__global__ void csr_by_thread(const int* begins, const int* columns, const double* values, const double* x, double* y, int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double sum = 0;
    for (int k = begins[row]; k < begins[row + 1]; k++) sum += values[k] * x[columns[k]];
    y[row] = sum;
}

__global__ void csr_by_warp(const int* begins, const int* columns, const double* values, const double* x, double* y, int rows) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    double sum = 0;
    for (int k = begins[row] + lane; k < begins[row + 1]; k += 32) sum += values[k] * x[columns[k]];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(0xffffffff, sum, distance);
    if (lane == 0) y[row] = sum;
}

__global__ void coo(const int* rows, const int* columns, const double* values, int count, const double* x, double* y) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < count) atomicAdd(&y[rows[k]], values[k] * x[columns[k]]);
}

__global__ void ell(const int* columns, const double* values, int longest, const double* x, double* y, int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double sum = 0;
    for (int k = 0; k < longest; k++) {
        const int column = columns[k * rows + row];
        if (column >= 0) sum += values[k * rows + row] * x[column];
    }
    y[row] = sum;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int rows = 700, longest = 40, threads = 128;
    Numbers numbers(21);
    std::vector<int> begins = {0}, columns, row_of, padded_columns(rows * longest, -1);
    std::vector<double> values, padded_values(rows * longest), x(rows), expected(rows);
    // Whole numbers: sums are exact in any order.
    for (double& value : x) value = numbers.below(100);
    for (int row = 0; row < rows; row++) {
        const int length = static_cast<int>(numbers.below(longest + 1));
        for (int k = 0; k < length; k++) {
            columns.push_back(static_cast<int>(numbers.below(rows)));
            values.push_back(numbers.below(100));
            row_of.push_back(row);
            padded_columns[k * rows + row] = columns.back();
            padded_values[k * rows + row] = values.back();
            expected[row] += values.back() * x[columns.back()];
        }
        begins.push_back(static_cast<int>(columns.size()));
    }
    const int count = static_cast<int>(columns.size());
    const Array<int> d_begins(begins), d_columns(columns), d_rows(row_of), d_padded_columns(padded_columns);
    const Array<double> d_values(values), d_padded_values(padded_values), d_x(x);
    const Array<double> by_thread(rows), by_warp(rows), by_entry(rows), by_padded_row(rows);
    csr_by_thread<<<ceil_div(rows, threads), threads>>>(d_begins, d_columns, d_values, d_x, by_thread, rows);
    csr_by_warp<<<ceil_div(rows * 32, threads), threads>>>(d_begins, d_columns, d_values, d_x, by_warp, rows);
    coo<<<ceil_div(count, threads), threads>>>(d_rows, d_columns, d_values, count, d_x, by_entry);
    ell<<<ceil_div(rows, threads), threads>>>(d_padded_columns, d_padded_values, longest, d_x, by_padded_row, rows);
    results.exact("CSR, a thread for each row", by_thread.host(), expected);
    results.exact("CSR, a warp for each row", by_warp.host(), expected);
    results.exact("COO", by_entry.host(), expected);
    results.exact("ELL", by_padded_row.host(), expected);
    return results.finish();
}
