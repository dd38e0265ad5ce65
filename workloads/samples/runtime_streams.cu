// Streams, events, callbacks, functions of the host, and graphs that are captured from several streams and changed afterwards.
#include "sample.h"

#include <atomic>

__global__ void add(int* values, int amount) { values[blockIdx.x * blockDim.x + threadIdx.x] += amount; }
__global__ void scale(int* values, int factor) { values[blockIdx.x * blockDim.x + threadIdx.x] *= factor; }

constexpr int count = 256;

struct Seen {
    std::atomic<int> calls{0};
    std::atomic<int> status{-1};
};

static void CUDART_CB on_callback(cudaStream_t, cudaError_t status, void* data) {
    auto* seen = static_cast<Seen*>(data);
    seen->status = static_cast<int>(status);
    seen->calls++;
}

static void CUDART_CB on_host(void* data) { static_cast<Seen*>(data)->calls++; }

int main(int argc, char** argv) {
    Results results(argc, argv);
    const Array<int> values(count);
    int least, greatest, priority;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t first, second;
    CHECK(cudaStreamCreateWithPriority(&first, cudaStreamNonBlocking, greatest));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaStreamGetPriority(first, &priority));
    unsigned flags;
    CHECK(cudaStreamGetFlags(first, &flags));
    results.holds("a stream's own", priority == greatest && greatest <= least && flags == cudaStreamNonBlocking);
    unsigned long long ids[2];
    CHECK(cudaStreamGetId(first, &ids[0]));
    CHECK(cudaStreamGetId(second, &ids[1]));
    results.holds("numbers of streams", ids[0] != ids[1]);

    Seen seen;
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    CHECK(cudaEventRecord(begin, first));
    add<<<count / 64, 64, 0, first>>>(values, 3);
    CHECK(cudaStreamAddCallback(first, on_callback, &seen, 0));
    CHECK(cudaLaunchHostFunc(first, on_host, &seen));
    CHECK(cudaEventRecord(end, first));
    CHECK(cudaStreamWaitEvent(second, end, 0));
    scale<<<count / 64, 64, 0, second>>>(values, 5);
    CHECK(cudaStreamSynchronize(second));
    CHECK(cudaEventQuery(end));
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    results.holds("time passes", milliseconds >= 0);
    results.exact("callbacks", seen.calls.load(), 2);
    results.exact("status of a callback", seen.status.load(), 0);
    results.exact("in order", values.host(), std::vector<int>(count, 15));

    // A fork and a join, captured.
    cudaStreamCaptureStatus status;
    cudaGraph_t graph;
    cudaEvent_t fork, join;
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    add<<<count / 64, 64, 0, first>>>(values, 1);
    CHECK(cudaEventRecord(fork, first));
    CHECK(cudaStreamWaitEvent(second, fork, 0));
    CHECK(cudaStreamIsCapturing(second, &status));
    results.exact("the other captures too", static_cast<int>(status), static_cast<int>(cudaStreamCaptureStatusActive));
    scale<<<count / 128, 64, 0, second>>>(values, 2);
    add<<<count / 128, 64, 0, first>>>(values + count / 2, 10);
    CHECK(cudaEventRecord(join, second));
    CHECK(cudaStreamWaitEvent(first, join, 0));
    CHECK(cudaLaunchHostFunc(first, on_host, &seen));
    CHECK(cudaStreamEndCapture(first, &graph));
    size_t nodes = 0, edges = 0, roots = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
    results.exact("the graph's shape", std::vector<int>{int(nodes), int(edges), int(roots)}, std::vector<int>{4, 4, 1});
    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaMemset(values, 0, values.bytes()));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(executable, first));
    CHECK(cudaStreamSynchronize(first));
    // 2 (2 (2 (0 + 1) + 1) + 1) on the one side, 3 times 11 on the other.
    std::vector<int> expected(count / 2, 14);
    expected.insert(expected.end(), count / 2, 33);
    results.exact("captured", values.host(), expected);
    results.exact("functions of the host", seen.calls.load(), 5);

    // The first kernel adds something else from now on.
    cudaGraphNode_t root;
    roots = 1;
    CHECK(cudaGraphGetRootNodes(graph, &root, &roots));
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(root, &type));
    cudaKernelNodeParams node = {};
    CHECK(cudaGraphKernelNodeGetParams(root, &node));
    results.holds("a kernel's node names its function",
                  type == cudaGraphNodeTypeKernel && node.func == reinterpret_cast<void*>(add) && node.gridDim.x == count / 64);
    int* place = values;
    int amount = 100;
    void* arguments[] = {&place, &amount};
    node.kernelParams = arguments;
    CHECK(cudaGraphExecKernelNodeSetParams(executable, root, &node));
    CHECK(cudaMemset(values, 0, values.bytes()));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphLaunch(executable, second));
    CHECK(cudaStreamSynchronize(second));
    std::vector<int> changed(count / 2, 200);
    changed.insert(changed.end(), count / 2, 110);
    results.exact("with other arguments", values.host(), changed);

    cudaGraph_t clone;
    cudaGraphNode_t in_clone;
    CHECK(cudaGraphClone(&clone, graph));
    CHECK(cudaGraphNodeFindInClone(&in_clone, root, clone));
    amount = 7;
    CHECK(cudaGraphKernelNodeSetParams(in_clone, &node));
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(executable, clone, &info));
    results.exact("updated", static_cast<int>(info.result), static_cast<int>(cudaGraphExecUpdateSuccess));
    CHECK(cudaMemset(values, 0, values.bytes()));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphLaunch(executable, first));
    CHECK(cudaStreamSynchronize(first));
    std::vector<int> updated(count / 2, 14);
    updated.insert(updated.end(), count / 2, 17);
    results.exact("by a graph", values.host(), updated);

    // Node by node, with a box for the copy.
    cudaGraph_t made;
    cudaGraphNode_t fill, out;
    cudaMemsetParams memset = {};
    memset.dst = values.get();
    memset.value = 9;
    memset.elementSize = 4;
    memset.width = count;
    memset.height = 1;
    std::vector<int> read(count);
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(values.get(), values.bytes(), count, 1);
    copy.dstPtr = make_cudaPitchedPtr(read.data(), values.bytes(), count, 1);
    copy.extent = make_cudaExtent(values.bytes(), 1, 1);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaGraphCreate(&made, 0));
    CHECK(cudaGraphAddMemsetNode(&fill, made, nullptr, 0, &memset));
    CHECK(cudaGraphAddMemcpyNode(&out, made, &fill, 1, &copy));
    cudaMemcpy3DParms again = {};
    CHECK(cudaGraphMemcpyNodeGetParams(out, &again));
    results.holds("a copy's node says what it copies", again.srcPtr.ptr == values.get() && again.extent.width == values.bytes() && again.kind == cudaMemcpyDeviceToHost);
    cudaGraphExec_t steps;
    CHECK(cudaGraphInstantiate(&steps, made, 0));
    CHECK(cudaGraphLaunch(steps, first));
    CHECK(cudaStreamSynchronize(first));
    results.exact("node by node", read, std::vector<int>(count, 9));
    CHECK(cudaGraphExecDestroy(steps));
    CHECK(cudaGraphDestroy(made));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    return results.finish();
}
