// A convolution with its weights in constant memory: separable in two passes, and directly; and one of many channels.
#include "sample.h"

constexpr int RADIUS = 2, TAPS = 2 * RADIUS + 1;
__constant__ int taps[TAPS];
__constant__ float weights[4][3][3][3];

__global__ void along_rows(const int* in, int* out, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    int sum = 0;
    for (int k = -RADIUS; k <= RADIUS; k++) {
        const int at = min(max(x + k, 0), width - 1);
        sum += taps[k + RADIUS] * in[y * width + at];
    }
    out[y * width + x] = sum;
}

__global__ void along_columns(const int* in, int* out, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    int sum = 0;
    for (int k = -RADIUS; k <= RADIUS; k++) {
        const int at = min(max(y + k, 0), height - 1);
        sum += taps[k + RADIUS] * in[at * width + x];
    }
    out[y * width + x] = sum;
}

// Three channels in, four out; the grid's third dimension is the output channel.
__global__ void channels(const float* in, float* out, int side) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, channel = blockIdx.z;
    if (x >= side || y >= side) return;
    float sum = 0;
    for (int from = 0; from < 3; from++) {
        for (int dy = 0; dy < 3; dy++) {
            for (int dx = 0; dx < 3; dx++) {
                const int fx = x + dx - 1, fy = y + dy - 1;
                if (fx < 0 || fy < 0 || fx >= side || fy >= side) continue;
                sum = fmaf(weights[channel][from][dy][dx], in[(from * side + fy) * side + fx], sum);
            }
        }
    }
    out[(channel * side + y) * side + x] = fmaxf(sum, 0);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    {
        constexpr int width = 80, height = 50;
        const int host_taps[TAPS] = {1, 4, 6, 4, 1};
        CHECK(cudaMemcpyToSymbol(taps, host_taps, sizeof host_taps));
        const std::vector<int> image = Numbers(23).integers(width * height, 256);
        std::vector<int> expected(width * height);
        for (int y = 0; y < height; y++) {
            for (int x = 0; x < width; x++) {
                for (int dy = -RADIUS; dy <= RADIUS; dy++) {
                    for (int dx = -RADIUS; dx <= RADIUS; dx++) {
                        const int fx = std::min(std::max(x + dx, 0), width - 1), fy = std::min(std::max(y + dy, 0), height - 1);
                        expected[y * width + x] += host_taps[dx + RADIUS] * host_taps[dy + RADIUS] * image[fy * width + fx];
                    }
                }
            }
        }
        const Array<int> in(image), middle(image.size()), out(image.size());
        along_rows<<<dim3(ceil_div(width, 32), height), 32>>>(in, middle, width, height);
        along_columns<<<dim3(ceil_div(width, 32), height), 32>>>(middle, out, width, height);
        results.exact("separable", out.host(), expected);
        int read_back[TAPS];
        CHECK(cudaMemcpyFromSymbol(read_back, taps, sizeof read_back));
        results.exact("taps read back", std::vector<int>(read_back, read_back + TAPS),
                      std::vector<int>(host_taps, host_taps + TAPS));
    }
    {
        constexpr int side = 30;
        const std::vector<float> kernel = Numbers(24).floats(4 * 27, -1, 1), image = Numbers(25).floats(3 * side * side);
        CHECK(cudaMemcpyToSymbol(weights, kernel.data(), kernel.size() * sizeof(float)));
        std::vector<float> expected(4 * side * side);
        for (int channel = 0; channel < 4; channel++) {
            for (int y = 0; y < side; y++) {
                for (int x = 0; x < side; x++) {
                    float sum = 0;
                    for (int k = 0; k < 27; k++) {
                        const int from = k / 9, fx = x + k % 3 - 1, fy = y + k / 3 % 3 - 1;
                        if (fx < 0 || fy < 0 || fx >= side || fy >= side) continue;
                        sum = std::fma(kernel[channel * 27 + k], image[(from * side + fy) * side + fx], sum);
                    }
                    expected[(channel * side + y) * side + x] = std::fmax(sum, 0.0f);
                }
            }
        }
        const Array<float> in(image), out(expected.size());
        channels<<<dim3(ceil_div(side, 8), ceil_div(side, 8), 4), dim3(8, 8)>>>(in, out, side);
        results.exact("channels", out.host(), expected);
    }
    return results.finish();
}
