// Connected components by union-find: every edge hooks the larger root onto the smaller by compare-and-swap.
#include "sample.h"

__device__ int root_of(volatile int* parents, int node) {
    while (true) {
        const int parent = parents[node];
        if (parent == node) return node;
        const int grandparent = parents[parent];
        if (grandparent != parent) parents[node] = grandparent;  // halve the path; whoever writes last is right too
        node = parent;
    }
}

__global__ void unite(const int2* edges, int count, int* parents) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int a = root_of(parents, edges[i].x), b = root_of(parents, edges[i].y);
    while (a != b) {
        const int low = min(a, b), high = max(a, b);
        const int found = atomicCAS(&parents[high], high, low);
        if (found == high) return;
        a = root_of(parents, found);
        b = root_of(parents, low);
    }
}

// Without halving paths: a write of what was read before would undo another thread's root.
__global__ void flatten(volatile int* parents, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int node = i;
    while (parents[node] != node) node = parents[node];
    parents[i] = node;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int nodes = 4000, count = 3000, threads = 128;
    Numbers numbers(29);
    std::vector<int> parents(nodes), expected(nodes);
    std::vector<int2> edges(count);
    for (int i = 0; i < nodes; i++) parents[i] = expected[i] = i;
    for (int2& edge : edges) edge = make_int2(numbers.below(nodes), numbers.below(nodes));
    // The smallest node of a component is its root, in whatever order the edges come.
    const auto root = [&](int node) {
        while (expected[node] != node) node = expected[node];
        return node;
    };
    for (const int2& edge : edges) {
        const int a = root(edge.x), b = root(edge.y);
        expected[std::max(a, b)] = std::min(a, b);
    }
    for (int i = 0; i < nodes; i++) expected[i] = root(i);

    const Array<int2> d_edges(edges);
    const Array<int> d_parents(parents);
    unite<<<ceil_div(count, threads), threads>>>(d_edges, count, d_parents);
    flatten<<<ceil_div(nodes, threads), threads>>>(d_parents, nodes);
    results.exact("components", d_parents.host(), expected);
    return results.finish();
}
