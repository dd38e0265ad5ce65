// Streams and events: a pipeline of copies and kernels, a fork and join by events, host functions, priorities.
#include "sample.h"

__global__ void scale(int* values, int count, int factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= factor;
}

__global__ void add(const int* a, const int* b, int* sum, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) sum[i] = a[i] + b[i];
}

void CUDART_CB count_up(void* data) { ++*static_cast<int*>(data); }

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int parts = 4, part = 1000, count = parts * part, threads = 128;
    int *pinned_in, *pinned_out;
    CHECK(cudaMallocHost(&pinned_in, count * sizeof(int)));
    CHECK(cudaHostAlloc(&pinned_out, count * sizeof(int), cudaHostAllocDefault));
    std::vector<int> expected(count);
    for (int i = 0; i < count; i++) {
        pinned_in[i] = i;
        expected[i] = i * 3;
    }
    cudaStream_t streams[parts];
    int calls[parts] = {};
    const Array<int> device(count);
    // It is cleared in the legacy stream, which these streams do not wait for.
    CHECK(cudaDeviceSynchronize());
    for (int p = 0; p < parts; p++) {
        CHECK(cudaStreamCreateWithFlags(&streams[p], cudaStreamNonBlocking));
        int* const at = device + p * part;
        CHECK(cudaMemcpyAsync(at, pinned_in + p * part, part * sizeof(int), cudaMemcpyHostToDevice, streams[p]));
        scale<<<ceil_div(part, threads), threads, 0, streams[p]>>>(at, part, 3);
        CHECK(cudaMemcpyAsync(pinned_out + p * part, at, part * sizeof(int), cudaMemcpyDeviceToHost, streams[p]));
        CHECK(cudaLaunchHostFunc(streams[p], count_up, &calls[p]));
    }
    for (cudaStream_t stream : streams) CHECK(cudaStreamSynchronize(stream));
    results.exact("through four streams", std::vector<int>(pinned_out, pinned_out + count), expected);
    results.exact("host functions", std::vector<int>(calls, calls + parts), std::vector<int>(parts, 1));

    // One stream forks into two, which join in a third.
    cudaEvent_t begin, left_done, right_done, end;
    for (cudaEvent_t* event : {&begin, &end}) CHECK(cudaEventCreate(event));
    for (cudaEvent_t* event : {&left_done, &right_done}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    const Array<int> left(std::vector<int>(part, 5)), right(std::vector<int>(part, 7)), sum(part);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventRecord(begin, streams[0]));
    CHECK(cudaStreamWaitEvent(streams[1], begin, 0));
    scale<<<ceil_div(part, threads), threads, 0, streams[0]>>>(left, part, 10);
    scale<<<ceil_div(part, threads), threads, 0, streams[1]>>>(right, part, 100);
    CHECK(cudaEventRecord(left_done, streams[0]));
    CHECK(cudaEventRecord(right_done, streams[1]));
    CHECK(cudaStreamWaitEvent(streams[2], left_done, 0));
    CHECK(cudaStreamWaitEvent(streams[2], right_done, 0));
    add<<<ceil_div(part, threads), threads, 0, streams[2]>>>(left, right, sum, part);
    CHECK(cudaEventRecord(end, streams[2]));
    CHECK(cudaEventSynchronize(end));
    results.holds("an event that was waited for is over", cudaEventQuery(end) == cudaSuccess);
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    results.holds("time passes", milliseconds >= 0);
    results.exact("joined", sum.host(), std::vector<int>(part, 750));

    int least, greatest;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t urgent;
    CHECK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest));
    scale<<<ceil_div(part, threads), threads, 0, urgent>>>(sum, part, 2);
    CHECK(cudaStreamSynchronize(urgent));
    results.exact("urgent", sum.host(), std::vector<int>(part, 1500));

    // A blocking stream and the legacy stream wait for each other without being told.
    cudaStream_t blocking;
    CHECK(cudaStreamCreate(&blocking));
    scale<<<ceil_div(part, threads), threads, 0, blocking>>>(sum, part, 2);
    add<<<ceil_div(part, threads), threads>>>(sum, sum, left, part);
    scale<<<ceil_div(part, threads), threads, 0, blocking>>>(left, part, 2);
    results.exact("with the legacy stream", left.host(), std::vector<int>(part, 12000));

    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    for (cudaEvent_t event : {begin, end, left_done, right_done}) CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(urgent));
    CHECK(cudaStreamDestroy(blocking));
    CHECK(cudaFreeHost(pinned_in));
    CHECK(cudaFreeHost(pinned_out));
    return results.finish();
}
