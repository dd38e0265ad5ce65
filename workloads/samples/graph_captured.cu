// A graph captured from three streams, launched again and again, then updated by another capture.
#include "sample.h"

__global__ void advance(unsigned* values, int count, unsigned factor, unsigned offset) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = values[i] * factor + offset;
}

__global__ void combine(const unsigned* a, const unsigned* b, unsigned* sum, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) sum[i] += a[i] ^ b[i];
}

constexpr int COUNT = 500, THREADS = 64;

struct Data {
    Array<unsigned> a{std::vector<unsigned>(COUNT, 1)}, b{std::vector<unsigned>(COUNT, 2)}, sum{COUNT};
};

cudaGraph_t capture(cudaStream_t main, cudaStream_t side, const Data& data, unsigned factor) {
    cudaEvent_t forked, joined;
    CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(forked, main));
    CHECK(cudaStreamWaitEvent(side, forked, 0));
    advance<<<ceil_div(COUNT, THREADS), THREADS, 0, main>>>(data.a, COUNT, factor, 7);
    advance<<<ceil_div(COUNT, THREADS), THREADS, 0, side>>>(data.b, COUNT, factor, 11);
    CHECK(cudaEventRecord(joined, side));
    CHECK(cudaStreamWaitEvent(main, joined, 0));
    combine<<<ceil_div(COUNT, THREADS), THREADS, 0, main>>>(data.a, data.b, data.sum, COUNT);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(main, &graph));
    CHECK(cudaEventDestroy(forked));
    CHECK(cudaEventDestroy(joined));
    return graph;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    const Data data;
    cudaStream_t main_stream, side;
    CHECK(cudaStreamCreateWithFlags(&main_stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    cudaGraph_t first = capture(main_stream, side, data, 3), second = capture(main_stream, side, data, 5);
    results.exact("nothing ran while it was captured", data.sum.host(), std::vector<unsigned>(COUNT));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(first, nullptr, &nodes));
    results.exact("nodes", static_cast<int>(nodes), 3);

    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, first, 0));
    for (int i = 0; i < 10; i++) CHECK(cudaGraphLaunch(executable, main_stream));
    cudaGraphExecUpdateResultInfo updated;
    CHECK(cudaGraphExecUpdate(executable, second, &updated));
    for (int i = 0; i < 10; i++) CHECK(cudaGraphLaunch(executable, main_stream));
    CHECK(cudaStreamSynchronize(main_stream));

    unsigned a = 1, b = 2, sum = 0;
    for (int i = 0; i < 20; i++) {
        const unsigned factor = i < 10 ? 3 : 5;
        a = a * factor + 7;
        b = b * factor + 11;
        sum += a ^ b;
    }
    results.exact("after twenty launches", data.sum.host(), std::vector<unsigned>(COUNT, sum));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(first));
    CHECK(cudaGraphDestroy(second));
    CHECK(cudaStreamDestroy(main_stream));
    CHECK(cudaStreamDestroy(side));
    return results.finish();
}
