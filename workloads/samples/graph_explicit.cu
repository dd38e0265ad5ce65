// A graph put together node by node: memset, copy, kernels, a host function, a child graph; one kernel's arguments changed.
#include "sample.h"

__global__ void add_number(int* values, int count, int number) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] += number;
}

void CUDART_CB note_call(void* data) { *static_cast<int*>(data) += 1; }

constexpr int COUNT = 300, THREADS = 64;

int main(int argc, char** argv) {
    Results results(argc, argv);
    const Array<int> values(COUNT);
    std::vector<int> out(COUNT, -1);
    int calls = 0;

    int* pointer = values;
    int count = COUNT, number = 5;
    void* arguments[] = {&pointer, &count, &number};
    cudaKernelNodeParams kernel = {};
    kernel.func = reinterpret_cast<void*>(add_number);
    kernel.gridDim = dim3(ceil_div(COUNT, THREADS));
    kernel.blockDim = dim3(THREADS);
    kernel.kernelParams = arguments;

    cudaGraph_t child, graph;
    cudaGraphNode_t set, add, again, copy, host, inner, nothing;
    CHECK(cudaGraphCreate(&child, 0));
    CHECK(cudaGraphAddKernelNode(&inner, child, nullptr, 0, &kernel));

    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams zero = {};
    zero.dst = pointer;
    zero.elementSize = 4;
    zero.value = 3;
    zero.width = COUNT;
    zero.height = 1;
    CHECK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &zero));
    number = 100;  // arguments were taken when the node was added
    CHECK(cudaGraphAddKernelNode(&add, graph, &set, 1, &kernel));
    CHECK(cudaGraphAddChildGraphNode(&again, graph, &add, 1, child));
    CHECK(cudaGraphAddEmptyNode(&nothing, graph, &again, 1));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &nothing, 1, out.data(), pointer, COUNT * sizeof(int),
                                   cudaMemcpyDeviceToHost));
    cudaHostNodeParams call = {};
    call.fn = note_call;
    call.userData = &calls;
    CHECK(cudaGraphAddHostNode(&host, graph, &copy, 1, &call));

    cudaGraphExec_t executable;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    results.exact("first launch", out, std::vector<int>(COUNT, 108));
    number = 1000;
    CHECK(cudaGraphExecKernelNodeSetParams(executable, add, &kernel));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    results.exact("with other arguments", out, std::vector<int>(COUNT, 1008));
    results.exact("calls of the host function", calls, 2);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(child));
    CHECK(cudaStreamDestroy(stream));
    return results.finish();
}
