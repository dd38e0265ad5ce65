// A graph that decides on the device: a loop that runs until a kernel says that it is enough, and a branch.
#include "sample.h"

#include <tuple>

// Collatz: how many steps until one.
__global__ void step(unsigned* value, int* steps, cudaGraphConditionalHandle go_on) {
    *value = *value % 2 == 0 ? *value / 2 : *value * 3 + 1;
    *steps += 1;
    cudaGraphSetConditional(go_on, *value != 1);
}

__global__ void judge(const int* steps, cudaGraphConditionalHandle many) { cudaGraphSetConditional(many, *steps > 50); }

__global__ void mark(int* place, int value) { *place = value; }

template <class... Parameters, class... Arguments>
cudaGraphNode_t add_kernel(cudaGraph_t graph, const cudaGraphNode_t* after, void (*kernel)(Parameters...),
                           Arguments... arguments) {
    std::tuple<Parameters...> values(arguments...);
    void* pointers[sizeof...(Parameters)];
    int at = 0;
    std::apply([&](auto&... value) { ((pointers[at++] = &value), ...); }, values);
    cudaKernelNodeParams what = {};
    what.func = reinterpret_cast<void*>(kernel);
    what.gridDim = dim3(1);
    what.blockDim = dim3(1);
    what.kernelParams = pointers;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddKernelNode(&node, graph, after, after == nullptr ? 0 : 1, &what));
    return node;
}

cudaGraphNode_t add_conditional(cudaGraph_t graph, const cudaGraphNode_t* after, cudaGraphConditionalHandle handle,
                                cudaGraphConditionalNodeType type, cudaGraph_t* body) {
    cudaGraphNodeParams what = {};
    what.type = cudaGraphNodeTypeConditional;
    what.conditional.handle = handle;
    what.conditional.type = type;
    what.conditional.size = 1;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, after, nullptr, after == nullptr ? 0 : 1, &what));
    *body = what.conditional.phGraph_out[0];
    return node;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    const Array<unsigned> value(1);
    const Array<int> steps(1), marked(1);
    cudaGraph_t graph, loop_body, branch_body;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle go_on, many;
    CHECK(cudaGraphConditionalHandleCreate(&go_on, graph, 1, cudaGraphCondAssignDefault));
    CHECK(cudaGraphConditionalHandleCreate(&many, graph, 0, cudaGraphCondAssignDefault));
    const cudaGraphNode_t loop = add_conditional(graph, nullptr, go_on, cudaGraphCondTypeWhile, &loop_body);
    add_kernel(loop_body, nullptr, step, value.get(), steps.get(), go_on);
    const cudaGraphNode_t judged = add_kernel(graph, &loop, judge, static_cast<const int*>(steps.get()), many);
    add_conditional(graph, &judged, many, cudaGraphCondTypeIf, &branch_body);
    add_kernel(branch_body, nullptr, mark, marked.get(), 1);

    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (unsigned begin : {6u, 27u}) {
        const int zero = 0;
        CHECK(cudaMemcpy(value, &begin, sizeof begin, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(steps, &zero, sizeof zero, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(marked, &zero, sizeof zero, cudaMemcpyHostToDevice));
        CHECK(cudaGraphLaunch(executable, nullptr));
        int expected = 0;
        for (unsigned now = begin; now != 1; expected++) now = now % 2 == 0 ? now / 2 : now * 3 + 1;
        results.exact("steps from " + std::to_string(begin), steps.host()[0], expected);
        results.exact("branch from " + std::to_string(begin), marked.host()[0], expected > 50 ? 1 : 0);
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    return results.finish();
}
