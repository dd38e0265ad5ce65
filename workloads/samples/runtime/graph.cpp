// Graphs: captured ones, and ones that are put together node by node.
#include "driver.h"

#include <vector>

using namespace runtime;

namespace {

CUDA_KERNEL_NODE_PARAMS driver_parameters(CUkernel kernel, dim3 grid, dim3 block, unsigned shared, void** arguments) {
    CUDA_KERNEL_NODE_PARAMS made = {};
    made.kern = kernel;
    made.gridDimX = grid.x;
    made.gridDimY = grid.y;
    made.gridDimZ = grid.z;
    made.blockDimX = block.x;
    made.blockDimY = block.y;
    made.blockDimZ = block.z;
    made.sharedMemBytes = shared;
    made.kernelParams = arguments;
    return made;
}

cudaError_t kernel_parameters(const cudaKernelNodeParams& wanted, CUDA_KERNEL_NODE_PARAMS* made) {
    CUkernel kernel;
    const cudaError_t error = kernel_of(wanted.func, &kernel);
    if (error == cudaSuccess) {
        *made = driver_parameters(kernel, wanted.gridDim, wanted.blockDim, wanted.sharedMemBytes, wanted.kernelParams);
    }
    return error;
}

CUcontext current_context(const Driver& driver) {
    CUcontext context = nullptr;
    driver.cuCtxGetCurrent(&context);
    return context;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    WITH_DRIVER(driver);
    return note(driver.cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)));
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                          const cudaGraphEdgeData* edges, size_t count, cudaStreamCaptureMode mode) {
    WITH_DRIVER(driver);
    return note(driver.cuStreamBeginCaptureToGraph(stream, graph, dependencies,
                                                   reinterpret_cast<const CUgraphEdgeData*>(edges), count,
                                                   static_cast<CUstreamCaptureMode>(mode)));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    WITH_DRIVER(driver);
    return note(driver.cuStreamEndCapture(stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    WITH_DRIVER(driver);
    return note(driver.cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status)));
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
    WITH_DRIVER(driver);
    return note(driver.cuGraphCreate(graph, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    WITH_DRIVER(driver);
    return note(driver.cuGraphDestroy(graph));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    WITH_DRIVER(driver);
    return note(driver.cuGraphGetNodes(graph, nodes, count));
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaKernelNodeParams* wanted) {
    WITH_DRIVER(driver);
    CUDA_KERNEL_NODE_PARAMS parameters;
    const cudaError_t error = kernel_parameters(*wanted, &parameters);
    if (error != cudaSuccess) return note(error);
    return note(driver.cuGraphAddKernelNode(node, graph, dependencies, count, &parameters));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                     size_t count, void* to, const void* from, size_t size, cudaMemcpyKind) {
    WITH_DRIVER(driver);
    CUDA_MEMCPY3D what = {};
    what.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    what.srcDevice = address(from);
    what.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    what.dstDevice = address(to);
    what.WidthInBytes = size;
    what.Height = 1;
    what.Depth = 1;
    return note(driver.cuGraphAddMemcpyNode(node, graph, dependencies, count, &what, current_context(driver)));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaMemsetParams* wanted) {
    WITH_DRIVER(driver);
    CUDA_MEMSET_NODE_PARAMS what = {};
    what.dst = address(wanted->dst);
    what.pitch = wanted->pitch;
    what.value = wanted->value;
    what.elementSize = wanted->elementSize;
    what.width = wanted->width;
    what.height = wanted->height;
    return note(driver.cuGraphAddMemsetNode(node, graph, dependencies, count, &what, current_context(driver)));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies, size_t count,
                                 const cudaHostNodeParams* wanted) {
    WITH_DRIVER(driver);
    CUDA_HOST_NODE_PARAMS what = {};
    what.fn = wanted->fn;
    what.userData = wanted->userData;
    return note(driver.cuGraphAddHostNode(node, graph, dependencies, count, &what));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                  size_t count) {
    WITH_DRIVER(driver);
    return note(driver.cuGraphAddEmptyNode(node, graph, dependencies, count));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                       size_t count, cudaGraph_t child) {
    WITH_DRIVER(driver);
    return note(driver.cuGraphAddChildGraphNode(node, graph, dependencies, count, child));
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph, unsigned first_value,
                                             unsigned flags) {
    WITH_DRIVER(driver);
    return note(driver.cuGraphConditionalHandleCreate(reinterpret_cast<CUgraphConditionalHandle*>(handle), graph,
                                                      current_context(driver), first_value, flags));
}

// Conditional nodes; the other kinds have functions of their own.
cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                             const cudaGraphEdgeData* edges, size_t count, cudaGraphNodeParams* wanted) {
    WITH_DRIVER(driver);
    if (wanted->type != cudaGraphNodeTypeConditional) return note(cudaErrorNotSupported);
    CUgraphNodeParams what = {};
    what.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    what.conditional.handle = wanted->conditional.handle;
    what.conditional.type = static_cast<CUgraphConditionalNodeType>(wanted->conditional.type);
    what.conditional.size = wanted->conditional.size;
    what.conditional.ctx = current_context(driver);
    const CUresult result = driver.cuGraphAddNode(node, graph, dependencies,
                                                  reinterpret_cast<const CUgraphEdgeData*>(edges), count, &what);
    wanted->conditional.phGraph_out = what.conditional.phGraph_out;
    return note(result);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
    WITH_DRIVER(driver);
    return note(driver.cuGraphInstantiateWithFlags(executable, graph, flags));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    WITH_DRIVER(driver);
    return note(driver.cuGraphLaunch(executable, stream));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    WITH_DRIVER(driver);
    return note(driver.cuGraphExecDestroy(executable));
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* wanted) {
    WITH_DRIVER(driver);
    CUDA_KERNEL_NODE_PARAMS parameters;
    const cudaError_t error = kernel_parameters(*wanted, &parameters);
    if (error != cudaSuccess) return note(error);
    return note(driver.cuGraphExecKernelNodeSetParams(executable, node, &parameters));
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
    WITH_DRIVER(driver);
    CUgraphExecUpdateResultInfo found = {};
    const CUresult result = driver.cuGraphExecUpdate(executable, graph, &found);
    *info = {};
    info->result = static_cast<cudaGraphExecUpdateResult>(found.result);
    return note(result);
}
}
