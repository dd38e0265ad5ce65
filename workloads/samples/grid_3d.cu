// Grids and blocks in three dimensions: where each thread is, odd sizes, and a flood that spreads through a volume.
#include "sample.h"

__global__ void where(unsigned* places, int3 size) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
              z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= size.x || y >= size.y || z >= size.z) return;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    places[(z * size.y + y) * size.x + x] = block << 16 | thread << 5 | thread % 32;
}

__global__ void flood(const unsigned char* walls, const int* now, int* next, int side) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
              z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= side || y >= side || z >= side) return;
    const int at = (z * side + y) * side + x;
    int least = now[at];
    if (!walls[at]) {
        if (x > 0) least = min(least, now[at - 1] + 1);
        if (x < side - 1) least = min(least, now[at + 1] + 1);
        if (y > 0) least = min(least, now[at - side] + 1);
        if (y < side - 1) least = min(least, now[at + side] + 1);
        if (z > 0) least = min(least, now[at - side * side] + 1);
        if (z < side - 1) least = min(least, now[at + side * side] + 1);
    }
    next[at] = least;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    {
        const int3 size = make_int3(37, 19, 11);
        const dim3 threads(5, 3, 4), blocks(ceil_div(size.x, threads.x), ceil_div(size.y, threads.y), ceil_div(size.z, threads.z));
        const Array<unsigned> places(size.x * size.y * size.z);
        where<<<blocks, threads>>>(places, size);
        std::vector<unsigned> expected;
        for (unsigned z = 0; z < unsigned(size.z); z++) {
            for (unsigned y = 0; y < unsigned(size.y); y++) {
                for (unsigned x = 0; x < unsigned(size.x); x++) {
                    const unsigned thread = (z % threads.z * threads.y + y % threads.y) * threads.x + x % threads.x;
                    const unsigned block = (z / threads.z * blocks.y + y / threads.y) * blocks.x + x / threads.x;
                    expected.push_back(block << 16 | thread << 5 | thread % 32);
                }
            }
        }
        results.exact("places", places.host(), expected);
    }
    {
        constexpr int side = 14, count = side * side * side, far = 1 << 20, rounds = 30;
        Numbers numbers(45);
        std::vector<unsigned char> walls(count);
        for (unsigned char& wall : walls) wall = numbers.below(4) == 0;
        std::vector<int> depth(count, far), other;
        walls[0] = depth[0] = 0;
        const Array<unsigned char> d_walls(walls);
        const Array<int> first(depth), second(count);
        const dim3 threads(8, 4, 2), blocks(ceil_div(side, 8), ceil_div(side, 4), ceil_div(side, 2));
        for (int round = 0; round < rounds; round += 2) {
            flood<<<blocks, threads>>>(d_walls, first, second, side);
            flood<<<blocks, threads>>>(d_walls, second, first, side);
        }
        for (int round = 0; round < rounds; round++) {
            other = depth;
            for (int at = 0; at < count; at++) {
                if (walls[at]) continue;
                const int x = at % side, y = at / side % side, z = at / side / side;
                const auto look = [&](bool inside, int step) {
                    if (inside) other[at] = std::min(other[at], depth[at + step] + 1);
                };
                look(x > 0, -1);
                look(x < side - 1, 1);
                look(y > 0, -side);
                look(y < side - 1, side);
                look(z > 0, -side * side);
                look(z < side - 1, side * side);
            }
            depth.swap(other);
        }
        results.exact("flooded", first.host(), depth);
    }
    return results.finish();
}
