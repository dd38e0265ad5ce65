// Recursion, function pointers, virtual functions, structs by value, noreturn and weak functions.

struct Pair { double first; int second[3]; };

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ Pair swap(Pair pair, char tag) {
    return Pair{(double)pair.second[0], {(int)pair.first, pair.second[2], tag}};
}
__device__ __noinline__ float plus(float a, float b) { return a + b; }
__device__ __noinline__ float minus(float a, float b) { return a - b; }
__device__ [[noreturn]] __noinline__ void stop() { __trap(); while (true) { } }
extern __device__ int elsewhere(float4 value, short narrow);

typedef float (*Operation)(float, float);
__device__ Operation operations[2] = {plus, minus};

struct Shape { __device__ virtual float area() const = 0; };
struct Square : Shape {
    float side;
    __device__ Square(float side) : side(side) {}
    __device__ float area() const override { return side * side; }
};
struct Circle : Shape {
    float radius;
    __device__ Circle(float radius) : radius(radius) {}
    __device__ float area() const override { return 3.0f * radius * radius; }
};

template <typename T> __device__ __noinline__ T generic_max(T a, T b) { return a > b ? a : b; }

extern "C" __global__ void calls(float *out, int which, Pair pair) {
    if (which < 0) {
        stop();
    }
    Square square(2.0f);
    Circle circle(1.0f);
    const Shape *shape = which & 1 ? (const Shape *)&square : (const Shape *)&circle;
    Pair swapped = swap(pair, (char)which);
    out[0] = operations[which & 1](1.0f, 2.0f) + fibonacci(which) + shape->area();
    out[1] = (float)swapped.first + swapped.second[2] + generic_max(which, 3) + generic_max(1.5, (double)which);
    out[2] = elsewhere(make_float4(1, 2, 3, 4), (short)which);
}
