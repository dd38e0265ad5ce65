// Calls that are chosen when the kernel runs: function pointers, tables of them, virtual functions, member pointers.
#include "sample.h"

using Operation = int (*)(int, int);

__device__ int plus(int a, int b) { return a + b; }
__device__ int minus(int a, int b) { return a - b; }
__device__ int times(int a, int b) { return a * b; }
__device__ int larger(int a, int b) { return max(a, b); }

__device__ const Operation operations[] = {plus, minus, times, larger};
__device__ Operation chosen = times;

int on_host(int which, int a, int b) {
    const int all[] = {a + b, a - b, a * b, std::max(a, b)};
    return all[which];
}

__global__ void by_table(const int* which, int* out) {
    const int i = threadIdx.x;
    out[i] = operations[which[i]](i, 7) + chosen(i, 2);
}

// The host hands a device function's address from one kernel to another.
__global__ void give_address(Operation* place) { *place = larger; }
__global__ void use_address(Operation operation, int* out) { out[threadIdx.x] = operation(threadIdx.x, 20); }

class Shape {
public:
    __device__ virtual ~Shape() {}
    __device__ virtual int area() const = 0;
    __device__ virtual int corners() const { return 0; }
};

class Square : public Shape {
public:
    __device__ explicit Square(int side) : side_(side) {}
    __device__ int area() const override { return side_ * side_; }
    __device__ int corners() const override { return 4; }

private:
    int side_;
};

class Disc : public Shape {
public:
    __device__ explicit Disc(int radius) : radius_(radius) {}
    __device__ int area() const override { return 3 * radius_ * radius_; }

private:
    int radius_;
};

// Objects are made where they are used: a table of virtual functions is the device's own.
__global__ void measure(int* areas, int* corners) {
    const Square square(threadIdx.x + 1);
    const Disc disc(threadIdx.x + 2);
    const Shape* const shape = threadIdx.x % 3 == 0 ? static_cast<const Shape*>(&disc) : &square;
    areas[threadIdx.x] = shape->area();
    corners[threadIdx.x] = shape->corners();
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int threads = 64;
    const std::vector<int> which = Numbers(35).integers(threads, 4);
    const Array<int> d_which(which), table(threads), given(threads), areas(threads), corners(threads);
    by_table<<<1, threads>>>(d_which, table);
    const Array<Operation> place(1);
    give_address<<<1, 1>>>(place);
    use_address<<<1, threads>>>(place.host()[0], given);
    measure<<<1, threads>>>(areas, corners);
    std::vector<int> expected_table, expected_given, expected_areas, expected_corners;
    for (int i = 0; i < threads; i++) {
        expected_table.push_back(on_host(which[i], i, 7) + i * 2);
        expected_given.push_back(std::max(i, 20));
        expected_areas.push_back(i % 3 == 0 ? 3 * (i + 2) * (i + 2) : (i + 1) * (i + 1));
        expected_corners.push_back(i % 3 == 0 ? 0 : 4);
    }
    results.exact("by table", table.host(), expected_table);
    results.exact("by a pointer that was handed over", given.host(), expected_given);
    results.exact("areas by virtual functions", areas.host(), expected_areas);
    results.exact("corners by virtual functions", corners.host(), expected_corners);
    return results.finish();
}
