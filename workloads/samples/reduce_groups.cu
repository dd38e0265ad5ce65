// Reductions by cooperative groups: tiles of several sizes, coalesced groups, labelled partitions.
#include "sample.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <algorithm>

namespace cg = cooperative_groups;

template <int SIZE>
__global__ void tiles(const int* values, int* sums, int* largest, int* running) {
    const auto tile = cg::tiled_partition<SIZE>(cg::this_thread_block());
    const int i = cg::this_grid().thread_rank();
    const int total = cg::reduce(tile, values[i], cg::plus<int>());
    const int most = cg::reduce(tile, values[i], cg::greater<int>());
    running[i] = cg::inclusive_scan(tile, values[i]);
    if (tile.thread_rank() == 0) {
        sums[i / SIZE] = total;
        largest[i / SIZE] = most;
    }
}

// One atomic for all threads of a warp that take the branch.
__global__ void collect_odd(const int* values, int* count, int* collected, int* ranks) {
    const int i = cg::this_grid().thread_rank();
    if (values[i] % 2 == 1) {
        const cg::coalesced_group active = cg::coalesced_threads();
        int first = 0;
        if (active.thread_rank() == 0) first = atomicAdd(count, active.size());
        ranks[i] = active.thread_rank();
        collected[active.shfl(first, 0) + active.thread_rank()] = values[i];
    }
}

// The threads of a warp in groups by their value.
__global__ void by_label(const int* values, int* sizes) {
    const int i = cg::this_grid().thread_rank();
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const auto group = cg::labeled_partition(warp, values[i] % 5);
    sizes[i] = cg::reduce(group, 1, cg::plus<int>());
}

template <int SIZE>
void run_tiles(Results& results, const std::vector<int>& values, const Array<int>& input) {
    const int count = static_cast<int>(values.size());
    const Array<int> sums(count / SIZE), largest(count / SIZE), running(count);
    tiles<SIZE><<<count / 128, 128>>>(input, sums, largest, running);
    std::vector<int> expected_sums(count / SIZE), expected_largest(count / SIZE), expected_running(count);
    for (int i = 0; i < count; i++) {
        expected_sums[i / SIZE] += values[i];
        expected_running[i] = expected_sums[i / SIZE];
        expected_largest[i / SIZE] = std::max(expected_largest[i / SIZE], values[i]);
    }
    const std::string size = std::to_string(SIZE);
    results.exact("sums of tiles of " + size, sums.host(), expected_sums);
    results.exact("largest of tiles of " + size, largest.host(), expected_largest);
    results.exact("running sums of tiles of " + size, running.host(), expected_running);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 2048;
    const std::vector<int> values = Numbers(2).integers(count, 1000);
    const Array<int> input(values);
    run_tiles<4>(results, values, input);
    run_tiles<16>(results, values, input);
    run_tiles<32>(results, values, input);

    const Array<int> odd(1), collected(count), ranks(count), sizes(count);
    collect_odd<<<count / 128, 128>>>(input, odd, collected, ranks);
    by_label<<<count / 128, 128>>>(input, sizes);
    std::vector<int> expected_odd, expected_ranks(count), expected_sizes(count);
    for (int i = 0; i < count; i++) {
        const int warp = i / 32 * 32;
        if (values[i] % 2 == 1) expected_odd.push_back(values[i]);
        for (int k = warp; k < warp + 32; k++) {
            if (k < i && values[i] % 2 == 1) expected_ranks[i] += values[k] % 2;
            expected_sizes[i] += values[k] % 5 == values[i] % 5;
        }
    }
    // Warps add theirs in any order.
    std::vector<int> found = collected.host();
    found.resize(odd.host()[0]);
    std::sort(found.begin(), found.end());
    std::sort(expected_odd.begin(), expected_odd.end());
    results.exact("odd values", found, expected_odd);
    results.exact("rank among the odd ones of a warp", ranks.host(), expected_ranks);
    results.exact("sizes of groups by label", sizes.host(), expected_sizes);
    return results.finish();
}
