// Transposes: plainly, through a padded tile in shared memory, by shuffles within a warp, and with pitched rows.
#include "sample.h"

constexpr int TILE = 32, ROWS = 8;

__global__ void plainly(const short* in, short* out, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[x * height + y] = in[y * width + x];
}

__global__ void by_tile(const char* in, size_t in_pitch, char* out, size_t out_pitch, int width, int height) {
    __shared__ int tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int k = 0; k < TILE; k += ROWS) {
        if (x < width && y + k < height) {
            tile[threadIdx.y + k][threadIdx.x] = reinterpret_cast<const int*>(in + (y + k) * in_pitch)[x];
        }
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int k = 0; k < TILE; k += ROWS) {
        if (x < height && y + k < width) {
            reinterpret_cast<int*>(out + (y + k) * out_pitch)[x] = tile[threadIdx.x][threadIdx.y + k];
        }
    }
}

// 32 x 32 words, one row in each lane's registers: five rounds of exchanges with the lane at half the distance.
__global__ void by_shuffles(const unsigned* in, unsigned* out) {
    unsigned row[32];
    const int lane = threadIdx.x;
    for (int k = 0; k < 32; k++) row[k] = in[lane * 32 + k];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
#pragma unroll
        for (int k = 0; k < 32; k++) {
            if ((k & distance) != 0) continue;
            const bool upper = (lane & distance) != 0;
            const unsigned received = __shfl_xor_sync(0xffffffff, upper ? row[k] : row[k + distance], distance);
            if (upper) {
                row[k] = received;
            } else {
                row[k + distance] = received;
            }
        }
    }
    for (int k = 0; k < 32; k++) out[lane * 32 + k] = row[k];
}

template <class T>
std::vector<T> transposed(const std::vector<T>& in, int width, int height) {
    std::vector<T> out(in.size());
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) out[x * height + y] = in[y * width + x];
    }
    return out;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int width = 100, height = 75;
    const std::vector<int> values = Numbers(22).integers(width * height, 1 << 30);
    const std::vector<short> shorts(values.begin(), values.end());
    const Array<short> in(shorts), out(shorts.size());
    plainly<<<dim3(ceil_div(width, 16), ceil_div(height, 16)), dim3(16, 16)>>>(in, out, width, height);
    results.exact("plainly", out.host(), transposed(shorts, width, height));

    char *pitched_in, *pitched_out;
    size_t in_pitch, out_pitch;
    CHECK(cudaMallocPitch(&pitched_in, &in_pitch, width * sizeof(int), height));
    CHECK(cudaMallocPitch(&pitched_out, &out_pitch, height * sizeof(int), width));
    CHECK(cudaMemcpy2D(pitched_in, in_pitch, values.data(), width * sizeof(int), width * sizeof(int), height,
                       cudaMemcpyHostToDevice));
    by_tile<<<dim3(ceil_div(width, TILE), ceil_div(height, TILE)), dim3(TILE, ROWS)>>>(pitched_in, in_pitch, pitched_out,
                                                                                      out_pitch, width, height);
    std::vector<int> back(values.size());
    CHECK(cudaMemcpy2D(back.data(), height * sizeof(int), pitched_out, out_pitch, height * sizeof(int), width,
                       cudaMemcpyDeviceToHost));
    results.exact("by tiles, with pitched rows", back, transposed(values, width, height));
    CHECK(cudaFree(pitched_in));
    CHECK(cudaFree(pitched_out));

    std::vector<unsigned> square(32 * 32);
    for (int i = 0; i < 32 * 32; i++) square[i] = i * 2654435761u;
    const Array<unsigned> square_in(square), square_out(square.size());
    by_shuffles<<<1, 32>>>(square_in, square_out);
    results.exact("by shuffles", square_out.host(), transposed(square, 32, 32));
    return results.finish();
}
