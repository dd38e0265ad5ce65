// Stencils in one, two and three dimensions: with a halo in shared memory, with a tile, and with planes in registers.
#include "sample.h"

constexpr int RADIUS = 3;

__global__ void line(const int* in, int* out, int count) {
    extern __shared__ int part[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, at = threadIdx.x + RADIUS;
    const auto value = [&](int k) { return k >= 0 && k < count ? in[k] : 0; };
    part[at] = value(i);
    if (threadIdx.x < RADIUS) {
        part[at - RADIUS] = value(i - RADIUS);
        part[at + blockDim.x] = value(i + blockDim.x);
    }
    __syncthreads();
    int sum = 0;
    for (int k = -RADIUS; k <= RADIUS; k++) sum += part[at + k] * (RADIUS + 1 - abs(k));
    if (i < count) out[i] = sum;
}

constexpr int TILE = 16;

// Powers of two as weights: every order of the additions gives the same bits.
__global__ void plane(const float* in, float* out, int width, int height) {
    __shared__ float tile[TILE + 2][TILE + 2];
    const int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int dy = threadIdx.y; dy < TILE + 2; dy += TILE) {
        for (int dx = threadIdx.x; dx < TILE + 2; dx += TILE) {
            const int fx = blockIdx.x * TILE + dx - 1, fy = blockIdx.y * TILE + dy - 1;
            tile[dy][dx] = fx >= 0 && fx < width && fy >= 0 && fy < height ? in[fy * width + fx] : 0;
        }
    }
    __syncthreads();
    if (x >= width || y >= height) return;
    const int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    out[y * width + x] =
        tile[ty][tx] * 0.5f + (tile[ty - 1][tx] + tile[ty + 1][tx] + tile[ty][tx - 1] + tile[ty][tx + 1]) * 0.125f;
}

__global__ void cube(const double* in, double* out, int side) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= side - 1 || y >= side - 1) return;
    const int layer = side * side, at = y * side + x;
    double below = in[at], here = in[at + layer];
    for (int z = 1; z < side - 1; z++) {
        const int i = z * layer + at;
        const double above = in[i + layer];
        out[i] = below + above + in[i - 1] + in[i + 1] + in[i - side] + in[i + side] - 6 * here;
        below = here;
        here = above;
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    {
        constexpr int count = 5000, threads = 128;
        const std::vector<int> values = Numbers(9).integers(count, 1000);
        std::vector<int> expected(count);
        for (int i = 0; i < count; i++) {
            for (int k = -RADIUS; k <= RADIUS; k++) {
                if (i + k >= 0 && i + k < count) expected[i] += values[i + k] * (RADIUS + 1 - std::abs(k));
            }
        }
        const Array<int> in(values), out(count);
        line<<<ceil_div(count, threads), threads, (threads + 2 * RADIUS) * sizeof(int)>>>(in, out, count);
        results.exact("one dimension", out.host(), expected);
    }
    {
        constexpr int width = 90, height = 70;
        std::vector<float> values(width * height), expected(width * height);
        Numbers numbers(10);
        for (float& value : values) value = static_cast<float>(numbers.below(256));
        const auto value = [&](int x, int y) {
            return x >= 0 && x < width && y >= 0 && y < height ? values[y * width + x] : 0.0f;
        };
        for (int y = 0; y < height; y++) {
            for (int x = 0; x < width; x++) {
                const float around = value(x, y - 1) + value(x, y + 1) + value(x - 1, y) + value(x + 1, y);
                expected[y * width + x] = value(x, y) * 0.5f + around * 0.125f;
            }
        }
        const Array<float> in(values), out(values.size());
        plane<<<dim3(ceil_div(width, TILE), ceil_div(height, TILE)), dim3(TILE, TILE)>>>(in, out, width, height);
        results.exact("two dimensions", out.host(), expected);
    }
    {
        constexpr int side = 24, layer = side * side;
        std::vector<double> values(layer * side), expected(values.size());
        Numbers numbers(11);
        for (double& value : values) value = numbers.below(1000);
        for (int z = 1; z < side - 1; z++) {
            for (int y = 1; y < side - 1; y++) {
                for (int x = 1; x < side - 1; x++) {
                    const double* at = &values[z * layer + y * side + x];
                    expected[z * layer + y * side + x] =
                        at[-layer] + at[layer] + at[-1] + at[1] + at[-side] + at[side] - 6 * at[0];
                }
            }
        }
        const Array<double> in(values), out(values.size());
        cube<<<dim3(3, 3), dim3(8, 8)>>>(in, out, side);
        results.exact("three dimensions", out.host(), expected);
    }
    return results.finish();
}
