// The Mandelbrot set: threads of a warp that leave their loops at different times; exact in fixed point, close in float.
// nvcc: --compress-mode=default
#include "sample.h"

constexpr int WIDTH = 96, HEIGHT = 64, LIMIT = 60, FRACTION = 24;

__host__ __device__ int fixed_point(int px, int py) {
    const long long one = 1ll << FRACTION;
    const long long x = -2 * one + px * (3 * one / WIDTH), y = -one + py * (2 * one / HEIGHT);
    long long real = 0, imaginary = 0;
    for (int step = 0; step < LIMIT; step++) {
        const long long rr = real * real >> FRACTION, ii = imaginary * imaginary >> FRACTION;
        if (rr + ii > 4 * one) return step;
        imaginary = (real * imaginary >> (FRACTION - 1)) + y;
        real = rr - ii + x;
    }
    return LIMIT;
}

__global__ void draw_fixed(int* image) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < WIDTH && y < HEIGHT) image[y * WIDTH + x] = fixed_point(x, y);
}

// Points are handed out by a counter: warps stay together, whatever their points cost.
__global__ void draw_float(unsigned char* image, int* next) {
    while (true) {
        int first = 0;
        if (threadIdx.x == 0) first = atomicAdd(next, 32);
        const int at = __shfl_sync(0xffffffff, first, 0) + threadIdx.x;
        if (__all_sync(0xffffffff, at >= WIDTH * HEIGHT)) return;
        if (at >= WIDTH * HEIGHT) continue;
        const float x = -2.0f + at % WIDTH * (3.0f / WIDTH), y = -1.0f + at / WIDTH * (2.0f / HEIGHT);
        float real = 0, imaginary = 0;
        int step = 0;
        while (step < LIMIT && real * real + imaginary * imaginary <= 4) {
            const float kept = real;
            real = real * real - imaginary * imaginary + x;
            imaginary = 2 * kept * imaginary + y;
            step++;
        }
        image[at] = step;
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    const Array<int> fixed(WIDTH * HEIGHT), next(1);
    const Array<unsigned char> floats(WIDTH * HEIGHT);
    draw_fixed<<<dim3(ceil_div(WIDTH, 16), ceil_div(HEIGHT, 8)), dim3(16, 8)>>>(fixed);
    draw_float<<<6, 32>>>(floats, next);
    std::vector<int> expected(WIDTH * HEIGHT);
    for (int i = 0; i < WIDTH * HEIGHT; i++) expected[i] = fixed_point(i % WIDTH, i / WIDTH);
    results.exact("fixed point", fixed.host(), expected);
    // Points at the edge of the set differ by rounding.
    int different = 0;
    const std::vector<unsigned char> found = floats.host();
    for (int i = 0; i < WIDTH * HEIGHT; i++) different += std::abs(found[i] - expected[i]) > 2;
    results.holds("floats agree but for few points", different < WIDTH * HEIGHT / 50);
    return results.finish();
}
