// One kernel that synchronises its whole grid between steps: heat in a plate, and a sum over all blocks.
#include "sample.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int SIDE = 64, STEPS = 20;

__global__ void heat(float* now, float* next, float* sums, float* total) {
    cg::grid_group grid = cg::this_grid();
    for (int step = 0; step < STEPS; step++) {
        for (int i = grid.thread_rank(); i < SIDE * SIDE; i += grid.size()) {
            const int x = i % SIDE, y = i / SIDE;
            const bool edge = x == 0 || y == 0 || x == SIDE - 1 || y == SIDE - 1;
            next[i] = edge ? now[i] : 0.25f * ((now[i - 1] + now[i + 1]) + (now[i - SIDE] + now[i + SIDE]));
        }
        grid.sync();
        float* const kept = now;
        now = next;
        next = kept;
    }
    // Each block's part in order, then one thread over all blocks.
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = blockIdx.x; i < SIDE * SIDE; i += gridDim.x) sum += now[i];
        sums[blockIdx.x] = sum;
    }
    grid.sync();
    if (grid.thread_rank() == 0) {
        float sum = 0;
        for (int block = 0; block < gridDim.x; block++) sum += sums[block];
        *total = sum;
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int blocks = 12, threads = 128;
    int per_sm = 0, sms = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, heat, threads, 0));
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    results.holds("the grid fits", per_sm * sms >= blocks);

    std::vector<float> plate(SIDE * SIDE), other;
    for (int x = 0; x < SIDE; x++) plate[x] = 100;
    const Array<float> now(plate), next(SIDE * SIDE), sums(blocks), total(1);
    float *now_pointer = now, *next_pointer = next, *sums_pointer = sums, *total_pointer = total;
    void* arguments[] = {&now_pointer, &next_pointer, &sums_pointer, &total_pointer};
    CHECK(cudaLaunchCooperativeKernel(heat, dim3(blocks), dim3(threads), arguments, 0, nullptr));

    for (int step = 0; step < STEPS; step++) {
        other = plate;
        for (int y = 1; y < SIDE - 1; y++) {
            for (int x = 1; x < SIDE - 1; x++) {
                const float* at = &plate[y * SIDE + x];
                other[y * SIDE + x] = 0.25f * ((at[-1] + at[1]) + (at[-SIDE] + at[SIDE]));
            }
        }
        plate.swap(other);
    }
    float expected = 0;
    std::vector<float> parts(blocks);
    for (int block = 0; block < blocks; block++) {
        for (int i = block; i < SIDE * SIDE; i += blocks) parts[block] += plate[i];
    }
    for (float part : parts) expected += part;
    results.exact("plate", (STEPS % 2 == 0 ? now : next).host(), plate);
    results.exact("sum", total.host()[0], expected);
    return results.finish();
}
