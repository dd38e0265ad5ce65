// Managed memory: one address for host and device, variables too, with hints and prefetches that change no value.
#include "sample.h"

__managed__ int offset = 5, launches;
__managed__ float table[16];

__global__ void advance(int* values, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = values[i] * 2 + offset;
    if (i < 16) table[i] = i * 0.5f;
    if (i == 0) launches++;
}

struct Node {
    Node* next;
    int value;
};

__global__ void sum_list(const Node* list, int* sum) {
    for (; list != nullptr; list = list->next) *sum += list->value;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 1000;
    int* values;
    CHECK(cudaMallocManaged(&values, count * sizeof(int)));
    std::vector<int> expected(count);
    for (int i = 0; i < count; i++) values[i] = i;
    const cudaMemLocation device = {cudaMemLocationTypeDevice, 0};
    CHECK(cudaMemAdvise(values, count * sizeof(int), cudaMemAdviseSetPreferredLocation, device));
    CHECK(cudaMemPrefetchAsync(values, count * sizeof(int), device, 0, nullptr));
    for (int round = 0; round < 2; round++) {
        advance<<<ceil_div(count, 128), 128>>>(values, count);
        sample::finish_kernels();
        offset += 10;
    }
    for (int i = 0; i < count; i++) expected[i] = (i * 2 + 5) * 2 + 15;
    results.exact("values", std::vector<int>(values, values + count), expected);
    results.exact("launches", static_cast<int>(launches), 2);
    std::vector<float> halves;
    for (int i = 0; i < 16; i++) halves.push_back(i * 0.5f);
    results.exact("table", std::vector<float>(table, table + 16), halves);

    // A list that the host links and the device follows.
    Node* nodes;
    int* sum;
    CHECK(cudaMallocManaged(&nodes, 20 * sizeof(Node)));
    CHECK(cudaMallocManaged(&sum, sizeof(int)));
    *sum = 0;
    for (int i = 0; i < 20; i++) nodes[i] = Node{i == 19 ? nullptr : &nodes[i + 1], i * i};
    sum_list<<<1, 1>>>(nodes, sum);
    sample::finish_kernels();
    results.exact("sum of the list", *sum, 2470);

    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, values));
    results.exact("type of memory", static_cast<int>(attributes.type), static_cast<int>(cudaMemoryTypeManaged));
    CHECK(cudaFree(values));
    CHECK(cudaFree(nodes));
    CHECK(cudaFree(sum));
    return results.finish();
}
