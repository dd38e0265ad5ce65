//! Graphs: made, walked, instantiated, launched, updated.

use super::forward;
use crate::boundary::{Outcome, PER_THREAD, explicit, require};
use crate::context;
use crate::convert::{at, at_mut, same};
use crate::driver::driver;
use crate::types::*;
use core::ffi::{c_char, c_uint, c_ulonglong, c_void};

forward! {
    fn cudaGraphCreate(graph: *mut cudaGraph_t, flags: c_uint) => cuGraphCreate(graph, flags);
    fn cudaGraphDestroy(graph: cudaGraph_t) => cuGraphDestroy(graph);
    fn cudaGraphDestroyNode(node: cudaGraphNode_t) => cuGraphDestroyNode(node);
    fn cudaGraphClone(clone: *mut cudaGraph_t, graph: cudaGraph_t) => cuGraphClone(clone, graph);
    fn cudaGraphNodeFindInClone(node: *mut cudaGraphNode_t, original: cudaGraphNode_t, clone: cudaGraph_t)
        => cuGraphNodeFindInClone(node, original, clone);
    fn cudaGraphNodeGetType(node: cudaGraphNode_t, kind: *mut cudaGraphNodeType)
        => cuGraphNodeGetType(node, at_mut(kind));
    fn cudaGraphGetNodes(graph: cudaGraph_t, nodes: *mut cudaGraphNode_t, count: *mut usize)
        => cuGraphGetNodes(graph, nodes, count);
    fn cudaGraphGetRootNodes(graph: cudaGraph_t, nodes: *mut cudaGraphNode_t, count: *mut usize)
        => cuGraphGetRootNodes(graph, nodes, count);
    fn cudaGraphGetEdges(
        graph: cudaGraph_t, from: *mut cudaGraphNode_t, to: *mut cudaGraphNode_t, edges: *mut cudaGraphEdgeData,
        count: *mut usize,
    ) => cuGraphGetEdges_v2(graph, from, to, at_mut(edges), count);
    fn cudaGraphNodeGetDependencies(
        node: cudaGraphNode_t, dependencies: *mut cudaGraphNode_t, edges: *mut cudaGraphEdgeData, count: *mut usize,
    ) => cuGraphNodeGetDependencies_v2(node, dependencies, at_mut(edges), count);
    fn cudaGraphNodeGetDependentNodes(
        node: cudaGraphNode_t, dependents: *mut cudaGraphNode_t, edges: *mut cudaGraphEdgeData, count: *mut usize,
    ) => cuGraphNodeGetDependentNodes_v2(node, dependents, at_mut(edges), count);
    fn cudaGraphAddDependencies(
        graph: cudaGraph_t, from: *const cudaGraphNode_t, to: *const cudaGraphNode_t, edges: *const cudaGraphEdgeData,
        count: usize,
    ) => cuGraphAddDependencies_v2(graph, from, to, at(edges), count);
    fn cudaGraphRemoveDependencies(
        graph: cudaGraph_t, from: *const cudaGraphNode_t, to: *const cudaGraphNode_t, edges: *const cudaGraphEdgeData,
        count: usize,
    ) => cuGraphRemoveDependencies_v2(graph, from, to, at(edges), count);
    fn cudaGraphConditionalHandleCreate(
        handle: *mut cudaGraphConditionalHandle, graph: cudaGraph_t, value: c_uint, flags: c_uint,
    ) => cuGraphConditionalHandleCreate(handle, graph, super::current_context()?, value, flags);
    fn cudaGraphDebugDotPrint(graph: cudaGraph_t, path: *const c_char, flags: c_uint)
        => cuGraphDebugDotPrint(graph, path, flags);
    fn cudaGraphInstantiate(executable: *mut cudaGraphExec_t, graph: cudaGraph_t, flags: c_ulonglong)
        => cuGraphInstantiateWithFlags(executable, graph, flags);
    fn cudaGraphInstantiateWithFlags(executable: *mut cudaGraphExec_t, graph: cudaGraph_t, flags: c_ulonglong)
        => cuGraphInstantiateWithFlags(executable, graph, flags);
    fn cudaGraphLaunch(executable: cudaGraphExec_t, stream: cudaStream_t) => cuGraphLaunch(executable, stream);
    fn cudaGraphUpload(executable: cudaGraphExec_t, stream: cudaStream_t) => cuGraphUpload(executable, stream);
    fn cudaGraphExecDestroy(executable: cudaGraphExec_t) => cuGraphExecDestroy(executable);
    fn cudaGraphExecGetFlags(executable: cudaGraphExec_t, flags: *mut c_ulonglong)
        => cuGraphExecGetFlags(executable, flags.cast());
    fn cudaGraphExecUpdate(
        executable: cudaGraphExec_t, graph: cudaGraph_t, result: *mut cudaGraphExecUpdateResultInfo,
    ) => cuGraphExecUpdate_v2(executable, graph, at_mut(result));
    fn cudaGraphNodeGetEnabled(executable: cudaGraphExec_t, node: cudaGraphNode_t, is_enabled: *mut c_uint)
        => cuGraphNodeGetEnabled(executable, node, is_enabled);
    fn cudaGraphNodeSetEnabled(executable: cudaGraphExec_t, node: cudaGraphNode_t, is_enabled: c_uint)
        => cuGraphNodeSetEnabled(executable, node, is_enabled);
    fn cudaUserObjectCreate(
        object: *mut cudaUserObject_t, data: *mut c_void, destroy: cudaHostFn_t, count: c_uint, flags: c_uint,
    ) => cuUserObjectCreate(object, data, same(destroy), count, flags);
    fn cudaUserObjectRetain(object: cudaUserObject_t, count: c_uint) => cuUserObjectRetain(object, count);
    fn cudaUserObjectRelease(object: cudaUserObject_t, count: c_uint) => cuUserObjectRelease(object, count);
    fn cudaGraphRetainUserObject(graph: cudaGraph_t, object: cudaUserObject_t, count: c_uint, flags: c_uint)
        => cuGraphRetainUserObject(graph, object, count, flags);
    fn cudaGraphReleaseUserObject(graph: cudaGraph_t, object: cudaUserObject_t, count: c_uint)
        => cuGraphReleaseUserObject(graph, object, count);
}

pub unsafe fn cudaGraphInstantiateWithParams(
    default: cudaStream_t,
    executable: *mut cudaGraphExec_t,
    graph: cudaGraph_t,
    parameters: *mut cudaGraphInstantiateParams,
) -> Outcome {
    require(!parameters.is_null())?;
    context::ready()?;
    let uploaded_in = (*parameters).uploadStream;
    if default == PER_THREAD {
        (*parameters).uploadStream = explicit(uploaded_in, default);
    }
    let made = driver!(cuGraphInstantiateWithParams(executable, graph, at_mut(parameters)));
    (*parameters).uploadStream = uploaded_in;
    made
}
