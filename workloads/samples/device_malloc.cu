// Memory that kernels allocate themselves: lists that outlive their kernel, objects by new, one allocation for a block.
#include "sample.h"

struct Node {
    int value;
    Node* next;
};

__global__ void build(Node** lists, int length) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    Node* head = nullptr;
    for (int k = 0; k < length; k++) {
        Node* const node = static_cast<Node*>(malloc(sizeof(Node)));
        if (node == nullptr) break;
        node->value = i * length + k;
        node->next = head;
        head = node;
    }
    lists[i] = head;
}

__global__ void sum_and_free(Node** lists, int* sums, int* lengths) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (Node* node = lists[i]; node != nullptr;) {
        Node* const next = node->next;
        sums[i] += node->value;
        lengths[i]++;
        free(node);
        node = next;
    }
}

// The first thread allocates for all.
__global__ void for_the_block(int* sums) {
    __shared__ int* values;
    if (threadIdx.x == 0) values = new int[blockDim.x];
    __syncthreads();
    values[threadIdx.x] = threadIdx.x * (blockIdx.x + 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 0; k < blockDim.x; k++) sums[blockIdx.x] += values[k];
        delete[] values;
    }
}

__global__ void too_much(unsigned char* refused) { *refused = malloc(size_t(1) << 40) == nullptr; }

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int threads = 64, blocks = 2, length = 5;
    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    size_t heap = 0;
    CHECK(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
    results.holds("the heap is as large as was asked", heap >= 16 << 20);
    const Array<Node*> lists(threads * blocks);
    const Array<int> sums(threads * blocks), lengths(threads * blocks), of_blocks(blocks);
    const Array<unsigned char> refused(1);
    build<<<blocks, threads>>>(lists, length);
    sum_and_free<<<blocks, threads>>>(lists, sums, lengths);
    for_the_block<<<blocks, threads>>>(of_blocks);
    too_much<<<1, 1>>>(refused);
    std::vector<int> expected(threads * blocks), expected_of_blocks(blocks);
    for (int i = 0; i < threads * blocks; i++) {
        for (int k = 0; k < length; k++) expected[i] += i * length + k;
        expected_of_blocks[i / threads] += i % threads * (i / threads + 1);
    }
    results.exact("sums of lists", sums.host(), expected);
    results.exact("lengths of lists", lengths.host(), std::vector<int>(threads * blocks, length));
    results.exact("sums of blocks", of_blocks.host(), expected_of_blocks);
    results.holds("more than there is gives no pointer", refused.host()[0] == 1);
    return results.finish();
}
