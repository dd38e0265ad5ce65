// Breadth-first search of a random graph, level by level, with a queue that grows by atomics; the host asks how long it is.
#include "sample.h"

#include <queue>

__global__ void visit(const int* begins, const int* neighbours, const int* frontier, int frontier_size, int* next,
                      int* next_size, int* levels, int level) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= frontier_size) return;
    const int node = frontier[i];
    for (int k = begins[node]; k < begins[node + 1]; k++) {
        const int neighbour = neighbours[k];
        if (atomicCAS(&levels[neighbour], -1, level) == -1) next[atomicAdd(next_size, 1)] = neighbour;
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int nodes = 3000, edges = 6000, threads = 128;
    Numbers numbers(28);
    std::vector<std::vector<int>> around(nodes);
    for (int k = 0; k < edges; k++) {
        const int a = numbers.below(nodes), b = numbers.below(nodes);
        around[a].push_back(b);
        around[b].push_back(a);
    }
    std::vector<int> begins = {0}, neighbours, expected(nodes, -1);
    for (const std::vector<int>& list : around) {
        neighbours.insert(neighbours.end(), list.begin(), list.end());
        begins.push_back(static_cast<int>(neighbours.size()));
    }
    std::queue<int> queue;
    queue.push(0);
    expected[0] = 0;
    while (!queue.empty()) {
        const int node = queue.front();
        queue.pop();
        for (int neighbour : around[node]) {
            if (expected[neighbour] != -1) continue;
            expected[neighbour] = expected[node] + 1;
            queue.push(neighbour);
        }
    }

    std::vector<int> begin_levels(nodes, -1);
    begin_levels[0] = 0;
    const Array<int> d_begins(begins), d_neighbours(neighbours), levels(begin_levels), one(nodes), other(nodes), size(1);
    int *frontier = one, *next = other, frontier_size = 1;
    for (int level = 1; frontier_size > 0; level++) {
        CHECK(cudaMemset(size, 0, sizeof(int)));
        visit<<<ceil_div(frontier_size, threads), threads>>>(d_begins, d_neighbours, frontier, frontier_size, next, size,
                                                            levels, level);
        CHECK(cudaMemcpy(&frontier_size, size, sizeof(int), cudaMemcpyDeviceToHost));
        std::swap(frontier, next);
    }
    results.exact("levels", levels.host(), expected);
    return results.finish();
}
