// The kernels of long_work.cu: what programs spend milliseconds with, each with as many blocks as it is told.
//
// Every kernel adds to what its output held before, times `keep`: a block that was left out, or that ran twice, shows in the
// result. And every block writes down when it began and when it ended, by the GPU's clock: so the program can tell when its kernel had
// the GPU.
#pragma once

#include "sample.h"

constexpr int THREADS = 256;

// Sizes that stay while the number of blocks changes.
struct Scale {
    int inner, columns;   // matrices: rows of `inner` against `inner` by `columns`
    int image, channels;  // images are square, with as many channels after as before
    int bodies;
    int row;       // values of a row of softmax
    int elements;  // of a unit of the elementwise chain
};

struct Stamp {
    unsigned long long begin, end;
};

__device__ inline unsigned long long gpu_time() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

__device__ inline Stamp* stamp_of_block(Stamp* stamps) {
    return stamps + (static_cast<size_t>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

__device__ inline void begin_block(Stamp* stamps) {
    if (threadIdx.x == 0) stamp_of_block(stamps)->begin = gpu_time();
}

__device__ inline void end_block(Stamp* stamps) {
    __syncthreads();
    if (threadIdx.x == 0) stamp_of_block(stamps)->end = gpu_time();
}

// Whatever was there before the first launch does not count, not even if it is no number.
__device__ inline void add(float& place, float keep, float value) {
    place = fmaf(keep == 0.0f ? 0.0f : place, keep, value);
}

constexpr int TILE = 64, DEPTH = 16, PER_THREAD = 4, SIDE = TILE / PER_THREAD;

// A block has a square of the product, a thread a smaller one of it.
__global__ void __launch_bounds__(THREADS)
    multiply(const float* a, const float* b, float* product, float keep, Stamp* stamps, int inner, int columns) {
    __shared__ float left[DEPTH][TILE + 1], right[DEPTH][TILE];
    begin_block(stamps);
    const size_t first_row = static_cast<size_t>(blockIdx.y) * TILE;
    const int first_column = blockIdx.x * TILE, x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    float sums[PER_THREAD][PER_THREAD] = {};
    for (int k = 0; k < inner; k += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            left[i % DEPTH][i / DEPTH] = a[(first_row + i / DEPTH) * inner + k + i % DEPTH];
            right[i / TILE][i % TILE] = b[static_cast<size_t>(k + i / TILE) * columns + first_column + i % TILE];
        }
        __syncthreads();
        for (int d = 0; d < DEPTH; d++) {
            for (int i = 0; i < PER_THREAD; i++) {
                for (int j = 0; j < PER_THREAD; j++) {
                    sums[i][j] = fmaf(left[d][y + i * SIDE], right[d][x + j * SIDE], sums[i][j]);
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < PER_THREAD; i++) {
        for (int j = 0; j < PER_THREAD; j++) {
            add(product[(first_row + y + i * SIDE) * columns + first_column + x + j * SIDE], keep, sums[i][j]);
        }
    }
    end_block(stamps);
}

constexpr int WINDOW = 5, MARGIN = WINDOW / 2, WIDE = 32, HIGH = THREADS / WIDE;

// A block has some pixels of one channel of one image; z counts images and channels.
__global__ void __launch_bounds__(THREADS)
    convolve(const float* in, const float* filters, float* out, float keep, Stamp* stamps, int image, int channels) {
    __shared__ float pixels[HIGH + 2 * MARGIN][WIDE + 2 * MARGIN];
    begin_block(stamps);
    const size_t plane = static_cast<size_t>(image) * image;
    const int channel = blockIdx.z % channels, x = threadIdx.x % WIDE, y = threadIdx.x / WIDE;
    const int left = blockIdx.x * WIDE, top = blockIdx.y * HIGH;
    float sum = 0;
    for (int from = 0; from < channels; from++) {
        const float* const source = in + (static_cast<size_t>(blockIdx.z) / channels * channels + from) * plane;
        constexpr int width = WIDE + 2 * MARGIN, count = width * (HIGH + 2 * MARGIN);
        for (int i = threadIdx.x; i < count; i += THREADS) {
            const int column = left + i % width - MARGIN, row = top + i / width - MARGIN;
            const bool is_inside = column >= 0 && column < image && row >= 0 && row < image;
            pixels[i / width][i % width] = is_inside ? source[static_cast<size_t>(row) * image + column] : 0.0f;
        }
        __syncthreads();
        const float* const filter = filters + (channel * channels + from) * WINDOW * WINDOW;
        for (int v = 0; v < WINDOW; v++) {
            for (int u = 0; u < WINDOW; u++) sum = fmaf(pixels[y + v][x + u], filter[v * WINDOW + u], sum);
        }
        __syncthreads();
    }
    add(out[blockIdx.z * plane + static_cast<size_t>(top + y) * image + left + x], keep, sum);
    end_block(stamps);
}

constexpr float SOFTENING = 0.01f;

// A block has the pull of one tile of sources on some bodies.
__global__ void __launch_bounds__(THREADS)
    attract(const float4* bodies, float4* pulls, float keep, Stamp* stamps, int count) {
    __shared__ float4 sources[THREADS];
    begin_block(stamps);
    const int i = blockIdx.x * THREADS + threadIdx.x;
    const float4 own = bodies[i];
    sources[threadIdx.x] = bodies[static_cast<size_t>(blockIdx.y) * THREADS + threadIdx.x];
    __syncthreads();
    float3 sum = make_float3(0, 0, 0);
    for (int k = 0; k < THREADS; k++) {
        const float dx = sources[k].x - own.x, dy = sources[k].y - own.y, dz = sources[k].z - own.z;
        const float inverse = rsqrtf(fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, SOFTENING))));
        const float pull = fabsf(sources[k].w) * inverse * inverse * inverse;
        sum.x = fmaf(dx, pull, sum.x);
        sum.y = fmaf(dy, pull, sum.y);
        sum.z = fmaf(dz, pull, sum.z);
    }
    float4& place = pulls[static_cast<size_t>(blockIdx.y) * count + i];
    add(place.x, keep, sum.x);
    add(place.y, keep, sum.y);
    add(place.z, keep, sum.z);
    place.w = 0.0f;
    end_block(stamps);
}

template <class Combine>
__device__ float over_block(float value, float* shared, Combine combine) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffff, value, distance));
    }
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int warp = 1; warp < THREADS / 32; warp++) value = combine(value, shared[warp]);
    __syncthreads();
    return value;
}

// A block has a row.
__global__ void __launch_bounds__(THREADS)
    softmax(const float* in, float* out, float keep, Stamp* stamps, int columns) {
    __shared__ float shared[THREADS / 32];
    begin_block(stamps);
    const float* const row = in + static_cast<size_t>(blockIdx.x) * columns;
    float* const place = out + static_cast<size_t>(blockIdx.x) * columns;
    float largest = -INFINITY, sum = 0;
    for (int k = threadIdx.x; k < columns; k += THREADS) largest = fmaxf(largest, row[k]);
    largest = over_block(largest, shared, [](float a, float b) { return fmaxf(a, b); });
    for (int k = threadIdx.x; k < columns; k += THREADS) sum += expf(row[k] - largest);
    sum = over_block(sum, shared, [](float a, float b) { return a + b; });
    for (int k = threadIdx.x; k < columns; k += THREADS) {
        add(place[k], keep, expf(row[k] - largest) / sum);
    }
    end_block(stamps);
}

constexpr int LINKS = 128;

// What a fused chain of small operations does to each element.
__global__ void __launch_bounds__(THREADS) chain(const float* in, float* out, float keep, Stamp* stamps) {
    begin_block(stamps);
    const size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    float value = in[i];
    for (int link = 0; link < LINKS; link++) {
        value = fmaf(value, 1.5f, 0.25f);
        value = value / (1.0f + fabsf(value));
        value = sqrtf(fmaf(value, value, 0.5f)) - 0.5f;
    }
    add(out[i], keep, value);
    end_block(stamps);
}

__device__ inline unsigned long long mixed(unsigned long long z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

constexpr int CHUNK = 64 * THREADS;

// Multiples of 2^-23 in [-1, 1).
__global__ void fill(float* values, size_t count) {
    const size_t first = static_cast<size_t>(blockIdx.x) * CHUNK;
    for (size_t i = first + threadIdx.x; i < first + CHUNK && i < count; i += THREADS) {
        values[i] = static_cast<float>(mixed(i + 1) >> 40) * 0x1p-23f - 1.0f;
    }
}

// Of each chunk a number that every bit of it decides.
__global__ void digest(const unsigned* words, size_t count, unsigned long long* sums) {
    __shared__ unsigned long long shared[THREADS];
    const size_t first = static_cast<size_t>(blockIdx.x) * CHUNK;
    unsigned long long sum = 0;
    for (size_t i = first + threadIdx.x; i < first + CHUNK && i < count; i += THREADS) {
        sum += mixed((static_cast<unsigned long long>(words[i]) << 32) + i);
    }
    shared[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = shared[0];
}

// Tells the host the GPU's time, over and over.
__global__ void tell_time(volatile unsigned long long* told, int times) {
    for (int i = 0; i < times; i++) {
        *told = gpu_time();
        __threadfence_system();
    }
}
