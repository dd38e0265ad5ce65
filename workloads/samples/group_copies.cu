// Copies by a group of threads (cooperative_groups::memcpy_async), waited for together, and in stages.
#include "sample.h"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

namespace cg = cooperative_groups;

constexpr int PART = 128, STAGES = 2;

__global__ void smooth(const int* in, int* out, int parts) {
    __shared__ alignas(16) int stages[STAGES][PART];
    const cg::thread_block block = cg::this_thread_block();
    const int* const own = in + blockIdx.x * parts * PART;
    cg::memcpy_async(block, stages[0], own, sizeof stages[0]);
    for (int part = 0; part < parts; part++) {
        if (part + 1 < parts) {
            cg::memcpy_async(block, stages[(part + 1) % STAGES], own + (part + 1) * PART, sizeof stages[0]);
            cg::wait_prior<1>(block);
        } else {
            cg::wait(block);
        }
        const int* const now = stages[part % STAGES];
        const int left = now[(threadIdx.x + PART - 1) % PART], right = now[(threadIdx.x + 1) % PART];
        out[(blockIdx.x * parts + part) * PART + threadIdx.x] = left + 2 * now[threadIdx.x] + right;
        block.sync();
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int blocks = 3, parts = 5;
    const std::vector<int> values = Numbers(52).integers(blocks * parts * PART, 1000);
    std::vector<int> expected(values.size());
    for (int i = 0; i < blocks * parts * PART; i++) {
        const int base = i / PART * PART, at = i % PART;
        expected[i] = values[base + (at + PART - 1) % PART] + 2 * values[i] + values[base + (at + 1) % PART];
    }
    const Array<int> in(values), out(values.size());
    smooth<<<blocks, PART>>>(in, out, parts);
    results.exact("smoothed", out.host(), expected);
    return results.finish();
}
