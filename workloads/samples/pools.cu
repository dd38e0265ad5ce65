// Memory in the order of a stream: allocated, used and freed without waiting, from several host threads at once.
#include "sample.h"

#include <thread>

__global__ void fill(unsigned* values, int count, unsigned seed) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = seed * 2654435761u + i;
}

__global__ void add_up(const unsigned* values, int count, unsigned* sum) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicAdd(sum, values[i] >> 8);
}

constexpr int COUNT = 700, ROUNDS = 10, WORKERS = 4;

// Each round has memory of its own, freed before the next is allocated, all in the stream's order.
void work(int worker, unsigned* sums) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int round = 0; round < ROUNDS; round++) {
        unsigned* values;
        CHECK(cudaMallocAsync(&values, COUNT * sizeof(unsigned), stream));
        fill<<<ceil_div(COUNT, 128), 128, 0, stream>>>(values, COUNT, worker * ROUNDS + round);
        add_up<<<ceil_div(COUNT, 128), 128, 0, stream>>>(values, COUNT, sums + worker * ROUNDS + round);
        CHECK(cudaFreeAsync(values, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    const Array<unsigned> sums(WORKERS * ROUNDS);
    CHECK(cudaDeviceSynchronize());
    std::vector<std::thread> workers;
    for (int worker = 0; worker < WORKERS; worker++) workers.emplace_back(work, worker, sums.get());
    for (std::thread& worker : workers) worker.join();
    std::vector<unsigned> expected(WORKERS * ROUNDS);
    for (unsigned seed = 0; seed < WORKERS * ROUNDS; seed++) {
        for (int i = 0; i < COUNT; i++) expected[seed] += (seed * 2654435761u + i) >> 8;
    }
    results.exact("sums", sums.host(), expected);
    return results.finish();
}
