// Threads of the host, each with its own default stream: what one launches, another does not wait for.
// nvcc: --default-stream per-thread
#include "sample.h"

#include <thread>

__device__ int done[8];

__global__ void raise(int* values, int amount) { values[threadIdx.x] += amount; }
__global__ void wait_for(volatile int* flag) { while (*flag == 0) {} }

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int threads = 8, rounds = 50, width = 64;
    std::vector<std::vector<int>> found(threads);
    std::vector<std::thread> all;
    for (int which = 0; which < threads; which++) {
        all.emplace_back([which, &found] {
            CHECK(cudaSetDevice(0));
            const Array<int> values(width);
            for (int round = 0; round < rounds; round++) raise<<<1, width>>>(values, which + round);
            std::vector<int> read(width);
            // Behind the launches: both are in this thread's stream.
            CHECK(cudaMemcpyAsync(read.data(), values, values.bytes(), cudaMemcpyDeviceToHost, 0));
            CHECK(cudaStreamSynchronize(0));
            const int one = which + 1;
            CHECK(cudaMemcpyToSymbol(done, &one, sizeof one, which * sizeof one));
            found[which] = read;
        });
    }
    for (std::thread& thread : all) thread.join();
    std::vector<int> sums, expected;
    for (int which = 0; which < threads; which++) {
        sums.push_back(found[which][width - 1]);
        expected.push_back(rounds * which + rounds * (rounds - 1) / 2);
    }
    results.exact("each its own", sums, expected);
    std::vector<int> finished(threads), finished_expected;
    CHECK(cudaMemcpyFromSymbol(finished.data(), done, threads * sizeof(int)));
    for (int which = 0; which < threads; which++) finished_expected.push_back(which + 1);
    results.exact("all of them", finished, finished_expected);

    // One thread's stream waits; another thread's default stream does not.
    int* flag;
    CHECK(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
    *flag = 0;
    const Array<int> values(width);
    wait_for<<<1, 1>>>(flag);
    std::thread([&] {
        raise<<<1, width>>>(values, 7);
        CHECK(cudaStreamSynchronize(0));
        results.exact("this one is held", static_cast<int>(cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady), 1);
        cudaGetLastError();
        *static_cast<volatile int*>(flag) = 1;
    }).join();
    CHECK(cudaStreamSynchronize(0));
    results.exact("the other was not", values.host(), std::vector<int>(width, 7));
    return results.finish();
}
