// One kernel for many types and sizes: vectors of several lengths, matrices of fixed size, policies, unrolled loops.
#include "sample.h"

template <class T, int N>
struct Vector {
    T v[N];
    __host__ __device__ T& operator[](int i) { return v[i]; }
    __host__ __device__ T operator[](int i) const { return v[i]; }
};

template <class T, int N>
__host__ __device__ T dot(const Vector<T, N>& a, const Vector<T, N>& b) {
    T sum = 0;
    for (int i = 0; i < N; i++) sum += a[i] * b[i];
    return sum;
}

// The determinant by expansion, one size smaller at each level of the template.
template <class T, int N>
__host__ __device__ T determinant(const Vector<Vector<T, N>, N>& matrix) {
    if constexpr (N == 1) {
        return matrix.v[0][0];
    } else {
        T sum = 0;
        for (int column = 0; column < N; column++) {
            Vector<Vector<T, N - 1>, N - 1> minor;
            for (int row = 1; row < N; row++) {
                for (int k = 0, at = 0; k < N; k++) {
                    if (k != column) minor.v[row - 1][at++] = matrix.v[row][k];
                }
            }
            const T part = matrix.v[0][column] * determinant<T, N - 1>(minor);
            sum += column % 2 == 0 ? part : -part;
        }
        return sum;
    }
}

struct Saturating {
    static __host__ __device__ unsigned char add(unsigned char a, unsigned char b) { return a + b > 255 ? 255 : a + b; }
};

struct Wrapping {
    static __host__ __device__ unsigned char add(unsigned char a, unsigned char b) { return a + b; }
};

template <class T, int N>
__global__ void dots(const Vector<T, N>* a, const Vector<T, N>* b, T* out) {
    out[threadIdx.x] = dot(a[threadIdx.x], b[threadIdx.x]);
}

template <class T, int N>
__global__ void determinants(const Vector<Vector<T, N>, N>* matrices, T* out) {
    out[threadIdx.x] = determinant<T, N>(matrices[threadIdx.x]);
}

template <class Policy>
__global__ void add(const unsigned char* a, const unsigned char* b, unsigned char* out) {
    out[threadIdx.x] = Policy::add(a[threadIdx.x], b[threadIdx.x]);
}

constexpr int THREADS = 64;

template <class T, int N>
void run_dots(Results& results, const std::string& name) {
    std::vector<Vector<T, N>> a(THREADS), b(THREADS);
    std::vector<T> expected;
    Numbers numbers(37 + N);
    for (int i = 0; i < THREADS; i++) {
        for (int k = 0; k < N; k++) {
            a[i][k] = T(numbers.below(50));
            b[i][k] = T(numbers.below(50));
        }
        expected.push_back(dot(a[i], b[i]));
    }
    const Array<Vector<T, N>> d_a(a), d_b(b);
    const Array<T> out(THREADS);
    dots<<<1, THREADS>>>(d_a.get(), d_b.get(), out.get());
    results.exact("dots of " + std::to_string(N) + " " + name, out.host(), expected);
}

template <int N>
void run_determinants(Results& results) {
    std::vector<Vector<Vector<int, N>, N>> matrices(THREADS);
    std::vector<int> expected;
    Numbers numbers(38);
    for (auto& matrix : matrices) {
        for (auto& row : matrix.v) {
            for (int& value : row.v) value = static_cast<int>(numbers.below(11)) - 5;
        }
        expected.push_back(determinant<int, N>(matrix));
    }
    const Array<Vector<Vector<int, N>, N>> d_matrices(matrices);
    const Array<int> out(THREADS);
    determinants<<<1, THREADS>>>(d_matrices.get(), out.get());
    results.exact("determinants of size " + std::to_string(N), out.host(), expected);
}

template <class Policy>
void run_sums(Results& results, const std::string& name) {
    std::vector<unsigned char> a(THREADS), b(THREADS), expected;
    for (int i = 0; i < THREADS; i++) {
        a[i] = i * 4;
        b[i] = i * 7;
        expected.push_back(Policy::add(a[i], b[i]));
    }
    const Array<unsigned char> d_a(a), d_b(b), out(THREADS);
    add<Policy><<<1, THREADS>>>(d_a, d_b, out);
    results.exact(name, out.host(), expected);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    run_dots<int, 3>(results, "integers");
    run_dots<short, 5>(results, "shorts");
    run_dots<float, 8>(results, "floats");
    run_dots<double, 2>(results, "doubles");
    run_dots<unsigned long long, 7>(results, "long integers");
    run_determinants<2>(results);
    run_determinants<4>(results);
    run_sums<Saturating>(results, "saturating sums");
    run_sums<Wrapping>(results, "wrapping sums");
    return results.finish();
}
